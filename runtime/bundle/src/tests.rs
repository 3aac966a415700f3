//! Whole bundles: written, moved, read, damaged.

use crate::{
    Block, Bundle, BundleError, BundleWriter, Carried, DType, Dim, FORMAT_VERSION, Hash, LOCATION, Manifest,
    ModelInfo, NetworkRef, SectionId, Segment, SegmentId, SegmentKind, Step, Symbol, Target, TargetPlan,
    ValueId, ValueInfo, WeightsId,
    header::{HEADER_LEN, Header},
};
use bytes::Bytes;
use proptest::prelude::*;
use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const PATH: &str = "model.trtc";

/// What stands in for a graph here: one `location` entry among other bytes.
fn graph() -> Vec<u8> {
    [&b"head\x0a\x08location\x12\x82\x02"[..], LOCATION.as_bytes(), b"tail"].concat()
}

fn manifest() -> Manifest {
    let mut manifest = Manifest::new("trtc test", ModelInfo::new("m.onnx", "onnx", Hash::of(b"m")));
    manifest.inputs =
        vec![ValueInfo::tensor("x", DType::F32, Some(vec![Dim::Text("n".into()), Dim::Known(3)]))];
    manifest.inputs.push(ValueInfo::tensor("c", DType::Bool, Some(vec![])));
    manifest.outputs = vec![ValueInfo::tensor("y", DType::F32, None)];
    manifest.symbols = vec![Symbol::new("n", 1, 8, 64)];
    manifest
}

fn plan(graph: SectionId, engine: SectionId, network: SectionId, weights: WeightsId) -> TargetPlan {
    let mut plan = TargetPlan::new(Target::default_target());
    plan.values = vec![
        ValueInfo::tensor("x", DType::F32, Some(vec![Dim::Text("n".into()), Dim::Known(3)])),
        ValueInfo::tensor("k", DType::I64, Some(vec![Dim::Known(2)])),
        ValueInfo::tensor("y", DType::F32, None),
        ValueInfo::tensor("c", DType::Bool, Some(vec![])),
        ValueInfo::tensor("then", DType::F32, None),
    ];
    (plan.inputs, plan.outputs) = (vec![ValueId(0), ValueId(3)], vec![ValueId(2)]);
    let mut constant = Segment::new("c0", SegmentKind::Constant);
    (constant.outputs, constant.constants) = (vec![ValueId(1)], vec![weights]);
    let mut main = Segment::new("e0", SegmentKind::Engine);
    (main.inputs, main.outputs) = (vec![ValueId(0), ValueId(1)], vec![ValueId(4)]);
    (main.engine, main.graph) = (Some(engine), Some(graph));
    main.network = Some(NetworkRef::new(network, vec![weights]));
    plan.segments = vec![constant, main];
    plan.schedule = vec![
        Step::Run { segment: SegmentId(0) },
        Step::If {
            condition: ValueId(3),
            then_block: Block::new(vec![Step::Run { segment: SegmentId(1) }], vec![ValueId(4)]),
            else_block: Block::new(Vec::new(), vec![ValueId(0)]),
            outputs: vec![ValueId(2)],
        },
    ];
    plan
}

const WEIGHTS: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];

fn fill(writer: &mut BundleWriter) -> Manifest {
    let weights = writer.add_weights(&Bytes::from_static(&WEIGHTS)).unwrap();
    let (graph, engine) = (writer.add_graph(&graph()).unwrap(), writer.add_engine(b"engine").unwrap());
    let network = writer.add_network(b"{}").unwrap();
    let mut plan = plan(graph, engine, network, weights.id);
    plan.report = Some(writer.add_report(b"{\"totals\":{}}").unwrap());
    let mut manifest = manifest();
    manifest.whole_model = Some(graph);
    manifest.targets = vec![plan];
    manifest
}

fn write(path: &Path) {
    let mut writer = BundleWriter::create(path).unwrap();
    let manifest = fill(&mut writer);
    writer.finish(manifest).unwrap();
}

