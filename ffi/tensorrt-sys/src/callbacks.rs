//! What C++ calls in Rust. A panic must not unwind into C++, so each call catches it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// (severity, text) of a log line.
type Line = Box<dyn Fn(i32, &str) + Send + Sync>;

/// Receives the library's log: severity (0 internal error, 1 error, 2 warning, 3 info, 4 verbose) and text.
pub struct Sink(Line);

impl Sink {
    /// A sink; the library calls it from any of its threads.
    pub fn new(log: impl Fn(i32, &str) + Send + Sync + 'static) -> Box<Sink> {
        Box::new(Sink(Box::new(log)))
    }

    pub(crate) fn log(&self, severity: i32, text: &[u8]) {
        // A log line that panics is lost; the build goes on.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.0)(severity, &String::from_utf8_lossy(text))));
    }
}

/// (bytes, alignment, stream) -> device address; 0 refuses.
type Allocate = Box<dyn Fn(u64, u64, usize) -> usize + Send + Sync>;

/// The final dims of an output.
type Notify = Box<dyn Fn(&[i64]) + Send + Sync>;

/// Gives memory to one output whose size only the run knows.
pub struct OutputSink {
    allocate: Allocate,
    shape: Notify,
}

impl OutputSink {
    /// `allocate` gets bytes, alignment and the stream, and returns a device address (0 refuses); `shape` gets the final dims.
    pub fn new(
        allocate: impl Fn(u64, u64, usize) -> usize + Send + Sync + 'static,
        shape: impl Fn(&[i64]) + Send + Sync + 'static,
    ) -> Box<OutputSink> {
        Box::new(OutputSink { allocate: Box::new(allocate), shape: Box::new(shape) })
    }

    pub(crate) fn allocate(&self, bytes: u64, alignment: u64, stream: usize) -> usize {
        catch_unwind(AssertUnwindSafe(|| (self.allocate)(bytes, alignment, stream))).unwrap_or(0)
    }

    pub(crate) fn shape(&self, dims: &[i64]) {
        let _ = catch_unwind(AssertUnwindSafe(|| (self.shape)(dims)));
    }
}
