//! The parent's side.

use super::{
    MARK, SUBCOMMAND,
    serve::memfd,
    wire::{Blob, Channel, Request, Response},
};
use bytes::Bytes;
use rustix::fs::{MemfdFlags, OFlags};
use std::{
    collections::HashMap,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::FileExt, net::UnixStream, process::CommandExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use trtc_bundle::{MappedFile, Target};
use trtc_network::{Fault, Lowered};

/// What to build.
#[derive(Clone, Copy, Debug)]
pub struct BuildRequest<'a> {
    /// Network and weights.
    pub lowered: &'a Lowered,
    /// Product, version and compute capabilities.
    pub target: &'a Target,
}

/// How to build.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildOptions {
    /// The library, as [`trtc_tensorrt::locate()`] finds it.
    pub library: PathBuf,
    /// Wall-clock limit of one build, loading the library included.
    pub time_limit: Duration,
    /// The `trtc` executable. Default: this one, or one beside it.
    pub executable: Option<PathBuf>,
    /// Stack of the builder's thread, in bytes. The builder recurses.
    pub stack_bytes: usize,
    /// Let the worker write to this process's stderr instead of keeping its log.
    pub verbose: bool,
    /// Scratch memory that a layer may use, in bytes.
    pub workspace_bytes: Option<u64>,
    /// Threads of the builder.
    pub max_threads: Option<u32>,
    /// Whether products of f32 may round their operands to TF32.
    pub tf32: bool,
    /// What makes workers die, in tests.
    #[cfg(debug_assertions)]
    pub inject: Vec<super::InjectAt>,
}

impl BuildOptions {
    /// Ten minutes a build, 512 MiB of stack.
    pub fn new(library: impl Into<PathBuf>) -> BuildOptions {
        BuildOptions {
            library: library.into(),
            time_limit: Duration::from_secs(600),
            executable: None,
            stack_bytes: 512 << 20,
            verbose: false,
            workspace_bytes: None,
            max_threads: None,
            tf32: false,
            #[cfg(debug_assertions)]
            inject: Vec::new(),
        }
    }
}

/// A built engine.
#[derive(Clone, Debug)]
pub struct EngineOutput {
    /// The engine, mapped from the memfd that the worker wrote.
    pub engine: MappedFile,
    /// Time in the builder, in seconds, without loading the library.
    pub build_s: f64,
    /// Peak resident memory of the worker during the build.
    pub peak_rss_bytes: u64,
    /// Version of the library that built it.
    pub library_version: String,
}

/// Why there is no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerFailure {
    /// The builder refused the network.
    #[error("the builder refused: {}", .words.join("; "))]
    Refused {
        /// Its own words.
        words: Vec<String>,
        /// Source nodes that the words name.
        nodes: Vec<String>,
    },
    /// A layer that TensorRT sees otherwise than the network says: a broken promise of ours.
    #[error("{0}")]
    Fault(Fault),
    /// The worker died.
    #[error("the builder crashed ({how}){}", said(.log))]
    Crashed {
        /// Signal or exit code.
        how: String,
        /// Last lines of its log.
        log: String,
    },
    /// The time limit passed.
    #[error("the builder took longer than {} s", .limit.as_secs_f64())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The library is missing or of another version.
    #[error("{why}")]
    Missing {
        /// File that was to be opened.
        library: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The worker could not be started.
    #[error("build worker: {0}")]
    Start(String),
    /// The worker could not be understood.
    #[error("build worker: {0}")]
    Protocol(String),
}

fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; its last words: {log}") }
}

/// Builds one engine in a worker of its own. `files` are the files that weights may be slices of.
///
/// # Errors
/// [`WorkerFailure`].
pub fn build(
    request: BuildRequest<'_>,
    files: &[MappedFile],
    options: &BuildOptions,
) -> Result<EngineOutput, WorkerFailure> {
    Worker::new(options.clone()).build(request, files)
}

/// A worker process, started by the first request and again by the first one after it died.
#[derive(Debug)]
pub struct Worker {
    options: BuildOptions,
    process: Option<Process>,
}

impl Worker {
    /// Starts nothing yet.
    pub fn new(options: BuildOptions) -> Worker {
        Worker { options, process: None }
    }

    /// Makes the worker die at the next requests, for tests.
    #[cfg(debug_assertions)]
    pub fn set_inject(&mut self, inject: Option<super::Inject>) {
        let at = |how| super::InjectAt { nodes: Vec::new(), how };
        self.options.inject = inject.map(at).into_iter().collect();
    }

    /// Builds one engine. Weights that are slices of `files` are not copied.
    ///
    /// # Errors
    /// [`WorkerFailure`]; after each of them the worker can be used again.
    pub fn build(
        &mut self,
        request: BuildRequest<'_>,
        files: &[MappedFile],
    ) -> Result<EngineOutput, WorkerFailure> {
        self.build_within(request, files, self.options.time_limit)
    }

