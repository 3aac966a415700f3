//! The child's side.

use super::wire::{Channel, Request, Response};
use rustix::{
    fs::{MemfdFlags, SealFlags},
    process::{Resource, Rlimit, Signal},
};
use std::{
    collections::HashMap,
    fs::File,
    io::Write,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};
use trtc_bundle::MappedFile;
use trtc_network::Network;
use trtc_tensorrt::{BuildError, BuildOptions, Library, LogHandler, Severity};

type Job = (Request<Network>, Vec<OwnedFd>);

/// Serves requests on stdin until the parent goes away. `stack_bytes` is the stack of the builder's thread.
///
/// Exit codes: 0 the parent has gone, 2 stdin is not a parent's socket, 4 a request that cannot be read.
pub fn serve(stack_bytes: usize) -> ExitCode {
    no_core_dumps();
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(2) };
    if rustix::net::getsockname(&stdin).is_err() {
        say("build-worker is started by trtc itself, with a socket as its stdin");
        return ExitCode::from(2);
    }
    let socket = UnixStream::from(stdin);
    let Ok(answers) = socket.try_clone().map(Channel::new) else { return ExitCode::from(4) };
    let requests = Channel::new(socket);

    let busy = Arc::new(AtomicBool::new(false));
    let (jobs, queue) = mpsc::channel::<Job>();
    let working = busy.clone();
    let thread =
        std::thread::Builder::new().name("build".to_owned()).stack_size(stack_bytes).spawn(move || {
            let mut libraries = HashMap::new();
            for job in queue {
                let (response, engine) = answer(job, &mut libraries);
                let fds: Vec<_> = engine.iter().map(|file| file.as_fd()).collect();
                working.store(false, Ordering::SeqCst);
                if answers.send(&response, &fds).is_err() {
                    return;
                }
            }
        });
    if let Err(why) = thread {
        say(&format!("no thread with a stack of {stack_bytes} bytes: {why}"));
        return ExitCode::from(4);
    }

    // This thread keeps reading while a build runs, so that the parent's end is noticed at once.
    loop {
        match requests.receive::<Request<Network>>() {
            Ok(Some(job)) => {
                busy.store(true, Ordering::SeqCst);
                if jobs.send(job).is_err() {
                    return ExitCode::from(4);
                }
            }
            Ok(None) if busy.load(Ordering::SeqCst) => {
                // Returning would run the library's destructors under its running build.
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
            }
            Ok(None) => return ExitCode::SUCCESS,
            Err(why) => {
                say(&format!("unreadable request: {why}"));
                return ExitCode::from(4);
            }
        }
    }
}

/// A builder that crashes is everyday business; its memory on disk helps nobody. A limit of 1 also keeps the kernel from
/// piping a dump to a collector, which a limit of 0 does not.
fn no_core_dumps() {
    let limit = Rlimit { current: Some(1), maximum: Some(1) };
    let _ = rustix::process::setrlimit(Resource::Core, limit);
}

/// A line on stderr, which the parent keeps. Nothing can be done when that fails.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn answer((request, fds): Job, libraries: &mut HashMap<PathBuf, Library>) -> (Response, Option<File>) {
    #[cfg(debug_assertions)]
    if let Some(response) = die(&request) {
        return (response, None);
    }
    let built = catch_unwind(AssertUnwindSafe(|| build(request, fds, libraries)));
    match built {
        Ok(Ok((response, engine))) => (response, Some(engine)),
        Ok(Err(response)) => (response, None),
        Err(_) => (Response::Invalid { what: "the worker panicked".to_owned() }, None),
    }
}

/// What a test makes of this request.
#[cfg(debug_assertions)]
fn injected(request: &Request<Network>) -> Option<&super::InjectAt> {
    let held = &request.network.nodes;
    request.inject.iter().find(|inject| inject.nodes.iter().all(|node| held.contains(node)))
}

/// Dies or refuses when a test asks for it.
#[cfg(debug_assertions)]
fn die(request: &Request<Network>) -> Option<Response> {
    use super::Inject;
    let inject = injected(request)?;
    say(&format!("injected: {:?}", inject.how));
    let words = vec!["an injected refusal".to_owned()];
    match inject.how {
        Inject::Abort => std::process::abort(),
        Inject::Hang => loop {
            std::thread::park();
        },
        Inject::Panic => None,
        Inject::Refuse => Some(Response::Refused { words, nodes: Vec::new() }),
        Inject::RefuseNamed => {
            Some(Response::Refused { words, nodes: inject.nodes.iter().take(1).cloned().collect() })
        }
    }
}

