//! Inputs that always have the same value: what `--value` asks for.
//!
//! Such an input becomes a constant and is no input any more, so nothing that follows from the value can be wrong at run
//! time. Not part of [`super::run_all`]; run before it.

use crate::{
    diag::Diag,
    dim::Dim,
    graph::{Module, ValueId},
    tensor::Tensor,
};
use std::fmt;
use trtc_bundle::DType;

/// `NAME=VALUE,VALUE,…`: the elements of a graph input, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Name of a graph input.
    pub name: String,
    /// Elements as they were written: numbers, or `true` and `false`.
    pub elements: Vec<String>,
}

/// Why a text is no [`ValueSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {why}")]
pub struct ValueError {
    /// The text.
    pub text: String,
    /// What is wrong.
    pub why: String,
}

impl ValueSpec {
    /// Reads `NAME=VALUE,VALUE,…`; nothing after the `=` is a tensor without elements.
    ///
    /// # Errors
    /// No `=`, no name, an element that is neither a number nor a truth value.
    pub fn parse(text: &str) -> Result<ValueSpec, ValueError> {
        let fail = |why: String| ValueError { text: text.to_owned(), why };
        let (name, list) = text.rsplit_once('=').ok_or_else(|| fail("there is no `=`".into()))?;
        if name.is_empty() {
            return Err(fail("there is no name".into()));
        }
        let elements: Vec<String> = match list.trim() {
            "" => Vec::new(),
            list => list.split(',').map(|element| element.trim().to_owned()).collect(),
        };
        match elements.iter().find(|element| truth(element).is_none() && element.parse::<f64>().is_err()) {
            Some(element) => Err(fail(format!("`{element}` is no number"))),
            None => Ok(ValueSpec { name: name.to_owned(), elements }),
        }
    }
}

impl fmt::Display for ValueSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.elements.join(","))
    }
}

fn truth(text: &str) -> Option<bool> {
    text.parse().ok()
}

/// Makes the inputs that the specs name constants.
///
/// # Errors
/// A name that is no input, another number of elements than the input has, an element that its dtype does not hold.
pub fn run(module: &mut Module, specs: &[ValueSpec]) -> Result<(), Vec<Diag>> {
    let mut diags = Vec::new();
    for spec in specs {
        let result = input(module, spec).and_then(|id| Ok((id, tensor(module, id, spec)?)));
        match result {
            Ok((id, tensor)) => {
                let rest = module.graph.inputs().iter().copied().filter(|&input| input != id).collect();
                module.graph.set_inputs(rest);
                module.graph.set_constant(id, tensor);
            }
            Err(why) => diags.push(Diag::invalid(format!("--value {spec}: {why}"))),
        }
    }
    if diags.is_empty() { Ok(()) } else { Err(diags) }
}

fn input(module: &Module, spec: &ValueSpec) -> Result<ValueId, String> {
    let graph = &module.graph;
    graph.inputs().iter().copied().find(|&id| *graph[id].name == *spec.name).ok_or_else(|| {
        let names: Vec<&str> = graph.inputs().iter().map(|&id| &*graph[id].name).collect();
        format!("no input has this name; the inputs are {}", names.join(", "))
    })
}

fn tensor(module: &Module, id: ValueId, spec: &ValueSpec) -> Result<Tensor, String> {
    let ty = &module.graph[id].ty;
    let dtype = ty.dtype().ok_or("the input has no known dtype")?;
    let count = spec.elements.len() as i64;
    let dims: Vec<i64> = match ty.shape() {
        // The one dim that is open is what the elements make it.
        Some([dim]) => vec![dim.known().unwrap_or(count)],
        Some(shape) => {
            let known = shape.iter().map(Dim::known).collect::<Option<Vec<i64>>>();
            known.ok_or("the input's dims are not known before the run")?
        }
        None => vec![count],
    };
    if dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d)) != Some(count) {
        return Err(format!("{count} elements for an input of dims {dims:?}"));
    }
    let mut bytes = Vec::new();
    for element in &spec.elements {
        bytes.extend(encoded(dtype, element).ok_or_else(|| format!("`{element}` is no {dtype}"))?);
    }
    Tensor::new(dtype, dims, bytes.into()).ok_or_else(|| format!("an input of {dtype} cannot be given so"))
}

