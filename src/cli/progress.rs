//! Progress of a compile on standard error: a moving line on a terminal, nothing elsewhere; warnings always.

use super::{
    failure::Message,
    render::{self, Severity},
};
use trtc::{Events, Target};

/// Shows what a compile does.
pub struct Progress {
    #[cfg(feature = "cli")]
    bar: Option<indicatif::ProgressBar>,
}

impl Progress {
    #[cfg(feature = "cli")]
    pub fn new() -> Progress {
        let bar = render::on_terminal().then(|| {
            let bar = indicatif::ProgressBar::new_spinner();
            bar.enable_steady_tick(std::time::Duration::from_millis(100));
            bar
        });
        Progress { bar }
    }

    #[cfg(not(feature = "cli"))]
    pub fn new() -> Progress {
        Progress {}
    }

    fn show(&self, text: String) {
        tracing::debug!("{text}");
        #[cfg(feature = "cli")]
        if let Some(bar) = &self.bar {
            bar.set_message(text);
        }
    }

    /// Writes lines while the moving line is away.
    fn aside(&self, write: impl FnOnce()) {
        #[cfg(feature = "cli")]
        if let Some(bar) = &self.bar {
            return bar.suspend(write);
        }
        write();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        #[cfg(feature = "cli")]
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Events for Progress {
    fn stage(&self, name: &str) {
        self.show(name.to_owned());
    }

    fn build_started(&self, target: &Target, segment: &str, nodes: usize) {
        self.show(format!("building {segment} ({nodes} nodes) for {target}"));
    }

    fn build_ended(&self, target: &Target, segment: &str, seconds: f64, result: Result<u64, &str>) {
        match result {
            Ok(bytes) => self.show(format!("built {segment} for {target}: {bytes} bytes in {seconds:.2} s")),
            // The compile warns of it, and says what it does about it.
            Err(words) => self.show(format!("{segment} cannot be built for {target}: {words}")),
        }
    }

    fn warning(&self, text: &str) {
        let message = Message { code: None, text: text.to_owned(), help: None };
        self.aside(|| render::draw(Severity::Warning, &message));
    }
}
