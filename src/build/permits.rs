//! How many engines are built at once: no more than there are cores, and no more than fit into memory.

use std::sync::{Condvar, Mutex, PoisonError};
use trtc_network::Lowered;

/// Resident memory of a worker besides its network, in bytes: the library, its code generator's work and a small
/// engine (measured with TensorRT-RTX 1.7: 175 MB to 290 MB).
const WORKER_BYTES: u64 = 320 << 20;
/// What the builder holds of each byte of weights: its own copy, the engine, and the engine written out.
const COPIES_OF_WEIGHTS: u64 = 4;
/// What the builder holds of each layer, in bytes (measured: a network of 716 nodes and 33 MB takes 542 MiB).
const LAYER_BYTES: u64 = 256 << 10;
/// Share of the available memory that builds may take.
const SHARE: u64 = 80;

/// Bounds builds that run at the same time.
#[derive(Debug)]
pub(crate) struct Permits {
    cores: usize,
    memory_bytes: u64,
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Running {
    builds: usize,
    memory_bytes: u64,
}

/// Leave to build, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    permits: &'a Permits,
    memory_bytes: u64,
}

impl Permits {
    /// For this machine as it is now.
    pub fn of_machine() -> Permits {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Permits::new(cores, available_bytes().unwrap_or(u64::MAX) / 100 * SHARE)
    }

    /// At most `cores` builds in `memory_bytes`; one always runs, whatever it takes.
    pub fn new(cores: usize, memory_bytes: u64) -> Permits {
        Permits { cores: cores.max(1), memory_bytes, running: Mutex::default(), ended: Condvar::new() }
    }

    /// Builds that may run at once.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// Waits until a build of so many bytes may run.
    pub fn acquire(&self, memory_bytes: u64) -> Permit<'_> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let must_wait = |running: &mut Running| {
            let fits = running.memory_bytes.saturating_add(memory_bytes) <= self.memory_bytes;
            running.builds > 0 && (running.builds >= self.cores || !fits)
        };
        let mut running = self.ended.wait_while(running, must_wait).unwrap_or_else(PoisonError::into_inner);
        running.builds += 1;
        running.memory_bytes = running.memory_bytes.saturating_add(memory_bytes);
        Permit { permits: self, memory_bytes }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut running = self.permits.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.builds -= 1;
        running.memory_bytes = running.memory_bytes.saturating_sub(self.memory_bytes);
        drop(running);
        self.permits.ended.notify_all();
    }
}

/// Estimated resident memory of a build, in bytes.
pub(crate) fn memory_of(lowered: &Lowered) -> u64 {
    let weights: u64 = lowered.weights.iter().map(|bytes| bytes.len() as u64).sum();
    let layers = lowered.network.layers.len() as u64 * LAYER_BYTES;
    WORKER_BYTES.saturating_add(layers).saturating_add(weights.saturating_mul(COPIES_OF_WEIGHTS))
}

/// Memory that can be had: what the system has available, or what a control group leaves, whichever is less.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let system = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    Some(system.min(group_bytes().unwrap_or(u64::MAX)))
}

/// What the control group of this process has left (version 2; inside a container it is the root of the tree).
fn group_bytes() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = std::path::Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let number = |file: &str| std::fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number("memory.max")?, number("memory.current")?);
    // The page cache counts as used, but goes when memory is wanted.
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::Permits;
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
        time::Duration,
    };

    /// The largest number of holders at once when `n` threads want `bytes` each.
    fn most_at_once(permits: &Permits, n: usize, bytes: u64) -> usize {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..n {
                scope.spawn(|| {
                    let _permit = permits.acquire(bytes);
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(20));
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        most.load(Ordering::SeqCst)
    }

    #[test]
    fn cores_and_memory_bound_what_runs_at_once() {
        assert!(most_at_once(&Permits::new(3, u64::MAX), 8, 1) <= 3);
        assert!(most_at_once(&Permits::new(8, 20), 6, 10) <= 2);
        // A build that is larger than all memory runs alone.
        assert_eq!(most_at_once(&Permits::new(8, 20), 4, 100), 1);
        assert_eq!(most_at_once(&Permits::new(0, 0), 2, 1), 1);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let permits = Permits::of_machine();
        assert!(permits.cores() >= 1 && permits.memory_bytes > 1 << 20);
    }
}
