//! One `.npy` array: format versions 1 to 3, C and Fortran order, either byte order; kept little-endian and in C order.

use std::{fmt, io::Read};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is read, in bytes. numpy itself stops at 10,000.
const HEADER_LIMIT: usize = 1 << 16;

/// An element type of numpy's, with its width in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumpyType {
    Bool,
    Int(usize),
    Uint(usize),
    Float(usize),
    Complex(usize),
    /// Raw bits.
    Void(usize),
    /// Unicode strings of so many code points, four bytes each, filled up with zeros.
    Unicode(usize),
    /// Byte strings of so many bytes, filled up with zeros.
    Bytes(usize),
}

/// An array.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub ty: NumpyType,
    /// Outermost first; empty for a scalar.
    pub dims: Vec<usize>,
    /// Little-endian, row-major, packed.
    pub bytes: Vec<u8>,
}

impl NumpyType {
    /// Bytes of one element.
    pub fn width(self) -> usize {
        match self {
            NumpyType::Bool => 1,
            NumpyType::Unicode(length) => length.saturating_mul(4),
            NumpyType::Int(width)
            | NumpyType::Uint(width)
            | NumpyType::Float(width)
            | NumpyType::Complex(width)
            | NumpyType::Void(width)
            | NumpyType::Bytes(width) => width,
        }
    }

    /// Bytes that change places when the byte order does; 1 for types without one.
    fn swapped(self) -> usize {
        match self {
            NumpyType::Int(width) | NumpyType::Uint(width) | NumpyType::Float(width) => width,
            NumpyType::Complex(width) => width / 2,
            NumpyType::Unicode(_) => 4,
            NumpyType::Bool | NumpyType::Void(_) | NumpyType::Bytes(_) => 1,
        }
    }

    fn descr(self) -> String {
        match self {
            NumpyType::Bool => "|b1".into(),
            NumpyType::Int(1) => "|i1".into(),
            NumpyType::Uint(1) => "|u1".into(),
            NumpyType::Int(width) => format!("<i{width}"),
            NumpyType::Uint(width) => format!("<u{width}"),
            NumpyType::Float(width) => format!("<f{width}"),
            NumpyType::Complex(width) => format!("<c{width}"),
            NumpyType::Void(width) => format!("|V{width}"),
            NumpyType::Unicode(length) => format!("<U{length}"),
            NumpyType::Bytes(length) => format!("|S{length}"),
        }
    }

    /// Reads numpy's notation; says whether the bytes are big-endian.
    fn parse(descr: &str) -> Result<(NumpyType, bool), String> {
        let refuse = || Err(format!("element type '{descr}' is not one that trtc reads"));
        let (big, rest) = match descr.as_bytes().first() {
            Some(b'>') => (true, &descr[1..]),
            Some(b'<' | b'|' | b'=') => (false, &descr[1..]),
            _ => (false, descr),
        };
        let mut letters = rest.chars();
        let (kind, Ok(width)) = (letters.next(), letters.as_str().parse::<usize>()) else {
            if rest.starts_with('O') {
                return Err("it holds Python objects, which trtc does not read".into());
            }
            return refuse();
        };
        let ty = match (kind, width) {
            (Some('b'), 1) => NumpyType::Bool,
            (Some('i'), 1 | 2 | 4 | 8) => NumpyType::Int(width),
            (Some('u'), 1 | 2 | 4 | 8) => NumpyType::Uint(width),
            (Some('f'), 2 | 4 | 8) => NumpyType::Float(width),
            (Some('c'), 8 | 16) => NumpyType::Complex(width),
            (Some('V'), 1..=16) => NumpyType::Void(width),
            // How ml_dtypes writes float8_e5m2.
            (Some('f'), 1) => NumpyType::Void(1),
            (Some('U'), _) => NumpyType::Unicode(width),
            (Some('S'), _) => NumpyType::Bytes(width),
            _ => return refuse(),
        };
        Ok((ty, big))
    }
}

impl fmt::Display for NumpyType {
    /// As numpy names it: `float32`, `uint16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NumpyType::Bool => f.write_str("bool"),
            NumpyType::Int(width) => write!(f, "int{}", width * 8),
            NumpyType::Uint(width) => write!(f, "uint{}", width * 8),
            NumpyType::Float(width) => write!(f, "float{}", width * 8),
            NumpyType::Complex(width) => write!(f, "complex{}", width * 8),
            NumpyType::Void(width) => write!(f, "V{width}"),
            NumpyType::Unicode(length) => write!(f, "U{length}"),
            NumpyType::Bytes(length) => write!(f, "S{length}"),
        }
    }
}

