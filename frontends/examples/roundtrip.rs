//! Imports a model and writes it again, with its weights inline.
//!
//! `cargo run -p trtc-frontends --example roundtrip -- IN.onnx OUT.onnx [IN OUT]…`

use trtc_frontends::onnx::{self, export};

fn roundtrip(from: &str, to: &str) -> Result<String, String> {
    let loaded = onnx::load(from).map_err(|error| error.to_string())?;
    let module = &loaded.module;
    let exported = export::export(export::ExportRequest {
        name: &module.graph.name,
        graph: &module.graph,
        symbols: &module.symbols,
        nodes: None,
        inputs: module.graph.inputs(),
        outputs: module.graph.outputs(),
        opset: None,
        opsets: &module.opsets,
        weights: &mut |_, _| export::WeightPlacement::Inline,
    })
    .map_err(|error| error.to_string())?;
    let bytes = trtc_onnx::write::encode(&exported.model).map_err(|error| error.to_string())?;
    std::fs::write(to, bytes).map_err(|error| error.to_string())?;
    Ok(format!(
        "opset {} widened {:?} inputs {:?} outputs {:?}",
        exported.opset, exported.widened, exported.inputs, exported.outputs
    ))
}

#[allow(clippy::print_stdout, reason = "the result of the example")]
fn main() {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    for pair in paths.chunks_exact(2) {
        match roundtrip(&pair[0], &pair[1]) {
            Ok(done) => println!("ok\t{}\t{done}", pair[0]),
            Err(error) => println!("fail\t{}\t{error}", pair[0]),
        }
    }
}