/// A folder with a bundle in it.
fn written() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PATH);
    write(&path);
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_was_written_is_read() {
    let (folder, path) = written();
    assert_eq!(names(folder.path()), [PATH]);
    let bundle = Bundle::open(&path).unwrap();
    bundle.verify().unwrap();
    bundle.check_in_place().unwrap();
    let read = bundle.manifest();
    let mut expected = manifest();
    (expected.sections, expected.weights) = (read.sections.clone(), read.weights.clone());
    expected.whole_model = Some(SectionId(0));
    expected.targets = vec![plan(SectionId(0), SectionId(1), SectionId(2), WeightsId(0))];
    expected.targets[0].report = Some(SectionId(3));
    assert_eq!(*read, expected);
    assert_eq!(bundle.engine(SectionId(1)).unwrap(), b"engine");
    assert_eq!(&bundle.network(SectionId(2)).unwrap()[..], b"{}");
    assert_eq!(&bundle.weights(WeightsId(0)).unwrap()[..], WEIGHTS);
    assert!(matches!(bundle.engine(SectionId(0)), Err(BundleError::Manifest(_))));
    assert!(matches!(bundle.weights(WeightsId(1)), Err(BundleError::Manifest(_))));
    assert!(!bundle.is_signed());
    let file = std::fs::read(&path).unwrap();
    assert_eq!(bundle.len_bytes(), file.len() as u64);
    for section in &read.sections {
        assert_eq!(section.offset % 64, 0);
    }
    // Readable by others as far as the umask allows, unlike most temporary files.
    let plain = folder.path().join("plain");
    std::fs::write(&plain, b"").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn carried_bindings_are_checked() {
    let close = |dtype: DType, carried: Carried| {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = BundleWriter::create(folder.path().join(PATH)).unwrap();
        let mut manifest = fill(&mut writer);
        // What the branches hand out, and what it becomes.
        [0, 2, 4].iter().for_each(|&value| manifest.targets[0].values[value].dtype = dtype);
        manifest.targets[0].segments[1].carried = vec![carried];
        writer.finish(manifest)
    };
    close(DType::U16, Carried::new(ValueId(4), DType::I32)).unwrap();
    // Not that dtype's carrier; no value of the segment; no value at all.
    for (dtype, value, binding) in
        [(DType::U16, 4, DType::I64), (DType::U16, 3, DType::Bool), (DType::U16, 9, DType::I32)]
    {
        let error = close(dtype, Carried::new(ValueId(value), binding)).unwrap_err();
        assert!(matches!(error, BundleError::Manifest(_)), "{error}");
    }
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    let ((_a, first), (_b, second)) = (written(), written());
    assert_eq!(std::fs::read(first).unwrap(), std::fs::read(second).unwrap());
}

#[test]
fn equal_weights_are_written_once_at_the_place_that_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PATH);
    let mut writer = BundleWriter::create(&path).unwrap();
    let one = writer.add_weights(&Bytes::from(vec![1; 100])).unwrap();
    let two = writer.add_weights(&Bytes::from(vec![2; 100])).unwrap();
    assert_eq!(writer.add_weights(&Bytes::from(vec![1; 100])).unwrap(), one);
    assert_eq!(writer.add_weights(&Bytes::new()).unwrap().len, 0);
    let mut manifest = manifest();
    manifest.outputs.clear();
    writer.finish(manifest).unwrap();
    let file = std::fs::read(&path).unwrap();
    for (place, byte) in [(one, 1), (two, 2)] {
        let at = place.offset as usize;
        assert_eq!((at % 64, &file[at..at + 100]), (0, &[byte; 100][..]));
    }
    assert_eq!(Bundle::open(&path).unwrap().manifest().weights.len(), 3);
}

