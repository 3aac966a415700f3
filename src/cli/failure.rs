//! Why a command did not end well: the exit code's kind, and messages as data. `render` draws them.

use std::{fmt, path::Path};
use trtc::ErrorKind;

/// Diagnostics that are shown; a broken model may have thousands.
const SHOWN: usize = 20;

/// Result of a step of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// What a failure means to whoever called the command. The number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A check failed: a difference, a policy, `--check`.
    Check = 1,
    /// Bad usage or bad input.
    Input = 2,
    /// Something is missing on this machine.
    Missing = 3,
    /// A fault of trtc's own.
    Bug = 4,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Stable code (`E0801`), where there is one.
    pub code: Option<String>,
    /// What is wrong and where, in one line.
    pub text: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// A command that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: Kind,
    /// At least one.
    pub messages: Vec<Message>,
}

impl Failure {
    pub fn new(kind: Kind, text: impl fmt::Display) -> Failure {
        Failure { kind, messages: vec![Message { code: None, text: text.to_string(), help: None }] }
    }

    pub fn check(text: impl fmt::Display) -> Failure {
        Failure::new(Kind::Check, text)
    }

    pub fn input(text: impl fmt::Display) -> Failure {
        Failure::new(Kind::Input, text)
    }

    pub fn missing(text: impl fmt::Display) -> Failure {
        Failure::new(Kind::Missing, text)
    }

    pub fn bug(text: impl fmt::Display) -> Failure {
        Failure::new(Kind::Bug, text)
    }

    /// What ended a compile or a partition of `model`; several diagnostics give several messages.
    pub fn of(error: &trtc::Error, model: &Path) -> Failure {
        let kind = match error.kind() {
            ErrorKind::Check => Kind::Check,
            ErrorKind::Input => Kind::Input,
            ErrorKind::Missing => Kind::Missing,
            _ => Kind::Bug,
        };
        if error.diags().is_empty() {
            let help = error.advice().map(str::to_owned);
            return Failure { kind, messages: vec![Message { code: None, text: error.to_string(), help }] };
        }
        let message = |diag: &trtc_ir::Diag| Message {
            code: Some(diag.code.to_string()),
            text: format!("{}: {diag}", model.display()),
            help: diag.help.clone(),
        };
        let mut messages: Vec<Message> = error.diags().iter().take(SHOWN).map(message).collect();
        let more = error.diags().len() - messages.len();
        if more > 0 {
            let text = format!("{}: {more} more of the like", model.display());
            messages.push(Message { code: None, text, help: None });
        }
        Failure { kind, messages }
    }

    /// Says what to do, after the last message.
    pub fn help(mut self, help: impl fmt::Display) -> Failure {
        if let Some(last) = self.messages.last_mut() {
            last.help = Some(help.to_string());
        }
        self
    }
}
