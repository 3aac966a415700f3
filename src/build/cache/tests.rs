//! Tests of the engine cache.

use super::{Cache, HEAD_LEN, Settings, cache_use};
use crate::build::hashing::Hashes;
use std::{
    path::Path,
    time::{Duration, SystemTime},
};
use trtc_bundle::{DType, Hash, Target};
use trtc_network::{InputProfile, Layer, Lowered, NetworkBuilder, layer::*};

struct Parts {
    name: &'static str,
    node: &'static str,
    dims: Vec<i64>,
    bias: f32,
    kind: ActivationKind,
    alpha: f32,
    profile: Option<[i64; 3]>,
    output: &'static str,
}

fn parts() -> Parts {
    Parts {
        name: "engine_0",
        node: "act",
        dims: vec![4],
        bias: 1.0,
        kind: ActivationKind::Clip,
        alpha: 0.0,
        profile: None,
        output: "y",
    }
}

fn lowered(parts: Parts) -> Lowered {
    let mut b = NetworkBuilder::new(parts.name);
    b.begin_node(parts.node);
    let x = b.add_input("x", DType::F32, parts.dims);
    let bias = b.constant(DType::F32, vec![1], parts.bias.to_le_bytes().to_vec().into());
    let sum = b.elementwise(x, bias, ElementWiseOp::Sum);
    let y = b.one(Layer::Activation { x: sum, kind: parts.kind, alpha: parts.alpha, beta: f32::INFINITY });
    b.mark_output(y, parts.output);
    if let Some(range) = parts.profile {
        b.add_profile(InputProfile { name: "x".into(), dims: Some(range.map(|n| vec![n])), values: None });
    }
    b.finish().unwrap()
}

fn key_of(lowered: &Lowered, target: &str, library: &[u8], settings: Settings) -> Hash {
    let target: Target = target.parse().unwrap();
    Cache::key(lowered, &target, Hash::of(library), settings, &Hashes::new(&[])).unwrap()
}

fn key(parts: Parts) -> Hash {
    key_of(&lowered(parts), "rtx-1.7:sm89", b"library", Settings::default())
}

fn cache(folder: &Path, limit: u64) -> Cache {
    Cache::open(&folder.join("cache"), limit).unwrap()
}

#[test]
fn all_that_decides_an_engine_changes_its_name() {
    let same = || lowered(parts());
    let plain = key(parts());
    assert_eq!(plain, key(parts()));
    // The number of its segment decides nothing.
    assert_eq!(plain, key(Parts { name: "engine_7", ..parts() }));
    let settings = Settings { workspace_bytes: Some(1 << 20), ..Settings::default() };
    let others = [
        key(Parts { dims: vec![5], ..parts() }),
        key(Parts { dims: vec![-1], profile: Some([1, 2, 3]), ..parts() }),
        key(Parts { dims: vec![-1], profile: Some([1, 2, 4]), ..parts() }),
        key(Parts { bias: 2.0, ..parts() }),
        key(Parts { kind: ActivationKind::HardSigmoid, ..parts() }),
        key(Parts { alpha: f32::NEG_INFINITY, ..parts() }),
        key(Parts { output: "z", ..parts() }),
        key(Parts { node: "other", ..parts() }),
        key_of(&same(), "rtx-1.7:sm86", b"library", Settings::default()),
        key_of(&same(), "rtx-1.7:sm86,sm89", b"library", Settings::default()),
        key_of(&same(), "tensorrt-11.3:sm89", b"library", Settings::default()),
        key_of(&same(), "rtx-1.7:sm89", b"another", Settings::default()),
        key_of(&same(), "rtx-1.7:sm89", b"library", settings),
        key_of(&same(), "rtx-1.7:sm89", b"library", Settings { max_threads: Some(1), ..settings }),
        key_of(&same(), "rtx-1.7:sm89", b"library", Settings { tf32: true, ..Settings::default() }),
    ];
    for (k, other) in others.iter().enumerate() {
        assert_ne!(plain, *other, "{k}");
        assert!(!others[..k].contains(other), "{k}");
    }
}

#[test]
fn engines_come_back_with_the_time_that_they_took() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), u64::MAX);
    assert_eq!(cache.get(key(parts())), None);
    cache.put(key(parts()), b"engine", 1.5);
    let hit = cache.get(key(parts())).unwrap();
    assert_eq!((&hit.engine[..], hit.build_s), (&b"engine"[..], 1.5));
    assert_eq!(cache.get(key(Parts { bias: 3.0, ..parts() })), None);
    let held = cache_use(&folder.path().join("cache"));
    assert_eq!((held.entries, held.bytes), (1, (HEAD_LEN + 6) as u64));
    assert_eq!(cache_use(&folder.path().join("nowhere")).entries, 0);
}

