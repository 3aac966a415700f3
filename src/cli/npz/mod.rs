//! `.npz` files: zip archives of `.npy` arrays, stored or deflated, as `numpy.savez` and `savez_compressed` write them.
//!
//! A file may come from a stranger: what a header asks for is checked against the data that is there and against the
//! memory of this machine before anything large is allocated.

mod npy;
mod values;

pub use npy::Array;
#[cfg(test)]
pub use npy::NumpyType;
pub use values::{array_of, value_of};

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, Write},
    path::Path,
};
use zip::{CompressionMethod, ZipArchive, ZipWriter, result::ZipError, write::SimpleFileOptions};

/// Memory that a read may ask for when the system does not say how much there is.
const FALLBACK_LIMIT_BYTES: u64 = 16 << 30;
/// Deflate cannot shrink data further than 1032 to 1.
const DEFLATE_LIMIT: u64 = 1032;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NpzError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("not an .npz file: {0}")]
    NotNpz(String),
    #[error("array `{name}`: {why}")]
    Array { name: String, why: String },
}

/// Reads every array of a file, in the file's order, by name.
pub fn read(path: &Path) -> Result<Vec<(String, Array)>, NpzError> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(NpzError::NotNpz("it is not a regular file".into()));
    }
    read_from(BufReader::new(file), available_bytes())
}

fn read_from(file: impl Read + Seek, mut limit: u64) -> Result<Vec<(String, Array)>, NpzError> {
    let mut archive = ZipArchive::new(file).map_err(|error| NpzError::NotNpz(words(error)))?;
    let mut arrays: Vec<(String, Array)> = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive
            .by_index(index)
            .map_err(|error| NpzError::Array { name: format!("number {index}"), why: words(error) })?;
        let name = entry.name().to_owned();
        let fail = |why: String| NpzError::Array { name: name.clone(), why };
        let Some(key) = name.strip_suffix(".npy") else {
            return Err(fail("an .npz file holds .npy files only".into()));
        };
        if arrays.iter().any(|(known, _)| known == key) {
            return Err(fail("stands in the file twice".into()));
        }
        if entry.size() > entry.compressed_size().saturating_mul(DEFLATE_LIMIT).saturating_add(1024) {
            let (small, large) = (entry.compressed_size(), entry.size());
            return Err(fail(format!("{small} bytes cannot unpack to {large}")));
        }
        let array = npy::read(&mut entry, limit).map_err(fail)?;
        limit = limit.saturating_sub(array.bytes.len() as u64);
        arrays.push((key.to_owned(), array));
    }
    Ok(arrays)
}

/// Writes arrays, stored. The file appears whole or not at all.
pub fn write(path: &Path, arrays: &[(String, Array)]) -> Result<(), NpzError> {
    let mut file = super::files::temporary(path)?;
    write_to(&mut BufWriter::new(file.as_file_mut()), arrays)?;
    super::files::persist(file, path)?;
    Ok(())
}

fn write_to(file: &mut (impl Write + Seek), arrays: &[(String, Array)]) -> Result<(), NpzError> {
    let mut archive = ZipWriter::new(file);
    let io = |error: ZipError| std::io::Error::other(words(error));
    for (name, array) in arrays {
        let large = array.bytes.len() as u64 >= (u32::MAX - (1 << 16)) as u64;
        let options =
            SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(large);
        archive.start_file(format!("{name}.npy"), options).map_err(io)?;
        archive.write_all(&npy::header(array))?;
        archive.write_all(&array.bytes)?;
    }
    archive.finish().map_err(io)?.flush()?;
    Ok(())
}

fn words(error: ZipError) -> String {
    match error {
        ZipError::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Memory that the system could give.
fn available_bytes() -> u64 {
    let kib = |text: String| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(kib);
    available.map_or(FALLBACK_LIMIT_BYTES, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::{Array, NumpyType, npy, read_from, write_to};
    use std::io::{Cursor, Write};
    use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

    fn packed(method: CompressionMethod, entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in entries {
            archive.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap().into_inner()
    }

    fn refusal(file: &[u8]) -> String {
        read_from(Cursor::new(file), 1 << 20).unwrap_err().to_string()
    }

    fn array(ty: NumpyType, dims: &[usize], bytes: &[u8]) -> Array {
        Array { ty, dims: dims.to_vec(), bytes: bytes.to_vec() }
    }

    #[test]
    fn what_was_written_is_read() {
        let arrays = vec![
            ("x".to_owned(), array(NumpyType::Float(4), &[2, 1], &[0, 0, 128, 63, 0, 0, 0, 64])),
            ("a/b:0".to_owned(), array(NumpyType::Bool, &[], &[1])),
            ("empty".to_owned(), array(NumpyType::Int(8), &[0, 3], &[])),
        ];
        let mut file = Cursor::new(Vec::new());
        write_to(&mut file, &arrays).unwrap();
        assert_eq!(read_from(file, 1 << 20).unwrap(), arrays);
    }

    #[test]
    fn deflated_arrays_are_read() {
        let zeros = array(NumpyType::Uint(1), &[4000], &[0; 4000]);
        let npy = [&npy::header(&zeros)[..], &zeros.bytes].concat();
        let file = packed(CompressionMethod::Deflated, &[("z.npy", &npy)]);
        assert!(file.len() < 500);
        assert_eq!(read_from(Cursor::new(file), 1 << 20).unwrap(), [("z".to_owned(), zeros)]);
    }

    #[test]
    fn hostile_files_are_refused_in_words() {
        assert!(refusal(b"").contains("not an .npz"));
        assert!(refusal(&[7; 100]).contains("not an .npz"));
        let one = array(NumpyType::Float(4), &[1], &[0; 4]);
        let good = [&npy::header(&one)[..], &one.bytes].concat();
        let stored = |bytes: &[u8]| packed(CompressionMethod::Stored, &[("x.npy", bytes)]);
        let mut cut = stored(&good);
        cut.truncate(cut.len() - 30);
        assert!(refusal(&cut).contains("not an .npz"));
        assert!(refusal(&packed(CompressionMethod::Stored, &[("x.txt", b"")])).contains(".npy files only"));
        assert!(refusal(&stored(b"text")).contains("not a .npy"));
        assert!(refusal(&stored(&good[..good.len() - 1])).contains("3 bytes of data"));
        assert!(refusal(&stored(&[&good[..], b"x"].concat())).contains("5 bytes of data"));
        // A header that asks for more than there is memory, and a bomb that really unpacks to it.
        let huge = array(NumpyType::Float(8), &[1 << 40], &[]);
        assert!(refusal(&stored(&npy::header(&huge))).contains("memory"));
        let wrap = array(NumpyType::Float(8), &[usize::MAX, 8], &[]);
        assert!(refusal(&stored(&npy::header(&wrap))).contains("memory"));
        let bomb = array(NumpyType::Uint(1), &[4 << 20], &[0; 4 << 20]);
        let bomb = [&npy::header(&bomb)[..], &bomb.bytes].concat();
        assert!(refusal(&packed(CompressionMethod::Deflated, &[("x.npy", &bomb)])).contains("memory"));
        // Damage to the data is seen by its checksum.
        let mut damaged = stored(&good);
        let at = damaged.windows(4).position(|window| window == b"NUMP").unwrap() + good.len() - 2;
        damaged[at] ^= 1;
        assert!(refusal(&damaged).to_lowercase().contains("checksum"), "{}", refusal(&damaged));
    }
}
