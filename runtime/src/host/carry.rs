//! Graphs whose inputs and outputs hold dtypes that TensorRT does not have in others: an engine's bindings are so, and a
//! network that is run in place of its engine is like the engine.

use super::{HostError, HostGraph, HostOutput};
use crate::{
    tensor::Tensor,
    value::{Input, Value},
};
use smallvec::SmallVec;
use std::sync::Arc;
use trtc_bundle::{DType, ValueInfo, narrowed, widened};

/// As many inputs and outputs as most graphs have at most.
const FEW: usize = 16;

/// A graph with the values' own dtypes at its ports.
struct Carrying {
    inner: Arc<dyn HostGraph>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
}

/// The graph with the dtypes that `own` gives for the names of its ports. Each value is converted, exactly, between that
/// dtype and the graph's ([`trtc_bundle::widened`], [`trtc_bundle::narrowed`]). Without any difference the graph itself.
pub fn carrying(inner: Arc<dyn HostGraph>, own: &dyn Fn(&str) -> Option<DType>) -> Arc<dyn HostGraph> {
    let ports = |ports: &[ValueInfo]| -> Vec<ValueInfo> {
        let port = |port: &ValueInfo| {
            let mut port = port.clone();
            let carried = own(&port.name).filter(|dtype| dtype.binding() == Some(port.dtype));
            port.dtype = carried.unwrap_or(port.dtype);
            port
        };
        ports.iter().map(port).collect()
    };
    let (inputs, outputs) = (ports(inner.inputs()), ports(inner.outputs()));
    if inputs == inner.inputs() && outputs == inner.outputs() {
        return inner;
    }
    Arc::new(Carrying { inner, inputs, outputs })
}

impl Carrying {
    /// What the graph itself is given for an input; `None` where that is the value as it is.
    fn widen(&self, k: usize, input: &Input<'_>) -> Result<Option<Tensor>, HostError> {
        let (Some(own), Some(held)) = (self.inputs.get(k), self.inner.inputs().get(k)) else {
            return Ok(None);
        };
        let Input::Tensor(tensor) = input else { return Ok(None) };
        if own.dtype == held.dtype || tensor.dtype() != own.dtype {
            return Ok(None);
        }
        let count = tensor.dims().iter().product();
        let bytes = widened(own.dtype, count, tensor.bytes())
            .ok_or_else(|| HostError::Unsupported(format!("`{}` as {}", own.name, held.dtype)))?;
        Ok(Some(Tensor::from_bytes(held.dtype, tensor.dims(), &bytes)?))
    }

    /// Puts what the graph gave for output `k` where the caller wants it.
    fn narrow(&self, k: usize, given: HostOutput<'_>, wanted: &mut HostOutput<'_>) -> Result<(), HostError> {
        let (port, held) = (&self.outputs[k], self.inner.outputs()[k].dtype);
        let refuse = |what: &str| {
            HostError::Unsupported(format!("`{}`, {held} for {}: {what}", port.name, port.dtype))
        };
        let value = match given {
            HostOutput::New(value) => value.into_read()?,
            HostOutput::Into { .. } => return Err(refuse("it was written in place")),
        };
        let Value::Tensor(tensor) = value else { return Err(refuse("it is no tensor")) };
        let count = tensor.dims().iter().product();
        let narrow = narrowed(port.dtype, count, tensor.bytes())
            .ok_or_else(|| refuse("a value lies outside of the dtype"))?;
        match wanted {
            HostOutput::Into { dims, bytes, .. } if *dims == tensor.dims() && bytes.len() == narrow.len() => {
                bytes.copy_from_slice(&narrow);
            }
            HostOutput::Into { .. } => return Err(refuse("its dims are others")),
            HostOutput::New(value) => {
                *value = Value::Tensor(Tensor::from_bytes(port.dtype, tensor.dims(), &narrow)?);
            }
        }
        Ok(())
    }
}

