//! Processes that run cases, one at a time each. A process that dies or takes too long is replaced.

use crate::{
    execute, folder,
    result::{CaseResult, Runner},
};
use anyhow::{Context as _, Result};
use std::{
    io::{BufRead as _, BufReader, IsTerminal as _, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::Duration,
};

/// First argument of a process that runs cases.
pub const ARGUMENT: &str = "--serve-cases";

/// Begins a line with a result: libraries may print, too.
const MARK: &str = "\u{1}result ";

/// A case that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(400);

/// The side that runs cases: ids come on stdin, results go to stdout. `worker` is the executable that builds engines.
pub fn serve(worker: &Path) -> ExitCode {
    execute::catch_panics();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let mut words = line.split('\t');
        let id = words.next().unwrap_or_default();
        let runners: Vec<Runner> = words.filter_map(Runner::from_name).collect();
        let result = execute::execute(id, &runners, worker);
        match serde_json::to_string(&result) {
            Ok(text) => println!("{MARK}{text}"),
            Err(_) => break,
        }
    }
    ExitCode::SUCCESS
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    fn start(worker: &Path) -> Result<Process> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ARGUMENT)
            .arg(worker)
            .args(folder::get().map(|folder| &folder.models))
            .args(folder::get().and_then(|folder| folder.references.as_ref()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, stdin, lines })
    }

    /// The result of a case; an error's kind and words when the process died or took too long.
    fn run(&mut self, id: &str, runners: &[Runner]) -> Result<CaseResult, (&'static str, String)> {
        let names: Vec<&str> = runners.iter().map(|runner| runner.name()).collect();
        let sent = writeln!(self.stdin, "{id}\t{}", names.join("\t")).and_then(|()| self.stdin.flush());
        if let Err(error) = sent {
            return Err(("crash", error.to_string()));
        }
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => {
                    if let Some((_, text)) = line.split_once(MARK) {
                        return serde_json::from_str(text).map_err(|error| ("crash", error.to_string()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(("hang", format!("longer than {} s", LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status =
                        self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
                    return Err(("crash", status));
                }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs cases, each through its runners, on `jobs` processes; results in the order of `cases`. `seen` gets each when it comes.
pub fn run_all(
    cases: &[(String, Vec<Runner>)],
    jobs: usize,
    seen: &mut (dyn FnMut(&CaseResult) + Send),
) -> Result<Vec<CaseResult>> {
    let seen = Mutex::new(seen);
    // A copy: another build may replace the executable while this goes on.
    let folder = tempfile::Builder::new().prefix("trtc-conformance-").tempdir()?;
    let worker = folder.path().join("trtc");
    std::fs::copy(env!("CARGO_BIN_EXE_trtc"), &worker)?;
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<CaseResult>>> = Mutex::new(vec![None; cases.len()]);
    let show = std::io::stderr().is_terminal();
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..jobs.max(1))
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut process = None;
                    loop {
                        let at = next.fetch_add(1, Relaxed);
                        let Some((id, runners)) = cases.get(at) else { return Ok(()) };
                        let mut running = match process.take() {
                            Some(process) => process,
                            None => Process::start(&worker)?,
                        };
                        let result = match running.run(id, runners) {
                            Ok(result) => {
                                process = Some(running);
                                result
                            }
                            Err((kind, text)) => CaseResult::lost(id, runners, kind, &text),
                        };
                        seen.lock().unwrap_or_else(PoisonError::into_inner)(&result);
                        results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
                        if show {
                            eprint!("\r{} of {} ", at + 1, cases.len());
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Ok(())))
    })?;
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(results.into_iter().flatten().collect())
}
