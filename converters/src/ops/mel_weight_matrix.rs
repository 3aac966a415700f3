//! MelWeightMatrix: triangles that gather a spectrum into bands of the mel scale.
//!
//! num_mel_bins [], dft_length [], sample_rate [] i, lower_edge_hertz [], upper_edge_hertz [] f
//! -> output [dft_length / 2 + 1, num_mel_bins] T
//! Opsets: 17.     TensorRT: IConstantLayer.
//! Limits: all inputs constant; f32, f16, bf16.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, floats, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The converter.
#[derive(Debug)]
pub struct MelWeightMatrix;

/// The weights [rows, columns], row by row.
#[derive(Debug)]
pub struct Plan {
    dtype: DType,
    rows: i64,
    columns: i64,
    values: Vec<f64>,
}

/// Largest matrix that is written out.
const MOST_WEIGHTS: i64 = 1 << 24;

fn dtype(node: NodeView<'_>) -> Option<DType> {
    i32::try_from(node.int("output_datatype", 1)).ok().and_then(DType::from_onnx)
}

fn mel(hertz: f64) -> f64 {
    2595.0 * (1.0 + hertz / 700.0).log10()
}

/// The schema's function. Edges are edges of bins of the spectrum.
fn weights(bands: i64, length: i64, rate: i64, [low, high]: [f64; 2]) -> Option<Vec<f64>> {
    let (low, high) = (mel(low), mel(high));
    let step = (high - low) / (bands + 2) as f64;
    let rows = length / 2 + 1;
    let edge = |k: i64| {
        let hertz = 700.0 * (10f64.powf((k as f64 * step + low) / 2595.0) - 1.0);
        let bin = ((length + 1) as f64 * hertz / rate as f64).floor();
        (bin >= 0.0 && bin <= rows as f64).then_some(bin as i64)
    };
    let edges = (0..bands + 2).map(edge).collect::<Option<Vec<i64>>>()?;
    let mut values = vec![0.0; usize::try_from(rows.checked_mul(bands)?).ok()?];
    for (band, triangle) in edges.windows(3).enumerate() {
        let [lower, centre, higher] = [triangle[0], triangle[1], triangle[2]];
        if lower > centre || centre > higher {
            return None;
        }
        for row in lower..higher.max(centre + 1) {
            let value = match row {
                row if row == centre => 1.0,
                row if row < centre => (row - lower) as f64 / (centre - lower) as f64,
                row => (higher - row) as f64 / (higher - centre) as f64,
            };
            *values.get_mut(usize::try_from(row * bands + band as i64).ok()?)? = value;
        }
    }
    Some(values)
}

impl Converter for MelWeightMatrix {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("MelWeightMatrix", 17)],
        dtypes: &[DType::I32, DType::I64],
        layers: "IConstantLayer",
        limits: "all inputs constant",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::SHAPE,
            Code::NOT_CONSTANT,
            Code::CONSTANT_VALUE,
            Code::COMPUTE_CAPABILITY,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let scalar = |slot: usize| dims::scalar(node, slot).cloned().unwrap_or(Dim::Unknown);
        let (bands, length) = (scalar(0), scalar(1));
        for (dim, name) in [(&bands, "num_mel_bins"), (&length, "dft_length")] {
            if dim.known().is_some_and(|n| n < 1) {
                return Err(Diag::invalid("must be positive").slot(name));
            }
        }
        let rows = length.floor_div(&Dim::Known(2)).add(&Dim::Known(1));
        Ok(shape::types([shape::typed(dtype(node), Some(vec![rows, bands]))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let dtype = dtype(node)
            .ok_or_else(|| Refusal::new(Code::DTYPE_UNKNOWN, "no such dtype").slot("output_datatype"))?;
        check::dtype_gate(dtype, "output_datatype", check::FLOATS, target)?;
        let number = |slot: usize, name: &str| {
            let value = check::constant(node, slot, name)?.scalar_f64();
            value.ok_or_else(|| Refusal::new(Code::CONSTANT_VALUE, "must be a number").slot(name))
        };
        let whole = |slot: usize, name: &str| {
            let value = number(slot, name)?;
            match value {
                1.0..=1e9 => Ok(value as i64),
                _ => Err(Refusal::new(Code::CONSTANT_VALUE, format!("{value}")).slot(name)),
            }
        };
        let (bands, length) = (whole(0, "num_mel_bins")?, whole(1, "dft_length")?);
        let rate = whole(2, "sample_rate")?;
        let edges = [number(3, "lower_edge_hertz")?, number(4, "upper_edge_hertz")?];
        let rows = length / 2 + 1;
        if rows.saturating_mul(bands.saturating_add(2)) > MOST_WEIGHTS {
            return Err(Refusal::new(Code::SHAPE, format!("a matrix of {rows} x {bands}")));
        }
        let values = weights(bands, length, rate, edges).ok_or_else(|| {
            let why = format!(
                "from {} to {} Hz is not within a spectrum up to {} Hz",
                edges[0],
                edges[1],
                rate / 2
            );
            Refusal::new(Code::CONSTANT_VALUE, why).slot("upper_edge_hertz")
        })?;
        Ok(Plan { dtype, rows, columns: bands, values })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        vec![floats::constant(cx, plan.dtype, vec![plan.rows, plan.columns], &plan.values)]
    }
}

#[cfg(test)]
mod tests {
    use super::weights;
    use crate::testing::*;
    use trtc_ir::{Code, Tensor};

    fn case(bands: i64, length: i64, low: f32, high: f32) -> Case {
        let whole = Tensor::scalar_i64;
        let case = Case::new("MelWeightMatrix", 17).constant(whole(bands)).constant(whole(length));
        case.constant(whole(8192)).constant(f32s([], &[low])).constant(f32s([], &[high]))
    }

    #[test]
    fn refusals() {
        let usual = || case(8, 16, 0.0, 4096.0);
        usual().int("output_datatype", 11).refused(Code::DTYPE_UNREPRESENTABLE);
        usual().int("output_datatype", 6).refused(Code::DTYPE_KERNEL);
        usual().int("output_datatype", 999).refused(Code::DTYPE_UNKNOWN);
        usual().int("output_datatype", 16).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        Case::new("MelWeightMatrix", 17).input(Tensor::scalar_i64(4)).refused(Code::NOT_CONSTANT);
        case(8, 16, 0.0, 1e9).refused(Code::CONSTANT_VALUE);
        case(8192, 8192, 0.0, 4096.0).refused(Code::SHAPE);
        assert!(case(0, 16, 0.0, 1.0).invalid().contains("positive"));
    }

    #[test]
    fn numbers() {
        assert_eq!(case(8, 16, 0.0, 4096.0).types(), ["f32[9 x 8]"]);
        let ours = weights(8, 16, 8192, [0.0, 4096.0]).unwrap();
        let peaks = |column: usize| (0..9).filter(|row| ours[row * 8 + column] == 1.0).count();
        assert!((0..8).all(|column| peaks(column) == 1));
        case(8, 16, 0.0, 4096.0).check(F32);
        case(20, 256, 100.0, 3900.0).check(F32);
    }
}
