//! The evaluator against results worked out by hand from the operators' text in the ONNX specification.

#![allow(clippy::cloned_ref_to_slice_refs, reason = "a list of inputs reads alike whatever its length")]

use super::{KNOWN, evaluate};
use crate::{Attr, Attrs, Graph, Node, NodeView, OpKey, Symbols, Tensor, Type, tensor::TensorData};
use bytes::Bytes;
use trtc_bundle::DType;

fn i64s(dims: &[i64], values: &[i64]) -> Tensor {
    Tensor::from_i64s(values).with_dims(dims.to_vec()).unwrap()
}

fn f32s(dims: &[i64], values: &[f32]) -> Tensor {
    Tensor::from_f32s(dims.to_vec(), values).unwrap()
}

fn bools(dims: &[i64], values: &[u8]) -> Tensor {
    Tensor::new(DType::Bool, dims.to_vec(), values.to_vec().into()).unwrap()
}

fn of(dtype: DType, dims: &[i64], bytes: &[u8]) -> Tensor {
    Tensor::new(dtype, dims.to_vec(), bytes.to_vec().into()).unwrap()
}

fn strs(values: &[&'static str]) -> Tensor {
    let list: Vec<Bytes> = values.iter().map(|s| Bytes::from_static(s.as_bytes())).collect();
    Tensor::strings(vec![values.len() as i64], list.into()).unwrap()
}

fn int(name: &'static str, value: i64) -> (&'static str, Attr) {
    (name, Attr::Int(value))
}

fn string(name: &'static str, value: &'static str) -> (&'static str, Attr) {
    (name, Attr::Str(Bytes::from_static(value.as_bytes())))
}

struct Case {
    attrs: Vec<(&'static str, Attr)>,
    outputs: usize,
}

fn plain() -> Case {
    Case { attrs: vec![], outputs: 1 }
}

fn with(attrs: Vec<(&'static str, Attr)>) -> Case {
    Case { attrs, outputs: 1 }
}

impl Case {
    fn outputs(mut self, n: usize) -> Case {
        self.outputs = n;
        self
    }

    fn all(self, op: &str, inputs: &[Option<Tensor>]) -> Option<Result<Vec<Tensor>, String>> {
        assert!(KNOWN.contains(&op), "{op}");
        let mut graph = Graph::new("g");
        let mut attrs = Attrs::new();
        for (name, attr) in self.attrs {
            attrs.set(name, attr);
        }
        let ids: Vec<_> = inputs
            .iter()
            .enumerate()
            .map(|(k, t)| t.clone().map(|t| graph.add_constant(&format!("c{k}"), t)))
            .collect();
        let outputs: Vec<_> =
            (0..self.outputs).map(|k| Some(graph.add_value(&format!("y{k}"), Type::Unknown))).collect();
        let node = graph.add_node(Node::new("n", OpKey::new("", op), 13, attrs, ids, outputs));
        let symbols = Symbols::default();
        let refs: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
        evaluate(NodeView::new(&graph, &symbols, node), &refs).map(|r| r.map_err(|d| d.to_string()))
    }

    fn one(self, op: &str, inputs: &[Tensor]) -> Tensor {
        let inputs: Vec<Option<Tensor>> = inputs.iter().cloned().map(Some).collect();
        let mut list = self.all(op, &inputs).unwrap().unwrap();
        assert_eq!(list.len(), 1);
        list.remove(0)
    }

    fn skipped(self, op: &str, inputs: &[Tensor]) -> bool {
        let inputs: Vec<Option<Tensor>> = inputs.iter().cloned().map(Some).collect();
        self.all(op, &inputs).is_none()
    }

    fn wrong(self, op: &str, inputs: &[Tensor]) -> String {
        let inputs: Vec<Option<Tensor>> = inputs.iter().cloned().map(Some).collect();
        self.all(op, &inputs).unwrap().unwrap_err()
    }
}

#[test]
fn the_list_of_operators_is_sorted() {
    assert!(KNOWN.is_sorted());
}

#[test]
fn shapes_and_views() {
    let x = i64s(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(plain().one("Shape", &[x.clone()]), i64s(&[2], &[2, 3]));
    assert_eq!(with(vec![int("start", -1)]).one("Shape", &[x.clone()]), i64s(&[1], &[3]));
    assert_eq!(with(vec![int("start", -9), int("end", 1)]).one("Shape", &[x.clone()]), i64s(&[1], &[2]));
    assert_eq!(plain().one("Size", &[x.clone()]), Tensor::scalar_i64(6));
    let shape = |list: &[i64]| Tensor::from_i64s(list);
    assert_eq!(plain().one("Reshape", &[x.clone(), shape(&[0, -1, 1])]).dims(), [2, 3, 1]);
    assert!(plain().wrong("Reshape", &[x.clone(), shape(&[4, -1])]).contains("no solution"));
    assert!(plain().wrong("Reshape", &[x.clone(), shape(&[0, 0, 0])]).contains("copies dim 2"));
    let none = Tensor::empty(DType::F32, vec![0, 3]).unwrap();
    assert_eq!(
        with(vec![int("allowzero", 1)]).one("Reshape", &[none.clone(), shape(&[3, 0])]).dims(),
        [3, 0]
    );
    assert_eq!(with(vec![int("axis", 0)]).one("Flatten", &[x.clone()]).dims(), [1, 6]);
    assert_eq!(with(vec![int("axis", 2)]).one("Flatten", &[x.clone()]).dims(), [6, 1]);
    assert_eq!(plain().one("Unsqueeze", &[x.clone(), shape(&[0, -1])]).dims(), [1, 2, 3, 1]);
    let y = i64s(&[1, 2, 1], &[7, 8]);
    assert_eq!(plain().one("Squeeze", &[y.clone()]).dims(), [2]);
    assert_eq!(plain().one("Squeeze", &[y.clone(), shape(&[-1])]).dims(), [1, 2]);
    assert!(plain().wrong("Squeeze", &[y, shape(&[1])]).contains("size 2"));
}

#[test]
fn slices_clamp_as_the_specification_says() {
    let x = i64s(&[2, 4], &[1, 2, 3, 4, 5, 6, 7, 8]);
    let list = |v: &[i64]| Tensor::from_i64s(v);
    // The two examples of the specification's text.
    let args = [x.clone(), list(&[1, 0]), list(&[2, 3]), list(&[0, 1]), list(&[1, 2])];
    assert_eq!(plain().one("Slice", &args), i64s(&[1, 2], &[5, 7]));
    let args = [x.clone(), list(&[0, 1]), list(&[-1, 1000])];
    assert_eq!(plain().one("Slice", &args), i64s(&[1, 3], &[2, 3, 4]));
    let reversed = [x.clone(), list(&[-1]), list(&[i64::MIN]), list(&[1]), list(&[-1])];
    assert_eq!(plain().one("Slice", &reversed), i64s(&[2, 4], &[4, 3, 2, 1, 8, 7, 6, 5]));
    let nothing = [x.clone(), list(&[3]), list(&[1]), list(&[1])];
    assert_eq!(plain().one("Slice", &nothing).dims(), [2, 0]);
    // Going backwards, a start before the first element is the first element.
    let early = [x.clone(), list(&[-9]), list(&[i64::MIN]), list(&[1]), list(&[-1])];
    assert_eq!(plain().one("Slice", &early), i64s(&[2, 1], &[1, 5]));
    let unclear = [x.clone(), list(&[2]), list(&[i64::MAX]), list(&[1]), list(&[-1])];
    assert!(plain().skipped("Slice", &unclear));
    let far = [x.clone(), list(&[0]), list(&[i64::MAX]), list(&[1]), list(&[i64::MAX])];
    assert_eq!(plain().one("Slice", &far), i64s(&[2, 1], &[1, 5]));
    assert!(plain().wrong("Slice", &[x, list(&[0]), list(&[1]), list(&[7])]).contains("axis 7"));
}

#[test]
fn data_moves() {
    let x = i64s(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(plain().one("Transpose", &[x.clone()]), i64s(&[3, 2], &[1, 4, 2, 5, 3, 6]));
    let halves = of(DType::F16, &[3, 1], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(
        with(vec![("perm", Attr::Ints(vec![1, 0]))]).one("Transpose", &[halves]),
        of(DType::F16, &[1, 3], &[1, 2, 3, 4, 5, 6])
    );
    let y = i64s(&[2, 1], &[7, 8]);
    assert_eq!(
        with(vec![int("axis", -1)]).one("Concat", &[x.clone(), y.clone()]),
        i64s(&[2, 4], &[1, 2, 3, 7, 4, 5, 6, 8])
    );
    assert!(with(vec![int("axis", 0)]).wrong("Concat", &[x.clone(), y]).contains("differ off the axis"));
    let parts = with(vec![int("num_outputs", 2)]).outputs(2);
    let five = Some(i64s(&[5], &[1, 2, 3, 4, 5]));
    let parts = parts.all("Split", std::slice::from_ref(&five)).unwrap().unwrap();
    assert_eq!(parts, [i64s(&[3], &[1, 2, 3]), i64s(&[2], &[4, 5])]);
    let sized = plain().outputs(2).all("Split", &[five, Some(Tensor::from_i64s(&[4, 1]))]).unwrap().unwrap();
    assert_eq!(sized[1], i64s(&[1], &[5]));
    let column = i64s(&[3, 1], &[1, 2, 3]);
    // The specification's examples of Expand and Tile.
    assert_eq!(plain().one("Expand", &[column.clone(), Tensor::from_i64s(&[3, 4])]).dims(), [3, 4]);
    assert_eq!(
        plain().one("Expand", &[column, Tensor::from_i64s(&[2, 1, 2])]),
        i64s(&[2, 3, 2], &[1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3])
    );
    let square = i64s(&[2, 2], &[0, 1, 2, 3]);
    assert_eq!(
        plain().one("Tile", &[square.clone(), Tensor::from_i64s(&[1, 2])]),
        i64s(&[2, 4], &[0, 1, 0, 1, 2, 3, 2, 3])
    );
    assert_eq!(
        plain().one("Pad", &[square.clone(), Tensor::from_i64s(&[0, 1, 1, 0]), Tensor::scalar_i64(9)]),
        i64s(&[3, 3], &[9, 0, 1, 9, 2, 3, 9, 9, 9])
    );
    assert_eq!(
        plain().one("Pad", &[square.clone(), Tensor::from_i64s(&[0, -1, 0, 0])]),
        i64s(&[2, 1], &[1, 3])
    );
    assert!(with(vec![string("mode", "edge")]).skipped("Pad", &[square.clone(), Tensor::from_i64s(&[0; 4])]));
    let where_ = plain().one("Where", &[bools(&[2, 1], &[1, 0]), square.clone(), Tensor::scalar_i64(9)]);
    assert_eq!(where_, i64s(&[2, 2], &[0, 1, 9, 9]));
    assert_eq!(plain().one("Trilu", &[square.clone()]), i64s(&[2, 2], &[0, 1, 0, 3]));
    let lower = with(vec![int("upper", 0)]);
    assert_eq!(lower.one("Trilu", &[square, Tensor::scalar_i64(-1)]), i64s(&[2, 2], &[0, 0, 2, 0]));
}

#[test]
fn data_moves_below_a_byte_and_as_strings() {
    // Three 4-bit elements 1, 2, 3: low nibble first.
    let x = of(DType::I4, &[3], &[0x21, 0x03]);
    let indices = Tensor::from_i64s(&[2, 0, 1]);
    assert_eq!(plain().one("Gather", &[x, indices]), of(DType::I4, &[3], &[0x13, 0x02]));
    let words = strs(&["a", "b", "c"]);
    let list = plain().one("Gather", &[words, Tensor::from_i64s(&[-1, 0])]);
    let TensorData::Strings(list) = list.data() else { panic!() };
    assert_eq!(list[..], [Bytes::from_static(b"c"), Bytes::from_static(b"a")]);
}

#[test]
fn indices() {
    // Examples of the specification.
    let data = f32s(&[3, 2], &[1.0, 1.2, 2.3, 3.4, 4.5, 5.7]);
    let gathered = plain().one("Gather", &[data, i64s(&[2, 2], &[0, 1, 1, 2])]);
    assert_eq!(gathered, f32s(&[2, 2, 2], &[1.0, 1.2, 2.3, 3.4, 2.3, 3.4, 4.5, 5.7]));
    let square = i64s(&[2, 2], &[1, 2, 3, 4]);
    assert_eq!(
        with(vec![int("axis", 1)]).one("GatherElements", &[square.clone(), i64s(&[2, 2], &[0, 0, 1, 0])]),
        i64s(&[2, 2], &[1, 1, 4, 3])
    );
    let data = i64s(&[2, 2], &[0, 1, 2, 3]);
    assert_eq!(plain().one("GatherND", &[data.clone(), i64s(&[2, 2], &[0, 0, 1, 1])]), i64s(&[2], &[0, 3]));
    assert_eq!(plain().one("GatherND", &[data, i64s(&[2, 1], &[1, 0])]), i64s(&[2, 2], &[2, 3, 0, 1]));
    let cube = i64s(&[2, 2, 2], &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(
        with(vec![int("batch_dims", 1)]).one("GatherND", &[cube, i64s(&[2, 1], &[1, 0])]),
        i64s(&[2, 2], &[2, 3, 4, 5])
    );
    let eight = Tensor::from_i64s(&[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        plain().one("ScatterND", &[eight, i64s(&[4, 1], &[4, 3, 1, 7]), Tensor::from_i64s(&[9, 10, 11, 12])]),
        Tensor::from_i64s(&[1, 11, 3, 10, 9, 6, 7, 12])
    );
    let row = f32s(&[1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(
        with(vec![int("axis", 1)])
            .one("ScatterElements", &[row, i64s(&[1, 2], &[1, 3]), f32s(&[1, 2], &[1.1, 2.1])]),
        f32s(&[1, 5], &[1.0, 1.1, 3.0, 2.1, 5.0])
    );
    assert_eq!(plain().one("NonZero", &[bools(&[2, 2], &[1, 0, 1, 1])]), i64s(&[2, 3], &[0, 1, 1, 0, 0, 1]));
    assert_eq!(
        plain().one(
            "OneHot",
            &[Tensor::from_i64s(&[1, -1, 9]), Tensor::scalar_i64(3), Tensor::from_i64s(&[5, 7])]
        ),
        i64s(&[3, 3], &[5, 7, 5, 5, 5, 7, 5, 5, 5])
    );
    assert_eq!(
        with(vec![int("axis", 0)])
            .one("OneHot", &[Tensor::from_i64s(&[1, 0]), Tensor::scalar_i64(2), Tensor::from_i64s(&[0, 1])]),
        i64s(&[2, 2], &[0, 1, 1, 0])
    );
    let wrong = plain().wrong("Gather", &[square, Tensor::scalar_i64(2)]);
    assert_eq!(wrong, "node `n` (Gather): index 2 is out of range for size 2");
}

#[test]
fn integer_arithmetic() {
    let (a, b) = (Tensor::from_i64s(&[-7, 7, 5]), Tensor::from_i64s(&[2, -2, 3]));
    let two = |op: &str| plain().one(op, &[a.clone(), b.clone()]);
    assert_eq!(two("Div"), Tensor::from_i64s(&[-3, -3, 1]));
    assert_eq!(two("Mod"), Tensor::from_i64s(&[1, -1, 2]));
    assert_eq!(
        with(vec![int("fmod", 1)]).one("Mod", &[a.clone(), b.clone()]),
        Tensor::from_i64s(&[-1, 1, 2])
    );
    assert_eq!(two("Sub"), Tensor::from_i64s(&[-9, 9, 2]));
    assert_eq!(two("Min"), Tensor::from_i64s(&[-7, -2, 3]));
    assert_eq!(
        plain().one("Max", &[a.clone(), b.clone(), Tensor::scalar_i64(4)]),
        Tensor::from_i64s(&[4, 7, 5])
    );
    assert_eq!(
        plain().one("Pow", &[Tensor::from_i64s(&[3, 2]), Tensor::from_i64s(&[4, 0])]),
        Tensor::from_i64s(&[81, 1])
    );
    assert!(plain().skipped("Pow", &[a.clone(), b.clone()]));
    assert!(plain().skipped("Div", &[a.clone(), Tensor::scalar_i64(0)]));
    let bytes = of(DType::I8, &[2], &[127, 0x80]);
    assert_eq!(plain().one("Add", &[bytes.clone(), bytes.clone()]), of(DType::I8, &[2], &[254, 0]));
    assert_eq!(plain().one("Neg", std::slice::from_ref(&bytes)), of(DType::I8, &[2], &[0x81, 0x80]));
    assert_eq!(plain().one("Sign", &[a.clone()]), Tensor::from_i64s(&[-1, 1, 1]));
    assert_eq!(plain().one("Less", &[a.clone(), b]), bools(&[3], &[1, 0, 0]));
    let big = of(DType::U64, &[1], &u64::MAX.to_le_bytes());
    assert_eq!(
        plain().one("Greater", &[big.clone(), of(DType::U64, &[], &1u64.to_le_bytes())]),
        bools(&[1], &[1])
    );
    assert_eq!(plain().one("Mul", &[big.clone(), big]), of(DType::U64, &[1], &1u64.to_le_bytes()));
    let bounds = [a, Tensor::scalar_i64(0), Tensor::scalar_i64(6)];
    assert_eq!(plain().one("Clip", &bounds), Tensor::from_i64s(&[0, 6, 5]));
    assert_eq!(plain().one("Xor", &[bools(&[2], &[1, 0]), bools(&[], &[1])]), bools(&[2], &[0, 1]));
    let wrong = plain().wrong("Add", &[Tensor::from_i64s(&[1, 2]), Tensor::from_i64s(&[1, 2, 3])]);
    assert!(wrong.contains("do not broadcast"), "{wrong}");
}

#[test]
fn float_arithmetic_is_rounded_once() {
    let x = f32s(&[3], &[1.0, 3.0, 2.5]);
    let third = plain().one("Div", &[x.clone(), f32s(&[], &[3.0])]);
    assert_eq!(third, f32s(&[3], &[1.0 / 3.0, 1.0, 2.5 / 3.0]));
    assert_eq!(plain().one("Round", &[f32s(&[3], &[0.5, 1.5, -2.5])]), f32s(&[3], &[0.0, 2.0, -2.0]));
    assert_eq!(plain().one("Floor", &[f32s(&[1], &[-0.5])]), f32s(&[1], &[-1.0]));
    assert_eq!(plain().one("Sqrt", &[f32s(&[1], &[2.0])]), f32s(&[1], &[std::f32::consts::SQRT_2]));
    assert!(plain().skipped("Max", &[f32s(&[1], &[f32::NAN]), x.clone()]));
    assert!(plain().skipped("Pow", &[x.clone(), x.clone()]));
    assert_eq!(plain().one("Equal", &[f32s(&[1], &[f32::NAN]), f32s(&[1], &[f32::NAN])]), bools(&[1], &[0]));
    assert_eq!(
        with(vec![int("detect_negative", 0)])
            .one("IsInf", &[f32s(&[2], &[f32::INFINITY, f32::NEG_INFINITY])]),
        bools(&[2], &[1, 0])
    );
    // 1 + 2^-11 lies half way between two half floats: to even.
    let half = |v: f32| of(DType::F16, &[1], &half::f16::from_f32(v).to_le_bytes());
    assert_eq!(plain().one("Add", &[half(1.0), half(0.00048828125)]), half(1.0));
}

#[test]
fn casts() {
    let to = |dtype: DType| with(vec![int("to", dtype.onnx().into())]);
    assert_eq!(to(DType::I64).one("Cast", &[f32s(&[3], &[1.9, -1.9, 0.0])]), Tensor::from_i64s(&[1, -1, 0]));
    assert!(to(DType::I32).skipped("Cast", &[f32s(&[1], &[3e9])]));
    assert!(to(DType::U8).skipped("Cast", &[f32s(&[1], &[-1.0])]));
    assert!(to(DType::I64).skipped("Cast", &[f32s(&[1], &[f32::NAN])]));
    assert!(to(DType::I64).skipped("Cast", &[f32s(&[1], &[9.223_372e18])]));
    assert_eq!(to(DType::Bool).one("Cast", &[f32s(&[3], &[0.0, 0.1, -0.0])]), bools(&[3], &[0, 1, 0]));
    assert_eq!(to(DType::I8).one("Cast", &[Tensor::from_i64s(&[300, -1])]), of(DType::I8, &[2], &[44, 255]));
    // 2^24 + 1 is half way between two floats: to even.
    assert_eq!(to(DType::F32).one("Cast", &[Tensor::from_i64s(&[16_777_217])]), f32s(&[1], &[16_777_216.0]));
    let half = to(DType::F16).one("Cast", &[f32s(&[2], &[65_504.0, 1e6])]);
    assert_eq!(half.to_f64s().unwrap(), [65_504.0, f64::INFINITY]);
    assert_eq!(plain().one("CastLike", &[Tensor::from_i64s(&[2]), f32s(&[], &[0.0])]), f32s(&[1], &[2.0]));
}

#[test]
fn reductions() {
    let x = i64s(&[2, 3], &[3, 1, 2, 6, 5, 4]);
    let on = |axis: i64| Tensor::from_i64s(&[axis]);
    assert_eq!(plain().one("ReduceSum", &[x.clone(), on(1)]), i64s(&[2, 1], &[6, 15]));
    assert_eq!(plain().one("ReduceProd", &[x.clone()]), i64s(&[1, 1], &[720]));
    let flat = || with(vec![int("keepdims", 0)]);
    assert_eq!(flat().one("ReduceMax", &[x.clone(), on(0)]), i64s(&[3], &[6, 5, 4]));
    assert_eq!(flat().one("ReduceMin", &[x.clone(), on(-1)]), i64s(&[2], &[1, 4]));
    let noop = with(vec![int("noop_with_empty_axes", 1)]);
    assert_eq!(noop.one("ReduceSum", &[x.clone()]), x);
    let none = Tensor::empty(DType::F32, vec![0, 2]).unwrap();
    assert_eq!(flat().one("ReduceSum", &[none.clone(), on(0)]), f32s(&[2], &[0.0, 0.0]));
    assert_eq!(flat().one("ReduceProd", &[none.clone(), on(0)]), f32s(&[2], &[1.0, 1.0]));
    assert!(flat().skipped("ReduceMax", &[none, on(0)]));
    assert!(flat().skipped("ReduceSum", &[f32s(&[2], &[0.1, 0.2])]));
    assert_eq!(with(vec![int("axis", 1)]).one("ArgMax", &[x.clone()]), i64s(&[2, 1], &[0, 0]));
    let last = with(vec![int("select_last_index", 1), int("keepdims", 0)]);
    assert_eq!(last.one("ArgMin", &[i64s(&[3], &[1, 0, 0])]), Tensor::scalar_i64(2));
    let five = Tensor::from_i64s(&[1, 2, 3, 4, 5]);
    let zero = Tensor::scalar_i64(0);
    assert_eq!(plain().one("CumSum", &[five.clone(), zero.clone()]), Tensor::from_i64s(&[1, 3, 6, 10, 15]));
    let both = with(vec![int("exclusive", 1), int("reverse", 1)]);
    assert_eq!(both.one("CumSum", &[five, zero]), Tensor::from_i64s(&[14, 12, 9, 5, 0]));
}

#[test]
fn makers() {
    let s = |v: i64| Tensor::scalar_i64(v);
    // The specification's two examples of Range.
    assert_eq!(plain().one("Range", &[s(3), s(9), s(3)]), Tensor::from_i64s(&[3, 6]));
    assert_eq!(plain().one("Range", &[s(10), s(4), s(-2)]), Tensor::from_i64s(&[10, 8, 6]));
    assert_eq!(plain().one("Range", &[s(0), s(5), s(2)]), Tensor::from_i64s(&[0, 2, 4]));
    assert_eq!(plain().one("Range", &[s(5), s(0), s(2)]), Tensor::from_i64s(&[]));
    assert!(plain().skipped("Range", &[s(0), s(i64::MAX), s(1)]));
    assert_eq!(plain().one("ConstantOfShape", &[Tensor::from_i64s(&[2, 1])]), f32s(&[2, 1], &[0.0, 0.0]));
    let sevens = with(vec![("value", Attr::Tensor(Tensor::from_i64s(&[7])))]);
    assert_eq!(sevens.one("ConstantOfShape", &[Tensor::from_i64s(&[])]), Tensor::scalar_i64(7));
    assert!(plain().skipped("ConstantOfShape", &[Tensor::from_i64s(&[1 << 20])]));
    assert!(plain().wrong("ConstantOfShape", &[Tensor::from_i64s(&[-1])]).contains("negative"));
    let eye = with(vec![int("k", 1), int("dtype", DType::I64.onnx().into())]);
    assert_eq!(eye.one("EyeLike", &[f32s(&[2, 2], &[0.0; 4])]), i64s(&[2, 2], &[0, 1, 0, 0]));
    assert_eq!(with(vec![int("value_int", 4)]).one("Constant", &[]), s(4));
}

#[test]
fn older_forms_are_left_alone_or_mean_the_same() {
    let x = i64s(&[1, 2], &[7, 8]);
    assert_eq!(with(vec![("axes", Attr::Ints(vec![0]))]).one("Squeeze", &[x.clone()]).dims(), [2]);
    let old = with(vec![("starts", Attr::Ints(vec![0])), ("ends", Attr::Ints(vec![1]))]);
    assert!(old.skipped("Slice", &[x.clone()]));
    assert!(with(vec![int("broadcast", 1), int("axis", 0)]).skipped("Add", &[x.clone(), x]));
}