/// One element, little-endian; `None` when the dtype does not hold it, or has elements of less than a byte.
fn encoded(dtype: DType, text: &str) -> Option<Vec<u8>> {
    macro_rules! whole {
        ($type:ty) => {
            text.parse::<$type>().ok()?.to_le_bytes().to_vec()
        };
    }
    let real = || text.parse::<f64>().ok();
    Some(match dtype {
        DType::Bool => {
            let number = || text.parse::<i64>().ok().filter(|v| matches!(v, 0 | 1)).map(|v| v == 1);
            vec![u8::from(truth(text).or_else(number)?)]
        }
        DType::I8 => whole!(i8),
        DType::I16 => whole!(i16),
        DType::I32 => whole!(i32),
        DType::I64 => whole!(i64),
        DType::U8 => whole!(u8),
        DType::U16 => whole!(u16),
        DType::U32 => whole!(u32),
        DType::U64 => whole!(u64),
        DType::F64 => real()?.to_le_bytes().to_vec(),
        DType::F32 => text.parse::<f32>().ok()?.to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(real()?).to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::from_f64(real()?).to_le_bytes().to_vec(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{ValueSpec, run};
    use crate::{Module, Type, dim::Dim};
    use trtc_bundle::DType;

    fn module(dtype: DType, shape: &[Dim]) -> Module {
        let mut module = Module::default();
        let k = module.graph.add_input("k", Type::tensor(dtype, shape.to_vec()));
        let x = module.graph.add_input("x", Type::tensor(DType::F32, vec![Dim::Known(2)]));
        module.graph.set_outputs(vec![k, x]);
        module
    }

    fn pinned(dtype: DType, shape: &[Dim], text: &str) -> Result<Vec<f64>, String> {
        let mut module = module(dtype, shape);
        let k = module.graph.inputs()[0];
        let spec = ValueSpec::parse(text).map_err(|error| error.to_string())?;
        run(&mut module, &[spec]).map_err(|diags| diags[0].why.clone())?;
        assert_eq!(module.graph.inputs().len(), 1);
        let constant = module.graph[k].constant.clone().expect("a constant");
        assert_eq!(constant.dtype(), dtype);
        Ok(constant.to_f64s().expect("numbers"))
    }

    #[test]
    fn inputs_become_constants() {
        let known = |n| Dim::Known(n);
        assert_eq!(pinned(DType::I64, &[known(1)], "k=-7").unwrap(), [-7.0]);
        assert_eq!(pinned(DType::I64, &[Dim::Unknown], "k=1, 2,3").unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(pinned(DType::F32, &[], "k=1.5").unwrap(), [1.5]);
        assert_eq!(pinned(DType::F16, &[known(1), known(2)], "k=1e3,-0.5").unwrap(), [1000.0, -0.5]);
        let mut module = module(DType::Bool, &[known(2)]);
        run(&mut module, &[ValueSpec::parse("k=true,0").unwrap()]).unwrap();
        let bytes = module.graph.value_ids().find_map(|id| module.graph[id].constant.clone()).unwrap();
        assert_eq!(bytes.bytes().unwrap()[..], [1, 0]);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let known = |n| Dim::Known(n);
        let why = |dtype, shape: &[Dim], text: &str| pinned(dtype, shape, text).unwrap_err();
        assert!(why(DType::I64, &[known(2)], "k=1").contains("1 elements for an input of dims [2]"));
        assert!(why(DType::I64, &[], "k=1.5").contains("`1.5` is no i64"));
        assert!(why(DType::U8, &[], "k=300").contains("is no u8"));
        assert!(why(DType::I64, &[], "j=1").contains("the inputs are k, x"));
        assert!(why(DType::I64, &[Dim::Unknown, known(1)], "k=1").contains("not known"));
        for text in ["k", "=1", "k=one", "k=1,,2"] {
            assert!(ValueSpec::parse(text).is_err(), "{text}");
        }
        assert_eq!(ValueSpec::parse("a=b=1,2").unwrap().to_string(), "a=b=1,2");
    }
}
