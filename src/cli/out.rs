//! Standard output: the result of a command, and nothing else.

use super::failure::{Failure, Result};
use std::{
    fmt,
    io::{self, BufWriter, Write},
};

/// Standard output, buffered. A reader that has gone away (`trtc ops | head`) is no error: what it does not want is
/// dropped, and the command keeps its exit code.
pub struct Out {
    to: BufWriter<io::StdoutLock<'static>>,
    gone: bool,
}

impl Out {
    pub fn stdout() -> Out {
        Out { to: BufWriter::new(io::stdout().lock()), gone: false }
    }

    /// Writes `text` and ends the line unless `text` does.
    pub fn text(&mut self, text: &str) -> Result<()> {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        self.put(format_args!("{text}{end}"))
    }

    /// Writes a line.
    pub fn line(&mut self, line: fmt::Arguments<'_>) -> Result<()> {
        self.put(format_args!("{line}\n"))
    }

    /// Writes `value` as indented JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(|error| Failure::bug(error.to_string()))?;
        self.text(&text)
    }

    /// Hands everything to the reader.
    pub fn finish(mut self) -> Result<()> {
        let result = self.to.flush();
        self.outcome(result)
    }

    fn put(&mut self, text: fmt::Arguments<'_>) -> Result<()> {
        if self.gone {
            return Ok(());
        }
        let result = self.to.write_fmt(text);
        self.outcome(result)
    }

    fn outcome(&mut self, result: io::Result<()>) -> Result<()> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            other => {
                other.map_err(|error| Failure::missing(format!("cannot write to standard output: {error}")))
            }
        }
    }
}
