//! How a host graph names the bundle that it lies in.
//!
//! ONNX keeps the place of external weights as `{location: file name, offset, length}`. The file's name is not known until
//! the bundle is opened, and changes when the file is renamed; so graphs are stored with a location of fixed length, and
//! a reader writes `./././NAME` of the same length over it. It needs no protobuf for that.

/// Length in bytes of every location: the longest file name of Linux (255) and what is needed to fill up any shorter one.
pub const LOCATION_LEN: usize = 258;

const PLACEHOLDER: [u8; LOCATION_LEN] = placeholder();

/// The location that graphs handed to [`crate::BundleWriter::add_graph`] give for weights in the bundle: [`LOCATION_LEN`]
/// bytes, replaced by the real file name when a bundle is opened.
pub const LOCATION: &str = match std::str::from_utf8(&PLACEHOLDER) {
    Ok(text) => text,
    Err(_) => "",
};

const fn placeholder() -> [u8; LOCATION_LEN] {
    let name = *b"name-of-the.trtc";
    let mut text = [b'/'; LOCATION_LEN];
    let mut k = 0;
    while k < LOCATION_LEN {
        if k >= LOCATION_LEN - name.len() {
            text[k] = name[k + name.len() - LOCATION_LEN];
        } else if k % 2 == 0 {
            text[k] = b'.';
        }
        k += 1;
    }
    text
}

/// The location of a file called `name`; `None` when the name is longer than a file's name can be.
pub(crate) fn location_of(name: &str) -> Option<[u8; LOCATION_LEN]> {
    let fill = LOCATION_LEN.checked_sub(name.len()).filter(|&fill| fill >= 3)?;
    let mut text = [b'/'; LOCATION_LEN];
    text[fill..].copy_from_slice(name.as_bytes());
    // An odd fill ends in `.//`, which is the same folder.
    let dots = fill - fill % 2;
    text[..dots].iter_mut().step_by(2).for_each(|byte| *byte = b'.');
    Some(text)
}

/// Offsets in `graph` of the values of `location` entries that hold [`LOCATION`].
pub(crate) fn find_locations(graph: &[u8]) -> Vec<u64> {
    // StringStringEntryProto { key (1) = "location", value (2) = 258 bytes }.
    let mut entry = b"\x0a\x08location\x12\x82\x02".to_vec();
    let head = entry.len();
    entry.extend_from_slice(&PLACEHOLDER);
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) =
        graph[from..].windows(entry.len()).position(|window| window[0] == entry[0] && window == entry)
    {
        found.push((from + start + head) as u64);
        from += start + entry.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{LOCATION, LOCATION_LEN, find_locations, location_of};
    use std::path::Path;

    #[test]
    fn every_possible_name_fits_and_stays_in_the_folder() {
        assert_eq!(LOCATION.len(), LOCATION_LEN);
        assert_eq!(location_of("name-of-the.trtc").as_ref().map(|text| &text[..]), Some(LOCATION.as_bytes()));
        for len in 1..=255 {
            let name = "n".repeat(len);
            let text = location_of(&name).unwrap();
            let path = Path::new(std::str::from_utf8(&text).unwrap());
            assert!(path.is_relative());
            assert_eq!(path.file_name().unwrap().to_str(), Some(&name[..]), "{}", path.display());
            assert_eq!(path.components().count(), 2, "{}", path.display()); // `.` and the name
        }
        assert_eq!(location_of(&"n".repeat(256)), None);
    }

    #[test]
    fn only_location_entries_are_found() {
        let entry = [&b"\x0a\x08location\x12\x82\x02"[..], LOCATION.as_bytes()].concat();
        let graph = [LOCATION.as_bytes(), &entry[..], b"xyz", &entry[..]].concat();
        assert_eq!(find_locations(&graph), [258 + 13, 258 + 271 + 3 + 13]);
        assert_eq!(find_locations(b""), [0u64; 0]);
    }
}
