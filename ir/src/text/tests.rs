//! The text form: hand-written texts, and random modules there and back.

use super::{Style, parse, parse_with, print, print_as};
use crate::{
    Attr, Attrs, Dim, Graph, Interval, Module, Node, OpKey, Tensor, Type, ValueId, types::TensorType, verify,
};
use bytes::Bytes;
use proptest::prelude::*;
use trtc_bundle::DType;

const SAMPLE: &str = r#"opset "" 21
opset "com.microsoft" 1
metadata "author" "a \"b\"\n\xff"
symbol N 1..8 opt 4
symbol "x.2" 1..
symbol n 0..10 unbacked
graph main(%x: f32[N x 3 x 2*N + 1], %"odd name": ?[..], %seq: seq(i64[?])) {
  const %shape: i64[2] = [0, -1]
  const %half: f16[3] = [0.5, -inf, 1e-7]
  const %flag: bool[] = [true]
  const %words: str[2] = ["a", "\xff"]
  const %fp8: f8e4m3[2] = hex"7f80"
  const %big: f32[4 x 5] = splat(0.25)
  %flat = Reshape-21(%x, %shape) : f32[N x 3*floordiv("x.2", 2)]
  %y, _, %z = Three-1(%flat, _, %half) @three {axis=-1, eps=1e-5, list=[1, 2], mode="linear", none=ints[], ratio=[0.5, 2.0]} : f32[N x n], ?, ?
  %g = com.microsoft.Gelu-1(%y)
  %s = Shape-21(%g) : i64[2] elements(N, max(1, n) - 1)
  %t = Make-1() {ty=type(map(str, opt(f32[..]))), value=tensor(i32[2] = [1, 2]), values=tensors(i64[] = [3], i64[0] = [])}
  %r = If-21(%flag) {else_branch=graph no() {
    const %c: f32[1] = [1.5]
    return %c
  }, then_branch=graph yes() captures(%y: f32[N x n] = %y, %inner: i64[2] elements(N, 2) = %s) {
    %k = Cast-21(%y) {to=1}
    return %k
  }} : f32[..]
  %last = "odd op"(%words, %fp8, %big, %g, %z, %t, %seq, %"odd name")
  return %r, %last, %s
}
"#;

