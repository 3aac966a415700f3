//! Safe TensorRT: [`Library`], [`Builder`], [`Runtime`], [`Engine`], [`Context`].
//!
//! A library of either product is opened at run time; nothing is linked, so a program that depends on this crate starts
//! without one. [`locate`] finds it. [`Builder`] turns a [`trtc_network::Network`] and its weights into engine bytes and
//! checks each layer against what the network says of its outputs. [`Runtime`] runs engines and needs a CUDA driver.
//!
//! The builder recurses and can crash; call it in a process and on a thread (512 MiB of stack) that may die.
#![allow(unsafe_code)]

mod builder;
mod emit;
mod library;
mod locate;
mod log;
mod numbers;
mod runtime;

pub use builder::{BuildError, BuildOptions, Builder, EngineBytes};
pub use library::{Library, OpenError, Version};
pub use locate::{LIBRARY_VARIABLES, NotFound, Use, locate};
pub use log::{LogHandler, Severity};
pub use runtime::{Binding, Context, Engine, Mode, OutputAllocator, Runtime, RuntimeError, cuda_devices};
