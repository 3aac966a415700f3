//! Opening models: in place, inside their folder, with errors that help.

use proptest::prelude::*;
use std::{fs, path::Path};
use trtc_bundle::DType;
use trtc_onnx::{
    GraphProto, ModelProto, NodeProto, OnnxFile, OperatorSetIdProto, TensorProto,
    write::{self, attr_g, attr_i, encode, graph, model, node, tensor_f32, value_info},
};

fn add(initializer: TensorProto) -> ModelProto {
    let nodes = [node("Add", &["x", "w"], &["y"], [])];
    let (x, y) = (value_info("x", DType::F32, [2]), value_info("y", DType::F32, [2]));
    model(21, graph("g", nodes, [x], [y], [initializer]))
}

fn external(location: &str, offset: u64, length: u64) -> ModelProto {
    add(TensorProto::external("w", DType::F32, &[2], location, offset, length))
}

/// The one initializer, read from a file of `model` in `folder`.
fn read_w(folder: &Path, model: &ModelProto) -> Result<Vec<u8>, String> {
    let path = folder.join("model.onnx");
    fs::write(&path, encode(model).unwrap()).unwrap();
    let file = OnnxFile::open(&path).unwrap();
    let w = &file.model.graph.as_ref().unwrap().initializer[0];
    file.tensor(w).map(|tensor| tensor.bytes().unwrap().to_vec()).map_err(|error| error.to_string())
}

#[test]
fn weights_stay_in_the_mapped_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let wire = encode(&add(tensor_f32("w", &[2], &[1.5, 2.5]))).unwrap();
    fs::write(&path, &wire).unwrap();
    let file = OnnxFile::open(&path).unwrap();
    let tensor = file.tensor(&file.model.graph.as_ref().unwrap().initializer[0]).unwrap();
    let (mapped, range) = file.locate(tensor.bytes().unwrap()).unwrap();
    assert_eq!(mapped.path(), path);
    let expected = [1.5f32.to_le_bytes(), 2.5f32.to_le_bytes()].concat();
    assert_eq!(wire[range.start as usize..range.end as usize], expected);
    assert_eq!(file.opsets(), [(String::new(), 21)].into());
}

#[test]
fn external_data_is_read_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("sub/w.bin"), [9, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
    for location in ["sub/w.bin", "./sub/./w.bin"] {
        assert_eq!(read_w(folder.path(), &external(location, 1, 8)), Ok(vec![1, 2, 3, 4, 5, 6, 7, 8]));
    }
    // Without offset and length the data starts the file and its size follows from the shape.
    let mut bare = external("sub/w.bin", 0, 8);
    bare.graph.as_mut().unwrap().initializer[0].external_data.truncate(1);
    assert_eq!(read_w(folder.path(), &bare), Ok(vec![9, 1, 2, 3, 4, 5, 6, 7]));
    let empty = add(TensorProto::external("w", DType::F32, &[0], "absent", 0, 0));
    assert_eq!(read_w(folder.path(), &empty), Ok(vec![]));
}

#[test]
fn external_data_may_not_leave_the_folder() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, [0; 64]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.bin"), [0; 12]).unwrap();
    std::os::unix::fs::symlink(&secret, folder.path().join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("dir")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("w.bin"), folder.path().join("inner")).unwrap();
    assert_eq!(read_w(folder.path(), &external("inner", 4, 8)).map(|bytes| bytes.len()), Ok(8));
    for (location, offset, length, words) in [
        (secret.to_str().unwrap(), 0, 8, "without `..`"),
        ("../secret", 0, 8, "without `..`"),
        ("a/../../secret", 0, 8, "without `..`"),
        ("link", 0, 8, "leads out of the model's folder"),
        ("dir/secret", 0, 8, "leads out of the model's folder"),
        ("", 0, 8, "no `location`"),
        ("absent.bin", 0, 8, "No such file"),
        (".", 0, 8, "folder"),
        ("w.bin", 5, 8, "bytes 5..13 are wanted, the file has 12"),
        ("w.bin", u64::MAX, 8, "the file has 12"),
        ("w.bin", 0, 4, "f32 [2] needs 8 bytes, external data has 4"),
    ] {
        let text = read_w(folder.path(), &external(location, offset, length)).unwrap_err();
        assert!(text.starts_with("tensor `w`") && text.contains(words), "{text}");
    }
    let mut text = external("w.bin", 0, 8);
    text.graph.as_mut().unwrap().initializer[0].external_data[1].value = Some("-1".to_owned());
    assert!(read_w(folder.path(), &text).unwrap_err().contains("offset `-1` is not a number"));
    let bytes = encode(&external("w.bin", 0, 8)).unwrap();
    let file = OnnxFile::from_bytes(bytes.clone(), None).unwrap();
    let w = &file.model.graph.as_ref().unwrap().initializer[0];
    assert!(file.tensor(w).unwrap_err().to_string().contains("folder is not known"));
    let file = OnnxFile::from_bytes(bytes, Some(folder.path().to_owned())).unwrap();
    assert_eq!(file.tensor(w).unwrap().bytes().unwrap().len(), 8);
}