#[test]
fn a_sample_reads_and_prints_as_it_stands() {
    let text = SAMPLE.replace(r#"metadata "author" "a \"b\"\n\xff""#, r#"metadata "author" "a \"b\"\n""#);
    let module = parse(&text).unwrap();
    assert_eq!(verify(&module), []);
    let again = print_as(&module, &Style { max_inline: 16, types: true });
    // Half of 1e-7 is no half float.
    assert_eq!(again, text.replace("1e-7", "1.1920929e-7"));
}

#[test]
fn mistakes_have_a_place() {
    let fails = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(fails(""), "line 1, column 1: there is no graph");
    assert!(fails(SAMPLE).contains("line 3, column 19: the string has to be UTF-8"));
    assert_eq!(fails("graph g(%x: f33[2]) {\n}"), "line 1, column 13: `f33` is no dtype");
    assert_eq!(
        fails("graph g() {\n  const %c: i64[2] = [1]\n}"),
        "line 2, column 22: the elements do not fit the type: it has 2 of i64"
    );
    assert!(fails("graph g() {\n  const %c: i8[1] = [200]\n}").contains("do not fit"));
    assert!(fails("graph g(%x: ?) {\n  %x = Relu-14(%x)\n}").contains("line 2, column 3: %x is made twice"));
    assert!(fails("graph g() {\n  %y = Relu-14(%x\n}").contains("line 3, column 1: `,` or `)` is wanted"));
    assert!(fails("graph g() {\n  %y = F() {a=[]}\n}").contains("an empty list needs its kind"));
    assert!(fails("graph g() {\n  const %c: i64[2] = hash\"00\"\n}").contains("are not in the text"));
    assert!(fails("graph g() { _ = F() }").contains("needs a name"));
    assert!(fails("graph g(%x: ?) captures(%a: ? = %b) {}").contains("captures nothing"));
    let deep = format!("graph g(%x: f32[{}1{}]) {{}}", "max(1, ".repeat(5000), ")".repeat(5000));
    assert!(fails(&deep).contains("nested more than"));
    let deep = format!("graph g(%x: {}?{}) {{}}", "seq(".repeat(5000), ")".repeat(5000));
    assert!(fails(&deep).contains("nested more than"));
    assert!(fails("opset \"a").contains("the string does not end"));
}

#[test]
fn large_constants_stand_as_hashes() {
    let values: Vec<i64> = (0..100).collect();
    let tensor = Tensor::from_i64s(&values);
    let mut module = Module::default();
    let c = module.graph.add_constant("c", tensor.clone());
    module.graph.add_output(c);
    let text = print(&module);
    assert!(text.contains("const %c: i64[100] = hash\""), "{text}");
    let read = parse_with(&text, &|_| tensor.bytes().cloned()).unwrap();
    assert_eq!(read.graph[read.graph.outputs()[0]].constant, Some(tensor));
    let full = print_as(&module, &Style::in_full());
    assert_eq!(print_as(&parse(&full).unwrap(), &Style::in_full()), full);
}

#[test]
fn types_can_be_left_out() {
    let text = "graph g(%x: f32[2]) {\n  %y = Relu-14(%x) : f32[2]\n  return %y\n}\n";
    let short = print_as(&parse(text).unwrap(), &Style::default().without_types());
    assert_eq!(short, "graph g(%x: f32[2]) {\n  %y = Relu-14(%x)\n  return %y\n}\n");
}

/// What a random module is made of: numbers that pick.
#[derive(Clone, Debug)]
struct Recipe {
    nodes: Vec<(usize, Vec<usize>, Vec<u32>, usize)>,
    names: Vec<String>,
    tensors: Vec<(usize, Vec<u8>)>,
    depth: usize,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let node = (
        0usize..100,
        prop::collection::vec(0usize..100, 0..4),
        prop::collection::vec(any::<u32>(), 0..4),
        0usize..3,
    );
    (
        prop::collection::vec(node, 0..8),
        prop::collection::vec("[ -~é]{0,6}", 30),
        prop::collection::vec((0usize..100, prop::collection::vec(any::<u8>(), 16)), 3),
        0usize..3,
    )
        .prop_map(|(nodes, names, tensors, depth)| Recipe { nodes, names, tensors, depth })
}

impl Recipe {
    fn tensor(&self, k: usize) -> Tensor {
        let (pick, bytes) = &self.tensors[k % self.tensors.len()];
        let dtype = DType::ALL[pick % DType::ALL.len()];
        if dtype == DType::Str {
            return Tensor::strings(vec![1], vec![Bytes::from(bytes.clone())].into()).unwrap();
        }
        let count = 2;
        let needed = dtype.bytes_for(count).unwrap();
        let mut bytes: Vec<u8> = bytes.iter().cycle().take(needed).copied().collect();
        if dtype == DType::Bool {
            bytes.iter_mut().for_each(|b| *b &= 1);
        }
        Tensor::new(dtype, vec![count as i64], bytes.into()).unwrap()
    }

    fn dim(&self, module: &mut Module, pick: u32) -> Dim {
        let symbol = |module: &mut Module, k: u32| {
            Dim::symbol(module.symbols.named(&self.names[k as usize % self.names.len()]))
        };
        let number = Dim::Known(i64::from(pick >> 8) % 50);
        match pick % 6 {
            0 => number,
            1 => Dim::Unknown,
            2 => symbol(module, pick / 6),
            3 => symbol(module, pick / 6).mul(&symbol(module, pick / 60)).sub(&number),
            4 => symbol(module, pick / 6).add(&number).floor_div(&symbol(module, pick / 60)),
            _ => symbol(module, pick / 6).max(&number).modulo(&Dim::Known(7)),
        }
    }

    fn ty(&self, module: &mut Module, picks: &[u32]) -> Type {
        let Some((&first, rest)) = picks.split_first() else { return Type::Unknown };
        let dtype = DType::ALL[first as usize % DType::ALL.len()];
        let shape = rest.iter().map(|&pick| self.dim(module, pick)).collect();
        let tensor =
            TensorType { dtype: (first % 7 != 0).then_some(dtype), shape: (first % 5 != 0).then_some(shape) };
        match first % 11 {
            0 => Type::Sequence(Box::new(Type::Tensor(tensor))),
            1 => Type::Map(dtype, Box::new(Type::Optional(Box::new(Type::Tensor(tensor))))),
            2 => Type::SparseTensor(tensor),
            _ => Type::Tensor(tensor),
        }
    }

    fn attr(&self, module: &mut Module, pick: u32, outer: &[ValueId], depth: usize) -> Attr {
        let name = self.names[pick as usize % self.names.len()].clone();
        let float = f32::from_bits(pick);
        let float = if float.is_nan() { f32::NAN } else { float };
        match pick % 14 {
            0 => Attr::Int(i64::from(pick) - 3_000_000_000),
            1 => Attr::Float(float),
            2 => Attr::Str(name.into()),
            3 => Attr::Tensor(self.tensor(pick as usize)),
            4 => Attr::Ints(vec![i64::MIN, 3][..pick as usize % 3].to_vec()),
            5 => Attr::Floats(vec![float, 1.0][..pick as usize % 3].to_vec()),
            6 => Attr::Strs(vec![name.into(), Bytes::from_static(b"\xff\x00")]),
            7 => Attr::Tensors(vec![self.tensor(1), self.tensor(2)]),
            8 => Attr::Type(self.ty(module, &[pick / 14, pick / 3])),
            9 => Attr::Opaque(Bytes::from(pick.to_le_bytes().to_vec())),
            10 if depth > 0 => {
                Attr::Graphs(vec![self.graph(module, outer, depth - 1), self.graph(module, &[], depth - 1)])
            }
            _ if depth > 0 => Attr::Graph(Box::new(self.graph(module, outer, depth - 1))),
            _ => Attr::Strs(Vec::new()),
        }
    }

    fn graph(&self, module: &mut Module, outer: &[ValueId], depth: usize) -> Graph {
        let mut graph = Graph::new(&self.names[depth]);
        let mut values: Vec<ValueId> = Vec::new();
        // A number keeps names apart.
        let name = |k: usize| format!("{}{k}", self.names[k % self.names.len()]);
        let ty = self.ty(module, &[9, 2, 3]);
        values.push(graph.add_input(&name(100), ty));
        for (k, &value) in outer.iter().take(2).enumerate() {
            let ty = self.ty(module, &[13, 26]);
            values.push(graph.add_capture(value, &name(200 + k), ty));
        }
        values.push(graph.add_constant(&name(300), self.tensor(depth)));
        for (k, (op, inputs, attrs, outputs)) in self.nodes.iter().enumerate() {
            let mut list = Attrs::new();
            for (j, &pick) in attrs.iter().enumerate() {
                let attr = self.attr(module, pick, &values, depth);
                list.set(&format!("{}{j}", self.names[j]), attr);
            }
            let inputs: Vec<Option<ValueId>> =
                inputs.iter().map(|&pick| (pick % 5 != 0).then(|| values[pick % values.len()])).collect();
            let outputs: Vec<Option<ValueId>> = (0..=*outputs)
                .map(|j| {
                    let ty = self.ty(module, attrs);
                    (j != 1).then(|| graph.add_value(&name(1000 + 10 * k + j), ty))
                })
                .collect();
            values.extend(outputs.iter().flatten());
            let key = OpKey::new(["", "com.x", "ai.onnx.ml"][op % 3], &format!("Op{op}"));
            let node_name = format!("{}#{k}", self.names[k]);
            graph.add_node(Node::new(&node_name, key, (op % 4) as u32, list, inputs, outputs));
        }
        graph.add_output(values[values.len() / 2]);
        graph.add_output(values[values.len() - 1]);
        graph
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_modules_come_back(recipe in recipe()) {
        let mut module = Module::default();
        module.graph = recipe.graph(&mut module, &[], recipe.depth);
        for k in 0..module.symbols.iter().count() as u32 {
            if k % 3 == 0 {
                module.symbols.set_range(crate::Symbol(k), Interval { min: Some(-1), max: (k % 2 == 0).then_some(9) });
            }
        }
        prop_assert_eq!(verify(&module), []);
        let style = Style::in_full();
        let text = print_as(&module, &style);
        let read = parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(verify(&read), []);
        prop_assert_eq!(print_as(&read, &style), text);
    }

    #[test]
    fn random_text_is_an_error_and_no_panic(text in "(graph |%a|%b|=|\\(|\\)|\\{|\\}|:|f32|\\[|\\]|const|1|\\.\\.|,| |Op|-|\"|x|return|\\n){0,40}") {
        let _ = parse(&text);
    }
}