/// The header that goes before the bytes of `array`. The data begins at a multiple of 64 bytes.
pub fn header(array: &Array) -> Vec<u8> {
    let dims: Vec<String> = array.dims.iter().map(usize::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let dict = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        array.ty.descr(),
        dims.join(", ")
    );
    // Only thousands of dims would need the longer length of version 2.
    let start = MAGIC.len() + 4;
    let total = (start + dict.len() + 1).next_multiple_of(64);
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend(((total - start) as u16).to_le_bytes());
    header.extend(dict.as_bytes());
    header.resize(total - 1, b' ');
    header.push(b'\n');
    header
}

/// Reads one array, which must end with the file and take at most `limit` bytes.
pub fn read(file: &mut impl Read, limit: u64) -> Result<Array, String> {
    let mut start = [0; 8];
    let not_npy = |_| "it is not a .npy file".to_owned();
    file.read_exact(&mut start).map_err(not_npy)?;
    if !start.starts_with(MAGIC) {
        return Err("it is not a .npy file".into());
    }
    let cut = |error: std::io::Error| format!("the header cannot be read: {error}");
    let mut length = [0; 4];
    let bytes = match start[6] {
        1 => 2,
        2 | 3 => 4,
        major => return Err(format!("format version {major}.{} is not known", start[7])),
    };
    file.read_exact(&mut length[..bytes]).map_err(cut)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > HEADER_LIMIT {
        return Err(format!("a header of {length} bytes; at most {HEADER_LIMIT} are read"));
    }
    let mut header = vec![0; length];
    file.read_exact(&mut header).map_err(cut)?;
    let header = String::from_utf8(header).map_err(|_| "the header is not text".to_owned())?;
    let Header { descr, fortran, dims } = Header::parse(&header)?;
    let (ty, big) = NumpyType::parse(&descr)?;

    let count = if dims.contains(&0) {
        Some(0)
    } else {
        dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim))
    };
    // Strings of no length take no bytes in the file but some in memory.
    let asked = count.and_then(|count| count.checked_mul(ty.width().max(1))).map(|bytes| bytes as u64);
    let Some(count) = count.filter(|_| asked.is_some_and(|bytes| bytes <= limit)) else {
        return Err(format!("{ty} {dims:?} takes more memory than there is"));
    };
    let needed = count * ty.width();
    // Grows with what is really there.
    let mut bytes = Vec::new();
    let read = file.take(needed as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("the data cannot be read: {error}"))?;
    if bytes.len() != needed {
        let found =
            if bytes.len() > needed { format!("at least {}", bytes.len()) } else { bytes.len().to_string() };
        return Err(format!("{ty} {dims:?} takes {needed} bytes, but there are {found} bytes of data"));
    }
    if big && ty.swapped() > 1 {
        bytes.chunks_exact_mut(ty.swapped()).for_each(<[u8]>::reverse);
    }
    if fortran && dims.len() > 1 {
        bytes = row_major(&bytes, &dims, ty.width());
    }
    Ok(Array { ty, dims, bytes })
}