    /// As [`Worker::build`], with another time limit.
    ///
    /// # Errors
    /// As [`Worker::build`].
    pub fn build_within(
        &mut self,
        request: BuildRequest<'_>,
        files: &[MappedFile],
        time_limit: Duration,
    ) -> Result<EngineOutput, WorkerFailure> {
        let deadline = Instant::now() + time_limit;
        let placed = Placed::new(&request.lowered.weights, files)
            .map_err(|e| WorkerFailure::Protocol(format!("weights cannot be handed over: {e}")))?;
        // A process that died while idle is no fault of this request.
        if let Some(process) = &mut self.process
            && !matches!(process.child.try_wait(), Ok(None))
        {
            self.process = None;
        }
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.options)?,
        };
        process.channel.set_deadline(Some(deadline));
        process.forget_log();
        let message = Request {
            library: self.options.library.clone(),
            target: request.target.clone(),
            workspace_bytes: self.options.workspace_bytes,
            max_threads: self.options.max_threads,
            tf32: self.options.tf32,
            network: &request.lowered.network,
            blobs: placed.blobs.clone(),
            #[cfg(debug_assertions)]
            inject: self.options.inject.clone(),
        };
        let sent = process.channel.send(&message, &placed.fds());
        let answer = sent.and_then(|()| process.channel.receive::<Response>());
        let (response, fds) = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(process.obituary()),
            Err(e) => {
                return Err(match e.kind() {
                    io::ErrorKind::TimedOut => WorkerFailure::TimedOut { limit: time_limit },
                    io::ErrorKind::BrokenPipe
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::UnexpectedEof => process.obituary(),
                    _ => WorkerFailure::Protocol(e.to_string()),
                });
            }
        };
        self.process = Some(process);
        match response {
            Response::Built { build_s, peak_rss_bytes, library_version } => {
                let engine = fds.into_iter().next().ok_or_else(|| io::Error::other("no engine came"));
                let engine = engine.and_then(|fd| MappedFile::from_fd(fd, "engine"));
                let engine = engine.map_err(|e| WorkerFailure::Protocol(e.to_string()))?;
                Ok(EngineOutput { engine, build_s, peak_rss_bytes, library_version })
            }
            Response::Refused { words, nodes } => Err(WorkerFailure::Refused { words, nodes }),
            Response::Fault { node, what } => Err(WorkerFailure::Fault(Fault { node, what })),
            Response::Missing { why } => {
                Err(WorkerFailure::Missing { library: self.options.library.clone(), why })
            }
            Response::Invalid { what } => Err(WorkerFailure::Protocol(what)),
        }
    }
}

/// Workers for several threads: each build takes an idle one or starts another.
#[derive(Debug)]
pub struct WorkerPool {
    options: BuildOptions,
    idle: Mutex<Vec<Worker>>,
}

impl WorkerPool {
    /// Starts nothing yet.
    pub fn new(options: BuildOptions) -> WorkerPool {
        WorkerPool { options, idle: Mutex::new(Vec::new()) }
    }

    /// As [`Worker::build`]; as many workers live as builds ever overlapped.
    ///
    /// # Errors
    /// [`WorkerFailure`].
    pub fn build(
        &self,
        request: BuildRequest<'_>,
        files: &[MappedFile],
    ) -> Result<EngineOutput, WorkerFailure> {
        self.build_within(request, files, self.options.time_limit)
    }

    /// As [`WorkerPool::build`], with another time limit.
    ///
    /// # Errors
    /// [`WorkerFailure`].
    pub fn build_within(
        &self,
        request: BuildRequest<'_>,
        files: &[MappedFile],
        time_limit: Duration,
    ) -> Result<EngineOutput, WorkerFailure> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = idle().pop();
        let mut worker = worker.unwrap_or_else(|| Worker::new(self.options.clone()));
        let result = worker.build_within(request, files, time_limit);
        idle().push(worker);
        result
    }
}

/// Weights as descriptors and ranges.
struct Placed<'a> {
    files: Vec<&'a MappedFile>,
    /// Computed weights, one after the other; the last descriptor.
    gathered: Option<File>,
    blobs: Vec<Blob>,
}

