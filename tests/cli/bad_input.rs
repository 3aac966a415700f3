//! Bad input of every kind ends with exit code 2 and one clear line that names the node or field.

use crate::support::{Folder, small_model, trtc};
use trtc_bundle::DType;
use trtc_onnx::{GraphProto, ModelProto, TensorProto, write::*};

/// The model's graph, changed.
fn changed(change: impl FnOnce(&mut GraphProto)) -> Vec<u8> {
    let mut model: ModelProto = small_model(true);
    change(model.graph.as_mut().unwrap());
    encode(&model).unwrap().to_vec()
}

/// Name, content, and words of which one must stand in the message.
fn cases() -> Vec<(&'static str, Vec<u8>, &'static [&'static str])> {
    let good = encode(&small_model(true)).unwrap().to_vec();
    let weights = |change: fn(&mut TensorProto)| changed(|graph| change(&mut graph.initializer[0]));
    let mut noise = 0x2545_f491_4f6c_dd1du64;
    let random: Vec<u8> = (0..4096)
        .map(|_| {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise as u8
        })
        .collect();
    vec![
        ("empty", Vec::new(), &["empty"]),
        ("truncated", good[..good.len() - 7].to_vec(), &["not an ONNX model"]),
        ("random", random, &["not an ONNX model"]),
        ("text", b"#!/bin/sh\necho hello\n".to_vec(), &["not an ONNX model"]),
        ("png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), &["not an ONNX model"]),
        ("no graph", encode(&ModelProto { graph: None, ..small_model(true) }).unwrap().to_vec(), &["graph"]),
        ("cyclic", changed(|graph| graph.node[0].input[1] = "y".into()), &["cycle", "`add`", "`last`"]),
        ("missing input", changed(|graph| graph.node[1].input[0] = "nowhere".into()), &["nowhere"]),
        ("no inputs at all", changed(|graph| graph.node[1].input.clear()), &["`last`"]),
        ("duplicate output", changed(|graph| graph.node.push(node("Relu", &["x"], &["y"], []))), &["`y`"]),
        ("unmade output", changed(|graph| graph.output[0].name = Some("absent".into())), &["absent"]),
        ("no operator", changed(|graph| graph.node[1].op_type = Some(String::new())), &["last"]),
        ("negative dim", weights(|w| w.dims = vec![-3]), &["`w`"]),
        ("huge dims", weights(|w| w.dims = vec![i64::MAX, i64::MAX]), &["`w`"]),
        ("short weights", weights(|w| w.raw_data = Some(vec![0u8; 11].into())), &["`w`"]),
        ("unknown dtype", weights(|w| w.data_type = Some(99)), &["`w`", "99"]),
        (
            "outside data",
            changed(|graph| {
                graph.initializer[0] = TensorProto::external("w", DType::F32, &[3], "../w.bin", 0, 12);
            }),
            &["`w`"],
        ),
        (
            "absent data",
            changed(|graph| {
                graph.initializer[0] = TensorProto::external("w", DType::F32, &[3], "w.bin", 0, 12);
            }),
            &["`w`"],
        ),
        (
            "unknown opset",
            encode(&ModelProto { opset_import: vec![opset_import("", 9999)], ..small_model(true) })
                .unwrap()
                .to_vec(),
            &["9999"],
        ),
        (
            "no opset",
            encode(&ModelProto { opset_import: Vec::new(), ir_version: Some(8), ..small_model(true) })
                .unwrap()
                .to_vec(),
            &["opset"],
        ),
        (
            "shapes that do not fit",
            changed(|graph| graph.initializer[0] = tensor_f32("w", &[4], &[0.0; 4])),
            &["`add`"],
        ),
    ]
}

#[test]
fn bad_models_end_with_one_clear_line() {
    let folder = Folder::new();
    let mut wrong = Vec::new();
    for (name, bytes, words) in cases() {
        let model = folder.file("m.onnx", &bytes);
        let said = trtc(&["partition", &model]);
        let errors = said.stderr.lines().filter(|line| line.starts_with("error")).count();
        let named = words.iter().any(|word| said.stderr.contains(word)) && said.stderr.contains("m.onnx");
        if said.code != 2 || !said.stdout.is_empty() || errors != 1 || !named {
            wrong.push(format!("{name}: exit {}: {}{}", said.code, said.stdout, said.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = Folder::new();
    for path in ["/no/such/model.onnx", folder.path("").to_str().unwrap(), "/dev/null"] {
        for command in ["partition", "inspect"] {
            let said = trtc(&[command, path]).code(2);
            assert!(
                said.stderr.contains(path) && said.stderr.starts_with("error: "),
                "{command}: {}",
                said.stderr
            );
        }
    }
}

#[test]
fn what_is_no_bundle_is_told() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(true));
    let said = trtc(&["inspect", &model]).code(2);
    assert!(said.stderr.contains("not a bundle") && said.stderr.contains("compile"), "{}", said.stderr);
}
