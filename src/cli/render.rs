//! Draws messages on standard error: with miette on a terminal, else one plain line for a message and one for its help.

use super::failure::{Failure, Kind, Message};
#[cfg(feature = "cli")]
use std::io::IsTerminal;
use std::io::Write;

/// What the messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// Reports a failure.
pub fn failure(failure: &Failure) {
    for message in &failure.messages {
        draw(Severity::Error, message);
    }
    if failure.kind == Kind::Bug {
        report_request();
    }
}

/// Asks for a report of a fault of ours.
pub fn report_request() {
    let version = super::VERSION;
    note(&format!(
        "this is a fault of trtc {version}, not of your model: please report it with the command line and, if you can, the model"
    ));
}

/// Says something that is no fault.
pub fn note(text: &str) {
    line(&format!("note: {text}"));
}

/// Draws one message.
pub fn draw(severity: Severity, message: &Message) {
    #[cfg(feature = "cli")]
    if on_terminal()
        && let Some(text) = drawn::draw(severity, message)
    {
        return line(text.trim_end());
    }
    line(&plain(severity, message));
}

/// The message as plain lines.
fn plain(severity: Severity, message: &Message) -> String {
    let word = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let code = message.code.as_ref().map(|code| format!("[{code}]")).unwrap_or_default();
    let help = message.help.as_ref().map(|help| format!("\nhelp: {help}")).unwrap_or_default();
    format!("{word}{code}: {}{help}", message.text)
}

/// Nobody is left to tell when standard error cannot be written.
fn line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether standard error is a terminal that somebody watches.
#[cfg(feature = "cli")]
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

#[cfg(feature = "cli")]
mod drawn {
    use super::{Message, Severity};
    use std::fmt;

    #[derive(Debug)]
    struct Drawn<'a>(Severity, &'a Message);

    impl fmt::Display for Drawn<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.1.text)
        }
    }

    impl std::error::Error for Drawn<'_> {}

    impl miette::Diagnostic for Drawn<'_> {
        fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
            self.1.code.as_ref().map(|code| Box::new(code) as Box<dyn fmt::Display>)
        }

        fn severity(&self) -> Option<miette::Severity> {
            Some(match self.0 {
                Severity::Error => miette::Severity::Error,
                Severity::Warning => miette::Severity::Warning,
            })
        }

        fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
            self.1.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
        }
    }

    pub fn draw(severity: Severity, message: &Message) -> Option<String> {
        let mut text = String::new();
        let handler = miette::GraphicalReportHandler::new();
        handler.render_report(&mut text, &Drawn(severity, message)).ok()?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, Severity, plain};

    #[test]
    fn a_plain_message_is_one_line_and_its_help() {
        let mut message = Message { code: None, text: "node `a` (Add): no".into(), help: None };
        assert_eq!(plain(Severity::Error, &message), "error: node `a` (Add): no");
        message.code = Some("E0801".into());
        message.help = Some("do".into());
        assert_eq!(plain(Severity::Warning, &message), "warning[E0801]: node `a` (Add): no\nhelp: do");
    }
}