impl<'a> Placed<'a> {
    fn new(weights: &[Bytes], files: &'a [MappedFile]) -> io::Result<Placed<'a>> {
        const ALIGNMENT: usize = 64;
        let mut used: Vec<&MappedFile> = Vec::new();
        // (index into `blobs`, offset) of what has to be gathered, and where equal slices already went.
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut seen: HashMap<(usize, usize), u64> = HashMap::new();
        let mut gathered_len = 0usize;
        let mut computed = Vec::new();
        let mut blobs = Vec::with_capacity(weights.len());
        for (k, bytes) in weights.iter().enumerate() {
            let len = bytes.len() as u64;
            let mut blob = Blob { file: 0, offset: 0, len };
            let place = files.iter().find_map(|file| file.offset_of(bytes).map(|range| (file, range.start)));
            match place {
                _ if bytes.is_empty() => {}
                Some((file, offset)) => {
                    let same = |other: &&MappedFile| std::ptr::eq(*other, file);
                    let index = used.iter().position(same).unwrap_or_else(|| {
                        used.push(file);
                        used.len() - 1
                    });
                    blob = Blob { file: index as u32, offset, len };
                }
                None => {
                    computed.push(k);
                    let key = (bytes.as_ptr() as usize, bytes.len());
                    blob.offset = *seen.entry(key).or_insert_with(|| {
                        let padding = gathered_len.next_multiple_of(ALIGNMENT) - gathered_len;
                        parts.extend([&[0u8; ALIGNMENT][..padding], bytes]);
                        let offset = gathered_len + padding;
                        gathered_len = offset + bytes.len();
                        offset as u64
                    });
                }
            }
            blobs.push(blob);
        }
        for k in computed {
            if let Some(blob) = blobs.get_mut(k) {
                blob.file = used.len() as u32;
            }
        }
        let gathered = if parts.is_empty() { None } else { Some(memfd("weights", &parts)?) };
        Ok(Placed { files: used, gathered, blobs })
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let gathered = self.gathered.iter().map(|file| file.as_fd());
        self.files.iter().map(|file| file.file().as_fd()).chain(gathered).collect()
    }
}

#[derive(Debug)]
struct Process {
    child: Child,
    channel: Channel,
    /// stdout and stderr of the child; `None` when verbose.
    log: Option<File>,
}

impl Process {
    fn start(options: &BuildOptions) -> Result<Process, WorkerFailure> {
        if std::env::var_os(MARK).is_some() {
            return Err(WorkerFailure::Start("a build worker cannot start another one".to_owned()));
        }
        let executable = match &options.executable {
            Some(path) => path.clone(),
            None => default_executable().ok_or_else(|| {
                WorkerFailure::Start("no `trtc` executable beside this program: name one".to_owned())
            })?,
        };
        let cannot =
            |e: io::Error| WorkerFailure::Start(format!("{} cannot be started: {e}", executable.display()));
        let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
        let mut command = Command::new(&executable);
        command.arg0("trtc").arg(SUBCOMMAND).arg(options.stack_bytes.to_string()).env(MARK, "1");
        // The builder writes it into engines, where it would override what the request says.
        command.env_remove("NVIDIA_TF32_OVERRIDE");
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let log = if options.verbose {
            let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(cannot)?;
            command.stdout(Stdio::from(stderr)).stderr(Stdio::inherit());
            None
        } else {
            let log = log_file().map_err(cannot)?;
            command.stdout(Stdio::from(log.try_clone().map_err(cannot)?));
            command.stderr(Stdio::from(log.try_clone().map_err(cannot)?));
            Some(log)
        };
        let child = command.spawn().map_err(cannot)?;
        Ok(Process { child, channel: Channel::new(ours), log })
    }

    fn forget_log(&self) {
        if let Some(log) = &self.log {
            // Best effort: an old line in a new obituary is no harm.
            let _ = log.set_len(0);
        }
    }

    /// What to say of a worker that closed its socket.
    fn obituary(mut self) -> WorkerFailure {
        // The socket closes before the process is quite dead.
        let status = self.child.wait();
        WorkerFailure::Crashed {
            how: status.map_or_else(|e| e.to_string(), how_it_ended),
            log: self.last_words(),
        }
    }

    fn last_words(&self) -> String {
        const LINES: usize = 5;
        const BYTES: u64 = 4096;
        let Some(log) = &self.log else { return String::new() };
        let len = log.metadata().map_or(0, |m| m.len());
        let start = len.saturating_sub(BYTES);
        let mut bytes = vec![0; (len - start) as usize];
        if log.read_exact_at(&mut bytes, start).is_err() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join(" | ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Only this child; waiting takes it out of the process table.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file in memory that every writer appends to.
fn log_file() -> io::Result<File> {
    let fd = rustix::fs::memfd_create("build-worker log", MemfdFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&fd, OFlags::APPEND)?;
    Ok(File::from(fd))
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(6), _) => "signal 6, SIGABRT".to_owned(),
        (Some(7), _) => "signal 7, SIGBUS".to_owned(),
        (Some(8), _) => "signal 8, SIGFPE".to_owned(),
        (Some(9), _) => "signal 9, SIGKILL: out of memory?".to_owned(),
        (Some(11), _) => "signal 11, SIGSEGV".to_owned(),
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "no status".to_owned(),
    }
}

/// This executable when it is `trtc`; otherwise the `trtc` beside it (or beside the `deps` folder that it is in).
fn default_executable() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    if own.file_stem().is_some_and(|name| name == "trtc") {
        // Right even when the file has been replaced meanwhile.
        let link = Path::new("/proc/self/exe");
        return Some(if link.exists() { link.to_owned() } else { own });
    }
    let folder = own.parent()?;
    let folder = if folder.ends_with("deps") { folder.parent()? } else { folder };
    Some(folder.join("trtc")).filter(|path| path.is_file())
}
