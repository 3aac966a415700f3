//! Helpers for shape rules.
