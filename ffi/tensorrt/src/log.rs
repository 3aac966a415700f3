//! The library's log: kept while something runs, and made fit to show.

use std::sync::{Arc, Mutex, PoisonError};

/// How grave a line of the library's log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The library found a fault of its own.
    InternalError,
    /// Something failed.
    Error,
    /// Something is suspicious.
    Warning,
    /// Progress.
    Info,
    /// Everything else.
    Verbose,
}

impl Severity {
    fn from_number(number: i32) -> Severity {
        match number {
            0 => Severity::InternalError,
            1 => Severity::Error,
            2 => Severity::Warning,
            3 => Severity::Info,
            _ => Severity::Verbose,
        }
    }
}

/// Gets each line of the log, from any thread of the library.
pub type LogHandler = Box<dyn Fn(Severity, &str) + Send + Sync>;

/// Errors since the last [`Log::clear`].
#[derive(Clone, Default)]
pub(crate) struct Log {
    errors: Arc<Mutex<Vec<String>>>,
}

impl Log {
    /// The sink that fills this log and passes each line on.
    pub fn sink(&self, handler: Option<LogHandler>) -> Box<trtc_tensorrt_sys::Sink> {
        let log = self.clone();
        trtc_tensorrt_sys::Sink::new(move |number, text| {
            let severity = Severity::from_number(number);
            if severity <= Severity::Error {
                log.push(text);
            }
            match (&handler, severity) {
                (Some(handler), _) => handler(severity, text),
                (None, Severity::InternalError | Severity::Error) => {
                    tracing::debug!(target: "tensorrt", "error: {text}")
                }
                (None, Severity::Warning) => tracing::debug!(target: "tensorrt", "warning: {text}"),
                (None, Severity::Info | Severity::Verbose) => tracing::trace!(target: "tensorrt", "{text}"),
            }
        })
    }

    fn push(&self, text: &str) {
        // Thousands of equal complaints (one a layer) help nobody.
        const KEPT: usize = 100;
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < KEPT {
            errors.push(text.to_owned());
        }
    }

    pub fn clear(&self) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub fn raw(&self) -> Vec<String> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