#[test]
fn a_graph_names_the_file_as_it_is_called_now() {
    let (folder, path) = written();
    let link = folder.path().join("link.trtc");
    let moved = folder.path().join("änderer Name.trtc");
    std::fs::rename(&path, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &link).unwrap();
    for path in [&moved, &link] {
        let bundle = Bundle::open(path).unwrap();
        let graph = bundle.graph(SectionId(0)).unwrap();
        let text = String::from_utf8_lossy(&graph);
        assert_eq!(graph.len(), self::graph().len());
        assert!(text.contains("./änderer Name.trtctail") && !text.contains("name-of"), "{text}");
        assert_eq!(bundle.folder(), std::fs::canonicalize(folder.path()).unwrap());
    }
    let bundle = Bundle::open(&moved).unwrap();
    write(&moved);
    assert!(matches!(bundle.check_in_place(), Err(BundleError::Replaced(_))));
    assert_eq!(bundle.engine(SectionId(1)).unwrap(), b"engine");
    std::fs::remove_file(&moved).unwrap();
    assert!(matches!(bundle.check_in_place(), Err(BundleError::Io { .. })));
}

#[test]
fn a_failure_leaves_the_old_file_and_nothing_else() {
    let (folder, path) = written();
    let before = std::fs::read(&path).unwrap();
    let mut writer = BundleWriter::create(&path).unwrap();
    let mut manifest = fill(&mut writer);
    manifest.targets[0].outputs.clear();
    assert!(writer.finish(manifest).unwrap_err().to_string().contains("0 outputs"));
    drop(BundleWriter::create(&path).unwrap());
    assert_eq!((names(folder.path()), std::fs::read(&path).unwrap()), (vec![PATH.to_owned()], before));
    assert!(matches!(BundleWriter::create("/no/such/folder/x.trtc"), Err(BundleError::Io { .. })));
    assert!(matches!(BundleWriter::create("x".repeat(256)), Err(BundleError::FileName(_))));
}

#[test]
fn an_extended_bundle_keeps_ids_and_bytes() {
    let (_folder, path) = written();
    let old = Bundle::open(&path).unwrap();
    let mut writer = BundleWriter::extend(&old, &path).unwrap();
    assert_eq!(writer.add_weights(&Bytes::from_static(&WEIGHTS)).unwrap().id, WeightsId(0));
    let engine = writer.add_engine(b"built later").unwrap();
    let mut manifest = old.manifest().clone();
    manifest.targets[0].segments[1].engine = Some(engine);
    writer.finish(manifest).unwrap();
    let new = Bundle::open(&path).unwrap();
    new.verify().unwrap();
    assert_eq!(new.engine(engine).unwrap(), b"built later");
    assert_eq!(new.engine(SectionId(1)).unwrap(), old.engine(SectionId(1)).unwrap());
    assert_eq!(new.graph(SectionId(0)).unwrap(), old.graph(SectionId(0)).unwrap());
}

#[test]
fn a_manifest_that_contradicts_itself_is_not_written() {
    type Spoil = Box<dyn Fn(&mut Manifest)>;
    let mut ways: Vec<(&str, Spoil)> = vec![
        ("not a graph", Box::new(|m| m.whole_model = Some(SectionId(1)))),
        ("not a report", Box::new(|m| m.targets[0].report = Some(SectionId(77)))),
        ("no value 9", Box::new(|m| m.targets[0].inputs[0] = ValueId(9))),
        ("segment 5", Box::new(|m| m.targets[0].schedule.push(Step::Run { segment: SegmentId(5) }))),
        (
            "neither",
            Box::new(|m| {
                m.targets[0].segments[1].engine = None;
                m.targets[0].segments[1].network = None;
            }),
        ),
        ("no weights 4", Box::new(|m| m.targets[0].segments[0].constants = vec![WeightsId(4)])),
        ("constant of 16", Box::new(|m| m.targets[0].values[1].dtype = DType::F16)),
        (
            "ends with 1",
            Box::new(|m| {
                if let Step::If { outputs, .. } = &mut m.targets[0].schedule[1] {
                    outputs.clear();
                }
            }),
        ),
        ("2..1..3", Box::new(|m| m.symbols = vec![Symbol::new("n", 2, 1, 3)])),
        (
            "loop",
            Box::new(|m| {
                m.targets[0].schedule = vec![Step::Loop {
                    trip_count: None,
                    condition: None,
                    initial: vec![ValueId(0)],
                    inputs: vec![],
                    body: Block::default(),
                    outputs: vec![],
                }];
            }),
        ),
    ];
    for (word, spoil) in &mut ways {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = BundleWriter::create(folder.path().join(PATH)).unwrap();
        let mut manifest = fill(&mut writer);
        spoil(&mut manifest);
        let error = writer.finish(manifest).unwrap_err().to_string();
        assert!(error.contains(*word), "{word}: {error}");
        assert!(names(folder.path()).is_empty());
    }
}

