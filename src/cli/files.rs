//! Files that the command line writes: whole or not at all.

use std::{
    fs::Permissions,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// Writes `bytes` to `path`: a device or pipe in place, a file by renaming.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_special(path) {
        return std::fs::OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    let mut file = temporary(path)?;
    file.write_all(bytes)?;
    persist(file, path)
}

/// A new file beside `path`, to become it.
pub fn temporary(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As for any file that a program makes: the user's umask decides who may read it.
    tempfile::Builder::new().prefix(".trtc-").permissions(Permissions::from_mode(0o666)).tempfile_in(folder)
}

/// Gives a finished temporary file its name.
pub fn persist(file: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Something that cannot be replaced by renaming: `/dev/stdout`, a named pipe.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

#[cfg(test)]
mod tests {
    use super::write;

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write(std::path::Path::new("/dev/null"), b"x").unwrap();
        assert!(write(&folder.path().join("no/such"), b"x").is_err());
    }
}
