//! Frames on a stream socket: a length, descriptors, JSON.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    time::Instant,
};
use trtc_bundle::Target;

/// Descriptors that one message carries; the kernel takes 253.
const BATCH: usize = 64;
/// No network is this long; a larger length is garbage.
const LONGEST_JSON: u64 = 1 << 32;

/// Where the bytes of one block of weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Blob {
    /// Which of the frame's descriptors.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 for an empty constant, which has no file.
    pub len: u64,
}

/// One build. `N` is the network, borrowed on one side and owned on the other.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request<N> {
    pub library: PathBuf,
    pub target: Target,
    pub workspace_bytes: Option<u64>,
    pub max_threads: Option<u32>,
    pub tf32: bool,
    pub network: N,
    pub blobs: Vec<Blob>,
    #[cfg(debug_assertions)]
    #[serde(default)]
    pub inject: Vec<super::InjectAt>,
}

/// What became of it. `Built` comes with one descriptor: the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Response {
    Built { build_s: f64, peak_rss_bytes: u64, library_version: String },
    Refused { words: Vec<String>, nodes: Vec<String> },
    Fault { node: String, what: String },
    Missing { why: String },
    Invalid { what: String },
}

/// One end of the socket.
#[derive(Debug)]
pub(super) struct Channel {
    socket: UnixStream,
    deadline: Option<Instant>,
}

impl Channel {
    pub fn new(socket: UnixStream) -> Channel {
        Channel { socket, deadline: None }
    }

    /// From now on nothing waits longer than until `deadline`; the error is then [`io::ErrorKind::TimedOut`].
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    fn patience(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.set_write_timeout(Some(left))
    }

    /// Sends one frame.
    pub fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let json = serde_json::to_vec(message)?;
        let mut head = [0u8; 16];
        head[..8].copy_from_slice(&(json.len() as u64).to_le_bytes());
        head[8..].copy_from_slice(&(fds.len() as u64).to_le_bytes());
        self.write(&head)?;
        for batch in fds.chunks(BATCH) {
            self.patience()?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(batch)) {
                return Err(io::Error::other("descriptors do not fit into a message"));
            }
            let sent = rustix::io::retry_on_intr(|| {
                sendmsg(&self.socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)
            });
            sent.map_err(|e| timed_out(e.into()))?;
        }
        self.write(&json)
    }

    /// Receives one frame; `None` when the other side has gone.
    pub fn receive<T: for<'de> Deserialize<'de>>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut head = [0u8; 16];
        if !self.read(&mut head)? {
            return Ok(None);
        }
        let [json_len, fd_count] = [0, 8].map(|at| {
            let mut number = [0u8; 8];
            number.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(number)
        });
        if json_len > LONGEST_JSON || fd_count > 1 << 20 {
            return Err(garbage("a frame of impossible length"));
        }
        let mut fds = Vec::new();
        while (fds.len() as u64) < fd_count {
            self.receive_fds(&mut fds)?;
        }
        let mut json = vec![0u8; json_len as usize];
        if !self.read(&mut json)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some((serde_json::from_slice(&json)?, fds)))
    }

    fn receive_fds(&self, into: &mut Vec<OwnedFd>) -> io::Result<()> {
        self.patience()?;
        let before = into.len();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0u8];
        let got = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut byte)];
            recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        });
        let got = got.map_err(|e| timed_out(e.into()))?;
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(garbage("descriptors were cut off (is the limit of open files too low?)"));
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                into.extend(fds);
            }
        }
        if into.len() == before { Err(garbage("a message without its descriptors")) } else { Ok(()) }
    }

    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.patience()?;
            match (&self.socket).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(timed_out(e)),
            }
        }
        Ok(())
    }

    /// Fills `buffer`; `false` when the other side has gone before the first byte.
    fn read(&self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            self.patience()?;
            match (&self.socket).read(rest) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset && done == 0 => return Ok(false),
                Err(e) => return Err(timed_out(e)),
            }
        }
        Ok(true)
    }
}

fn garbage(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A socket's timeout reads as "would block".
fn timed_out(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::fd::AsFd,
        time::{Duration, Instant},
    };

    fn pair() -> (Channel, Channel) {
        let (a, b) = UnixStream::pair().unwrap();
        (Channel::new(a), Channel::new(b))
    }

    #[test]
    fn frames_keep_their_descriptors_apart() {
        let (a, b) = pair();
        let files: Vec<_> = (0..150).map(|_| tempfile::tempfile().unwrap()).collect();
        for (k, file) in files.iter().enumerate() {
            let mut file = file;
            write!(file, "{k}").unwrap();
        }
        let fds: Vec<_> = files.iter().map(|f| f.as_fd()).collect();
        a.send(&"first", &fds[..149]).unwrap();
        a.send(&"second", &fds[149..]).unwrap();
        a.send(&"third", &[]).unwrap();
        drop(a);
        let mut seen = 0;
        for (text, count) in [("first", 149), ("second", 1), ("third", 0)] {
            let (json, fds) = b.receive::<String>().unwrap().unwrap();
            assert_eq!((json.as_str(), fds.len()), (text, count));
            for fd in fds {
                let map = trtc_bundle::MappedFile::from_fd(fd, "-").unwrap();
                assert_eq!(&map.bytes()[..], seen.to_string().as_bytes());
                seen += 1;
            }
        }
        assert!(b.receive::<String>().unwrap().is_none());
    }

    #[test]
    fn waiting_ends_at_the_deadline() {
        let (mut a, _b) = pair();
        a.set_deadline(Some(Instant::now() + Duration::from_millis(30)));
        assert_eq!(a.receive::<String>().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(a.send(&"x".repeat(1 << 22), &[]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn half_a_frame_is_an_error() {
        let (a, b) = pair();
        a.write(&[9; 3]).unwrap();
        drop(a);
        assert_eq!(b.receive::<String>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (a, b) = pair();
        a.write(&[255; 16]).unwrap();
        assert_eq!(b.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
