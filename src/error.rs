//! What can end a command, as data; each kind has an exit code.

use std::fmt;
use trtc_ir::Diag;

/// What kind of end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A check failed: a difference, a policy. Exit code 1.
    Check,
    /// Bad usage or bad input. Exit code 2.
    Input,
    /// Something is missing on this machine: a library, a GPU. Exit code 3.
    Missing,
    /// A fault of ours. Exit code 4.
    Bug,
}

impl ErrorKind {
    /// Exit code of the command line.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Check => 1,
            ErrorKind::Input => 2,
            ErrorKind::Missing => 3,
            ErrorKind::Bug => 4,
        }
    }
}

/// One or several things that ended a command.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    diags: Vec<Diag>,
    text: String,
    help: Option<String>,
}

impl Error {
    /// An error with a text that says what happened and where.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, diags: Vec::new(), text: text.into(), help: None }
    }

    /// Bad usage or bad input.
    pub fn input(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Input, text)
    }

    /// Something is missing on this machine.
    pub fn missing(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Missing, text)
    }

    /// A fault of ours.
    pub fn bug(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Bug, text)
    }

    /// A model that is not valid, with all that was found.
    pub fn invalid(path: &str, diags: Vec<Diag>) -> Error {
        let text = match diags.as_slice() {
            [only] => format!("{path}: {only}"),
            [first, rest @ ..] => format!("{path}: {first} (and {} more)", rest.len()),
            [] => format!("{path}: the model is not valid"),
        };
        let help = diags.iter().find_map(|diag| diag.help.clone());
        Error { kind: ErrorKind::Input, diags, text, help }
    }

    /// Adds what to do.
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What was found in the model, when that is what ended the command.
    pub fn diags(&self) -> &[Diag] {
        &self.diags
    }

    /// What to do about it.
    pub fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