fn build(
    request: Request<Network>,
    fds: Vec<OwnedFd>,
    libraries: &mut HashMap<PathBuf, Library>,
) -> Result<(Response, File), Response> {
    #[cfg(debug_assertions)]
    assert!(injected(&request).is_none_or(|inject| inject.how != super::Inject::Panic), "injected");
    let invalid = |what: String| Response::Invalid { what };
    let mut files = Vec::with_capacity(fds.len());
    for fd in fds {
        let file = MappedFile::from_fd(fd, "weights");
        files.push(file.map_err(|e| invalid(format!("a file of weights cannot be mapped: {e}")))?);
    }
    let bytes: Vec<_> = files.iter().map(MappedFile::bytes).collect();
    let mut weights: Vec<&[u8]> = Vec::with_capacity(request.blobs.len());
    for blob in &request.blobs {
        let range = usize::try_from(blob.offset).ok().zip(usize::try_from(blob.len).ok());
        let range = range.and_then(|(start, len)| Some(start..start.checked_add(len)?));
        let slice = match (bytes.get(blob.file as usize), range) {
            _ if blob.len == 0 => Some(&[][..]),
            (Some(file), Some(range)) => file.get(range),
            _ => None,
        };
        weights.push(slice.ok_or_else(|| invalid(format!("weights outside their file: {blob:?}")))?);
    }

    let library = library(&request, libraries)?;
    let mut options = BuildOptions::default();
    options.workspace_bytes = request.workspace_bytes;
    options.max_threads = request.max_threads;
    options.tf32 = request.tf32;
    reset_peak_rss();
    let start = Instant::now();
    let engine =
        releasing(&files, || library.builder().build(&request.network, &weights, &request.target, &options));
    let engine = engine.map_err(|error| match error {
        BuildError::Refused { words, nodes } => Response::Refused { words, nodes },
        BuildError::Fault(fault) => Response::Fault { node: fault.node, what: fault.what },
        BuildError::NoBuilder => Response::Missing { why: error.to_string() },
        other => invalid(other.to_string()),
    })?;
    let build_s = start.elapsed().as_secs_f64();
    let file =
        memfd("engine", &[&engine]).map_err(|e| invalid(format!("the engine cannot be stored: {e}")))?;
    let library_version = library.version().to_string();
    Ok((Response::Built { build_s, peak_rss_bytes: peak_rss_bytes(), library_version }, file))
}

/// How often a build lets go of the weights that it has read.
const RELEASE_INTERVAL: Duration = Duration::from_millis(10);

/// Runs `build` and meanwhile gives back pages of the weights' files: the builder reads each block, copies it, and rarely
/// comes back, so that the file and the copy would both stay in memory.
fn releasing<T>(files: &[MappedFile], build: impl FnOnce() -> T) -> T {
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(RELEASE_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                files.iter().for_each(MappedFile::release_pages);
            }
        });
        // The sender goes, and with it the thread, however `build` ends.
        let _done = done;
        build()
    })
}

fn library(
    request: &Request<Network>,
    libraries: &mut HashMap<PathBuf, Library>,
) -> Result<Library, Response> {
    let missing = |why: String| Response::Missing { why };
    let product = request.target.product();
    let known = libraries.get(&request.library).filter(|library| library.product() == product).cloned();
    let library = match known {
        Some(library) => library,
        None => {
            let opened = Library::open_with(product, &request.library, Some(log_handler()));
            opened.map_err(|e| missing(e.to_string()))?
        }
    };
    let (version, wanted) = (library.version(), request.target.version());
    if (version.major, version.minor) != wanted {
        return Err(missing(format!(
            "{} is version {version}; engines for {} need {}.{}",
            request.library.display(),
            request.target,
            wanted.0,
            wanted.1
        )));
    }
    libraries.insert(request.library.clone(), library.clone());
    Ok(library)
}

/// Warnings and errors go to stderr as they come: after a crash they are what is left.
fn log_handler() -> LogHandler {
    Box::new(|severity, text| {
        if severity <= Severity::Warning {
            say(text);
        }
    })
}

/// A memfd with these bytes one after the other, whose length nobody can change any more.
pub(super) fn memfd(name: &str, parts: &[&[u8]]) -> std::io::Result<File> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    for part in parts {
        file.write_all(part)?;
    }
    // Not WRITE as well: before Linux 6.7 that forbids a shared mapping, even one that only reads.
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// Starts a new peak, so that a worker's second build does not report its first one's.
fn reset_peak_rss() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Peak resident memory since [`reset_peak_rss`]; 0 where the system does not say.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")).and_then(|n| n.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
