//! A bundle's networks raised to ONNX, to run engine segments as TensorRT layers without TensorRT.

use crate::Error;
use bytes::Bytes;
use std::collections::HashMap;
use trtc_bundle::{Bundle, BundleError, LOCATION, NetworkRef};
use trtc_network::{
    Lowered, Network, WeightsId,
    raise::{RaiseOptions, WeightsPlacement, raise},
};

/// The network of a bundle's engine segment, with its weights in place in the mapped file.
///
/// # Errors
/// A damaged bundle.
pub fn network(bundle: &Bundle, network: &NetworkRef) -> Result<Lowered, Error> {
    let damaged = |error: BundleError| Error::input(error.to_string());
    let json = bundle.network(network.section).map_err(damaged)?;
    let parsed: Network = serde_json::from_slice(&json)
        .map_err(|error| Error::input(format!("{}: a network: {error}", bundle.path().display())))?;
    let weights: Result<Vec<Bytes>, _> = network.weights.iter().map(|&id| bundle.weights(id)).collect();
    Ok(Lowered { network: parsed, weights: weights.map_err(damaged)? })
}

/// Engine segments of one target (index into the manifest's targets) as encoded ONNX models, by segment id; for
/// [`trtc_runtime::SessionOptions::twin_override`]. Weights stay in the bundle.
///
/// # Errors
/// A damaged bundle, or a layer that has no counterpart in ONNX, by node.
pub fn raised_networks(bundle: &Bundle, target: usize) -> Result<HashMap<String, Vec<u8>>, Error> {
    let plan =
        bundle.manifest().targets.get(target).ok_or_else(|| Error::input("no such target in the bundle"))?;
    let mut models = HashMap::new();
    for segment in &plan.segments {
        let Some(reference) = &segment.network else { continue };
        let lowered = network(bundle, reference)?;
        let place = |id: WeightsId| {
            let entry = reference.weights.get(id.index()).and_then(|&id| bundle.weights_ref(id).ok());
            entry.map_or(WeightsPlacement::Inline, |entry| WeightsPlacement::External {
                location: LOCATION.to_owned(),
                offset: entry.offset,
                length: entry.len,
            })
        };
        let model = raise(&lowered, &RaiseOptions::with_weights(&place))
            .map_err(|error| Error::bug(format!("{}: {error}", segment.id)))?;
        let bytes =
            trtc_onnx::write::encode(&model).map_err(|e| Error::bug(format!("{}: {e}", segment.id)))?;
        models.insert(segment.id.clone(), bytes.to_vec());
    }
    Ok(models)
}