impl HostGraph for Carrying {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn run(&self, inputs: &[Input<'_>], outputs: &mut [HostOutput<'_>]) -> Result<(), HostError> {
        let wide: SmallVec<[Option<Tensor>; FEW]> =
            inputs.iter().enumerate().map(|(k, input)| self.widen(k, input)).collect::<Result<_, _>>()?;
        let given: SmallVec<[Input<'_>; FEW]> =
            inputs.iter().zip(&wide).map(|(input, wide)| wide.as_ref().map_or(*input, Input::from)).collect();
        let held = |k: usize| self.outputs[k].dtype != self.inner.outputs()[k].dtype;
        let mut made: SmallVec<[HostOutput<'_>; FEW]> = outputs
            .iter_mut()
            .enumerate()
            .map(|(k, output)| match held(k) {
                true => HostOutput::New(Value::Nothing),
                false => std::mem::replace(output, HostOutput::New(Value::Nothing)),
            })
            .collect();
        self.inner.run(&given, &mut made)?;
        for (k, (made, wanted)) in made.into_iter().zip(outputs).enumerate() {
            match held(k) {
                true => self.narrow(k, made, wanted)?,
                false => *wanted = made,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{HostError, HostGraph, HostOutput, Input, carrying};
    use crate::{Tensor, Value};
    use std::sync::Arc;
    use trtc_bundle::{DType, ValueInfo};

    /// Hands its one input out.
    struct Echo(ValueInfo, ValueInfo);

    impl HostGraph for Echo {
        fn inputs(&self) -> &[ValueInfo] {
            std::slice::from_ref(&self.0)
        }

        fn outputs(&self) -> &[ValueInfo] {
            std::slice::from_ref(&self.1)
        }

        fn run(&self, inputs: &[Input<'_>], outputs: &mut [HostOutput<'_>]) -> Result<(), HostError> {
            let Input::Tensor(x) = inputs[0] else { panic!("a tensor") };
            assert_eq!(x.dtype(), self.0.dtype);
            outputs[0] = HostOutput::New(Value::Tensor(x.to_tensor()));
            Ok(())
        }
    }

    fn echo(dtype: DType) -> Arc<dyn HostGraph> {
        Arc::new(Echo(ValueInfo::tensor("x", dtype, None), ValueInfo::tensor("y", dtype, None)))
    }

    #[test]
    fn values_come_back_in_their_own_dtype() {
        let graph = carrying(echo(DType::I32), &|_| Some(DType::U16));
        assert_eq!((graph.inputs()[0].dtype, graph.outputs()[0].dtype), (DType::U16, DType::U16));
        let x = Tensor::from_bytes(DType::U16, &[2], &[1, 2, 0xff, 0xff]).unwrap();
        let mut new = [HostOutput::New(Value::Nothing)];
        graph.run(&[Input::from(&x)], &mut new).unwrap();
        let HostOutput::New(Value::Tensor(y)) = &new[0] else { panic!("a tensor") };
        assert_eq!((y.dtype(), y.bytes()), (DType::U16, x.bytes()));
        let mut bytes = [0u8; 4];
        let mut place = [HostOutput::Into { dtype: DType::U16, dims: &[2], bytes: &mut bytes }];
        graph.run(&[Input::from(&x)], &mut place).unwrap();
        assert_eq!(bytes, x.bytes());
    }

    #[test]
    fn a_graph_that_carries_nothing_is_itself() {
        let graph = echo(DType::F32);
        assert!(Arc::ptr_eq(&graph, &carrying(graph.clone(), &|_| Some(DType::F32))));
    }

    #[test]
    fn a_value_outside_of_the_dtype_is_an_error() {
        let inner = Arc::new(Echo(
            ValueInfo::tensor("x", DType::F16, None),
            ValueInfo::tensor("y", DType::F16, None),
        ));
        let graph = carrying(inner, &|name| (name == "y").then_some(DType::F8E5M2));
        let x = Tensor::from_bytes(DType::F16, &[1], &half::f16::from_f32(1.1).to_le_bytes()).unwrap();
        let error = graph.run(&[Input::from(&x)], &mut [HostOutput::New(Value::Nothing)]).unwrap_err();
        assert!(error.to_string().contains("outside of the dtype"), "{error}");
    }
}