/// Brings column-major elements into row-major order.
fn row_major(bytes: &[u8], dims: &[usize], width: usize) -> Vec<u8> {
    let strides: Vec<usize> =
        dims.iter().scan(width, |stride, &dim| Some(std::mem::replace(stride, *stride * dim))).collect();
    let mut sorted = Vec::with_capacity(bytes.len());
    let (mut index, mut at) = (vec![0; dims.len()], 0);
    while sorted.len() < bytes.len() {
        sorted.extend_from_slice(&bytes[at..at + width]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= strides[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    sorted
}

struct Header {
    descr: String,
    fortran: bool,
    dims: Vec<usize>,
}

impl Header {
    /// Reads the Python dictionary of a header: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
    fn parse(text: &str) -> Result<Header, String> {
        let mut rest = Text(text);
        let (mut descr, mut fortran, mut dims) = (None, None, None);
        rest.expect("{")?;
        while !rest.take("}") {
            let key = rest.string()?;
            rest.expect(":")?;
            match key {
                "descr" if rest.next_is('[') => {
                    return Err("it holds records with fields, which trtc does not read".into());
                }
                "descr" => descr = Some(rest.string()?.to_owned()),
                "fortran_order" => fortran = Some(rest.bool()?),
                "shape" => dims = Some(rest.tuple()?),
                other => return Err(format!("the header has an unknown key '{other}'")),
            }
            if !rest.take(",") {
                rest.expect("}")?;
                break;
            }
        }
        if !rest.0.trim().is_empty() {
            return Err("the header goes on after its dictionary".into());
        }
        let (Some(descr), Some(fortran), Some(dims)) = (descr, fortran, dims) else {
            return Err("the header must have 'descr', 'fortran_order' and 'shape'".into());
        };
        Ok(Header { descr, fortran, dims })
    }
}

/// What is left of a header.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn take(&mut self, token: &str) -> bool {
        self.0 = self.0.trim_start();
        let rest = self.0.strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn next_is(&self, letter: char) -> bool {
        self.0.trim_start().starts_with(letter)
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) {
            return Ok(());
        }
        let found: String = self.0.chars().take(12).collect();
        Err(format!("the header is damaged: `{token}` is wanted where `{found}` stands"))
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.take("\"") { '"' } else { self.expect("'").map(|()| '\'')? };
        let Some((string, rest)) = self.0.split_once(quote) else {
            return Err("the header is damaged: a string does not end".into());
        };
        self.0 = rest;
        Ok(string)
    }

    fn bool(&mut self) -> Result<bool, String> {
        if self.take("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        let mut dims = Vec::new();
        self.expect("(")?;
        while !self.take(")") {
            self.0 = self.0.trim_start();
            let end = self.0.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(self.0.len());
            let (digits, rest) = self.0.split_at(end);
            let dim = digits.parse().map_err(|_| {
                let found: String = self.0.chars().take(20).collect();
                format!("the header is damaged: a dim is wanted where `{found}` stands")
            })?;
            // Python 2 wrote 3L.
            self.0 = rest.strip_prefix('L').unwrap_or(rest);
            dims.push(dim);
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::{Array, NumpyType, read};

    fn npy(version: u8, dict: &str, data: &[u8]) -> Result<Array, String> {
        let mut file = b"\x93NUMPY".to_vec();
        file.extend([version, 0]);
        match version {
            1 => file.extend((dict.len() as u16).to_le_bytes()),
            _ => file.extend((dict.len() as u32).to_le_bytes()),
        }
        file.extend(dict.as_bytes());
        file.extend(data);
        read(&mut &file[..], 1 << 16)
    }

    #[test]
    fn every_version_and_order_is_read() {
        // numpy.asfortranarray([[1, 2, 3], [4, 5, 6]], 'u1') lies as 1 4 2 5 3 6.
        let dict = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }          \n";
        for version in [1, 2, 3] {
            let array = npy(version, dict, &[1, 4, 2, 5, 3, 6]).unwrap();
            assert_eq!(
                array,
                Array { ty: NumpyType::Uint(1), dims: vec![2, 3], bytes: vec![1, 2, 3, 4, 5, 6] }
            );
        }
        let dict = "{'shape': (2L,), \"descr\": '>i2', 'fortran_order': False}";
        assert_eq!(npy(1, dict, &[1, 2, 3, 4]).unwrap().bytes, [2, 1, 4, 3]);
        let dict = "{'descr': '<f1', 'fortran_order': False, 'shape': ()}";
        assert_eq!(npy(1, dict, &[7]).unwrap().ty, NumpyType::Void(1));
        let dict = "{'descr': '<f8', 'fortran_order': True, 'shape': (1, 2, 2)}";
        let data: Vec<u8> = (0u8..32).collect();
        let places: Vec<u8> =
            npy(1, dict, &data).unwrap().bytes.chunks(8).map(|chunk| chunk[0] / 8).collect();
        assert_eq!(places, [0, 2, 1, 3]);
    }

    #[test]
    fn lying_headers_are_refused_in_words() {
        for (dict, word) in [
            ("{'descr': '|O', 'fortran_order': False, 'shape': ()}", "Python objects"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "records"),
            ("{'descr': '<f16', 'fortran_order': False, 'shape': ()}", "<f16"),
            ("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': ()}", "<M8[ns]"),
            ("{'descr': '<f4', 'fortran_order': False}", "'shape'"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "-1"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3", "`)`"),
            ("{'descr': '<f4', 'fortran_order': 1, 'shape': ()}", "`False`"),
            ("{'descr': '<f4', 'x': 1}", "'x'"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': ()} + 1", "goes on"),
            ("{'descr': '<U0', 'fortran_order': False, 'shape': (99999999999,)}", "memory"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}", "9999"),
            ("", "`{`"),
        ] {
            let error = npy(1, dict, &[]).unwrap_err();
            assert!(error.contains(word), "{dict}: {error}");
        }
        assert!(npy(9, "{}", &[]).unwrap_err().contains("version 9.0"));
        assert!(read(&mut &b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..], 9).unwrap_err().contains("4294967295"));
    }
}
