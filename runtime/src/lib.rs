//! Runs bundles: session, schedule, host backend, devices, buffers.