#[test]
fn damaged_entries_are_thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), u64::MAX);
    let (key, engine) = (key(parts()), [7u8; 100]);
    cache.put(key, &engine, 0.1);
    let path = cache.path(key);
    let whole = std::fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let longer = [&whole[..], &[0]].concat();
    let damaged = [
        Vec::new(),
        whole[..HEAD_LEN - 1].to_vec(),
        whole[..HEAD_LEN].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        longer,
        flipped(0),
        flipped(8),
        flipped(40),
        flipped(HEAD_LEN),
        flipped(whole.len() - 1),
    ];
    for bytes in damaged {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(cache.get(key), None);
        assert!(!path.exists(), "it is built again, and kept again");
    }
    cache.put(key, &engine, 0.1);
    assert_eq!(cache.get(key).unwrap().engine, engine);
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let entry = (HEAD_LEN + 100) as u64;
    let cache = cache(folder.path(), 3 * entry);
    let keys: Vec<Hash> = (0..4u8).map(|k| Hash::of(&[k])).collect();
    for (k, &key) in keys[..3].iter().enumerate() {
        cache.put(key, &[0; 100], 0.0);
        // File systems tell time in coarse steps.
        let used = SystemTime::now() - Duration::from_secs(100 - k as u64);
        std::fs::File::open(cache.path(key)).unwrap().set_modified(used).unwrap();
    }
    assert!(cache.get(keys[0]).is_some());
    cache.put(keys[3], &[0; 100], 0.0);
    let held: Vec<bool> = keys.iter().map(|&key| cache.get(key).is_some()).collect();
    assert_eq!(held, [true, false, true, true]);
    assert_eq!(cache_use(&folder.path().join("cache")).bytes, 3 * entry);
    // What can never fit is not kept, and pushes nothing out.
    cache.put(Hash::of(b"large"), &vec![0; 1000], 0.0);
    assert_eq!(cache_use(&folder.path().join("cache")).entries, 3);
}

#[test]
fn unfinished_files_do_not_count_and_go_when_they_are_old() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), u64::MAX);
    let (young, old) = (cache.root.join("engines/.tmpA"), cache.root.join("engines/.tmpB"));
    for path in [&young, &old] {
        std::fs::write(path, b"half").unwrap();
    }
    let long_ago = SystemTime::now() - Duration::from_secs(48 * 3600);
    std::fs::File::open(&old).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(cache_use(&cache.root).entries, 0);
    cache.put(key(parts()), b"engine", 0.0);
    assert!(young.exists() && !old.exists());
}

#[test]
fn a_library_is_read_again_when_its_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), u64::MAX);
    let library = folder.path().join("lib.so");
    std::fs::write(&library, b"one").unwrap();
    assert_eq!(cache.library(&library).unwrap(), Hash::of(b"one"));
    assert_eq!(cache.library(&library).unwrap(), Hash::of(b"one"));
    // The same length and the same time of change.
    let time = library.metadata().unwrap().modified().unwrap();
    std::fs::write(&library, b"two").unwrap();
    std::fs::File::open(&library).unwrap().set_modified(time).unwrap();
    assert_eq!(cache.library(&library).unwrap(), Hash::of(b"two"));
    assert!(cache.library(&folder.path().join("absent.so")).is_err());
    // A list that is no list is made anew.
    std::fs::write(cache.root.join("libraries.json"), b"{").unwrap();
    assert_eq!(cache.library(&library).unwrap(), Hash::of(b"two"));
}

#[test]
fn two_do_not_build_the_same_engine_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (cache(folder.path(), u64::MAX), cache(folder.path(), u64::MAX));
    let (key, patience) = (key(parts()), Duration::from_secs(20));
    let claim = one.claim(key, patience).unwrap();
    assert!(other.claim(key, Duration::ZERO).is_none());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let claim = other.claim(key, patience);
            (claim.is_some(), other.get(key).is_some())
        });
        std::thread::sleep(Duration::from_millis(50));
        one.put(key, b"engine", 0.0);
        drop(claim);
        assert_eq!(waits.join().unwrap(), (true, true));
    });
}

#[test]
fn the_folder_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), u64::MAX);
    for path in [cache.root.clone(), cache.root.join("engines")] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
    }
}