/// A file with header and hashes in order around `json`, as somebody who means harm would make it.
fn forged(json: &[u8], body: &[u8]) -> Vec<u8> {
    let offset = (HEADER_LEN + body.len()) as u64;
    let header = Header {
        producer: "forger".into(),
        file_len: offset + json.len() as u64,
        manifest_offset: offset,
        manifest_len: json.len() as u64,
        manifest_hash: Hash::of(json),
        flags: 0,
    };
    [&header.encode()[..], body, json].concat()
}

fn open_bytes(bytes: &[u8]) -> Result<Bundle, BundleError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Bundle::open(file.path())
}

#[test]
fn forged_ranges_are_refused() {
    let hash = Hash::of(b"");
    let section = |kind: &str, offset: u64, len: u64, locations: &str| {
        format!(
            r#"{{"kind":"{kind}","offset":{offset},"len":{len},"hash":"{hash}","locations":[{locations}]}}"#
        )
    };
    let with = |sections: String| {
        let json = format!(
            r#"{{"producer":"","model":{{"name":"","format":"","hash":"{hash}"}},"inputs":[],"outputs":[],"targets":[],"sections":[{sections}]}}"#
        );
        open_bytes(&forged(json.as_bytes(), &[0; 1024])).map_err(|error| error.to_string())
    };
    assert!(with(String::new()).is_ok());
    for (word, sections) in [
        ("leaves the file", section("engine", 192, 1024, "")),
        ("leaves the file", section("engine", 64, u64::MAX, "")),
        ("overlap", section("engine", 64, 10, "")),
        ("overlap", section("engine", 0, 0, "")),
        ("overlap", [section("engine", 128, 100, ""), section("graph", 192, 10, "")].join(",")),
        ("multiple of 64", section("engine", 130, 1, "")),
        ("leaves its graph", section("graph", 128, 300, "100")),
        ("leaves its graph", section("graph", 128, 300, "18446744073709551615")),
        ("locations overlap", section("graph", 128, 600, "0,257")),
        ("has locations", section("engine", 128, 600, "0")),
        ("does not match", section("graph", 128, 600, "0")),
        ("invalid value", section("engine", 128, 1, "-1")),
    ] {
        let error = with(sections).unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn manifest_bombs_are_refused() {
    let deep = [&b"{\"targets\":"[..], &b"[".repeat(1 << 20)].concat();
    assert!(matches!(open_bytes(&forged(&deep, b"")), Err(BundleError::Manifest(_))));
    let large = b" ".repeat((32 << 20) + 1);
    assert!(matches!(open_bytes(&forged(&large, b"")), Err(BundleError::ManifestTooLarge { .. })));
    assert!(matches!(open_bytes(&forged(b"", b"")), Err(BundleError::Manifest(_))));
    // Steps within steps, as deep as JSON goes.
    let step = r#"{"if":{"condition":0,"outputs":[],"else":{"steps":[],"outputs":[]},"then":{"outputs":[],"steps":["#;
    assert!(
        serde_json::from_str::<Step>(&step.repeat(100_000)).unwrap_err().to_string().contains("recursion")
    );
}

#[test]
fn what_is_no_bundle_says_so() {
    let said = |bytes: &[u8]| open_bytes(bytes).unwrap_err().to_string();
    assert!(said(b"").contains("not a bundle"));
    assert!(said(b"\x08\x07\x12\x04onnx").contains("not a bundle"));
    let (_folder, path) = written();
    let mut newer = std::fs::read(&path).unwrap();
    assert!(said(&newer[..newer.len() - 1]).contains("cut short"));
    newer[12] = FORMAT_VERSION as u8 + 1;
    assert!(said(&newer).contains("trtc test"), "{}", said(&newer));
    assert!(matches!(Bundle::open("/no/such/file"), Err(BundleError::Io { .. })));
    assert!(matches!(Bundle::open("/tmp"), Err(BundleError::Io { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any changed byte is found, at opening or by `verify`, and nothing panics meanwhile.
    #[test]
    fn no_changed_byte_goes_unseen(at in any::<prop::sample::Index>(), by in 1u8..) {
        let (_folder, path) = written();
        let mut file = std::fs::read(path).unwrap();
        let at = at.index(file.len());
        file[at] ^= by;
        let seen = open_bytes(&file).and_then(|bundle| {
            let _ = (bundle.engine(SectionId(1)), bundle.graph(SectionId(0)), bundle.network(SectionId(2)));
            bundle.verify()
        });
        // Until its check, the header's version fields speak for a later version.
        prop_assert!(seen.is_err(), "byte {at}");
    }

    /// A manifest with right hashes but altered text opens or is refused, and whatever it leads to can be read or is refused.
    #[test]
    fn no_altered_manifest_panics(at in any::<prop::sample::Index>(), digits in "[0-9\\[\\]{}\",:a-z]{1,12}") {
        let (_folder, path) = written();
        let file = std::fs::read(&path).unwrap();
        let header = Header::decode(&file).unwrap();
        let (body, json) = file.split_at(header.manifest_offset as usize);
        let mut json = json.to_vec();
        let at = at.index(json.len() - digits.len());
        json[at..at + digits.len()].copy_from_slice(digits.as_bytes());
        if let Ok(bundle) = open_bytes(&forged(&json, &body[HEADER_LEN..])) {
            for id in (0..6).map(SectionId) {
                let _ = (bundle.engine(id), bundle.graph(id), bundle.network(id), bundle.report(id));
            }
            let _ = (bundle.weights(WeightsId(0)), bundle.verify());
        }
    }
}

#[cfg(feature = "sign")]
#[test]
fn a_signature_binds_every_byte_to_a_key() {
    use ed25519_dalek::SigningKey;
    let (key, other) = (SigningKey::from_bytes(&[7; 32]), SigningKey::from_bytes(&[8; 32]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PATH);
    let mut writer = BundleWriter::create(&path).unwrap();
    let manifest = fill(&mut writer);
    writer.finish_signed(manifest, &key).unwrap();
    let bundle = Bundle::open(&path).unwrap();
    assert!(bundle.is_signed());
    bundle.verify_signature(&key.verifying_key()).unwrap();
    let error = bundle.verify_signature(&other.verifying_key()).unwrap_err();
    assert!(error.to_string().contains("another key"));
    let file = std::fs::read(&path).unwrap();
    for at in (0..file.len()).step_by(7).chain(file.len() - 96..file.len()) {
        let mut changed = file.clone();
        changed[at] ^= 0x10;
        let seen = open_bytes(&changed).and_then(|bundle| bundle.verify_signature(&key.verifying_key()));
        assert!(seen.is_err(), "byte {at}");
    }
    let (_folder, plain) = written();
    let error = Bundle::open(plain).unwrap().verify_signature(&key.verifying_key()).unwrap_err();
    assert!(matches!(error, BundleError::Signature(_)));
}