#[test]
fn a_linked_model_has_its_data_beside_the_file() {
    let (store, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(store.path().join("blob"), encode(&external("w.bin", 0, 8)).unwrap()).unwrap();
    fs::write(store.path().join("data"), [3; 8]).unwrap();
    std::os::unix::fs::symlink(store.path().join("blob"), folder.path().join("m.onnx")).unwrap();
    std::os::unix::fs::symlink(store.path().join("data"), folder.path().join("w.bin")).unwrap();
    let file = OnnxFile::open(folder.path().join("m.onnx")).unwrap();
    let w = &file.model.graph.as_ref().unwrap().initializer[0];
    assert_eq!(file.tensor(w).unwrap().bytes().unwrap()[..], [3; 8]);
    assert_eq!(file.files().len(), 2);
}

#[test]
fn what_is_no_model_is_named() {
    let cases: &[(&[u8], &str)] = &[
        (b"", "there are no bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"hello there\n", "not an ONNX model: it is text"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"{\"a\": 1}", "JSON"),
        (b"<\n  ir_version: 8\n>\nagraph () => () {}", "textual form"),
        (b"PK\x03\x04rest of it", "zip archive"),
        (b"\x18\0\0\0ORTM", "own format"),
        (b"\xff\xff\xff\xff", "cut off or damaged"),
        (b"\x08", "cut off or damaged"),
        (b"\xf8\x07\x01", "no field that a model has"),
        (b"\x08\x07", "incomplete ONNX model: it has no graph"),
        (b"\x3a\x00", "incomplete ONNX model: it does not say its ir_version"),
        (b"\x08\x07\x3a\x00", "imports no operator set"),
    ];
    for (bytes, words) in cases {
        let text = OnnxFile::from_bytes(bytes.to_vec(), None).unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.onnx");
    fs::write(&path, b"").unwrap();
    let text = OnnxFile::open(&path).unwrap_err().to_string();
    assert!(text.ends_with("e.onnx: not an ONNX model: the file is empty"), "{text}");
    let text = OnnxFile::open(folder.path()).unwrap_err().to_string();
    assert!(text.ends_with("it is a folder, not a file"), "{text}");
    let wire = encode(&add(tensor_f32("w", &[2], &[1.0, 2.0]))).unwrap();
    let text = OnnxFile::from_bytes(wire.slice(..wire.len() - 3), None).unwrap_err().to_string();
    assert!(text.contains("cut off or damaged"), "{text}");
}

#[test]
fn subgraphs_nest_until_the_limit() {
    let nested = |depth: usize| {
        let mut inner = GraphProto::default();
        for _ in 0..depth {
            inner = graph("g", [node("If", &["c"], &["y"], [attr_g("then_branch", inner)])], [], [], []);
        }
        encode(&model(21, inner)).unwrap()
    };
    assert!(OnnxFile::from_bytes(nested(30), None).is_ok());
    let text = OnnxFile::from_bytes(nested(40), None).unwrap_err().to_string();
    assert!(text.contains("recursion limit"), "{text}");
}

#[test]
fn repeated_opset_entries_are_tolerated() {
    let entry = |domain: Option<&str>, version| OperatorSetIdProto {
        domain: domain.map(str::to_owned),
        version: Some(version),
    };
    let imports = [entry(None, 9), entry(Some("ai.onnx.ml"), 2), entry(Some("ai.onnx"), 11)];
    assert_eq!(trtc_onnx::opsets(&imports), [(String::new(), 11), ("ai.onnx.ml".to_owned(), 2)].into());
}

#[test]
fn every_byte_of_a_model_is_guarded() {
    let mut model = add(tensor_f32("w", &[2], &[1.0, 2.0]));
    model.graph.as_mut().unwrap().node.push(
        node("ai.onnx.ml::Scaler", &["y"], &["z"], [attr_i("a", 3), write::attr_floats("f", &[1.0, 2.0])])
            .named("n"),
    );
    let wire = encode(&model).unwrap();
    for at in 0..wire.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = wire.to_vec();
            bytes[at] = value;
            if let Ok(file) = OnnxFile::from_bytes(bytes, None) {
                for tensor in &file.model.graph.as_ref().unwrap().initializer {
                    let _ = file.tensor(tensor);
                }
            }
        }
        let _ = OnnxFile::from_bytes(wire.slice(..at), None);
    }
}

fn any_node() -> impl Strategy<Value = NodeProto> {
    (".{0,8}", prop::collection::vec(".{0,4}", 0..3), prop::collection::vec(any::<i64>(), 0..4)).prop_map(
        |(name, inputs, ints)| {
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let attributes = [write::attr_ints("ints", &ints), write::attr_s("s", &name)];
            node("Op", &inputs, &["y"], attributes).named(&name)
        },
    )
}

proptest! {
    #[test]
    fn models_survive_the_wire(nodes in prop::collection::vec(any_node(), 0..4), symbol in ".{0,3}") {
        let x = value_info("x", DType::Bf16, [symbol.as_str()]);
        let model = model(13, graph("g", nodes, [x], [], []));
        prop_assert_eq!(OnnxFile::from_bytes(encode(&model).unwrap(), None).unwrap().model, model);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = OnnxFile::from_bytes(bytes, None);
    }
}
