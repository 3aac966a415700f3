//! Ranges over modules of one input and the demands that real networks make.

use super::*;
use crate::{Infer, verify};
use trtc_bundle::DType;

/// Input `name` with dims of names (symbols), `?`, or numbers.
fn input(module: &mut Module, name: &str, dtype: DType, dims: &[&str]) -> Vec<Dim> {
    let dims: Vec<Dim> = dims
        .iter()
        .map(|text| match (text.parse(), *text) {
            (Ok(value), _) => Dim::Known(value),
            (_, "?") => Dim::Unknown,
            (_, name) => Dim::symbol(module.symbols.named(name)),
        })
        .collect();
    let id = module.graph.add_input(name, Type::tensor(dtype, dims.clone()));
    module.graph.add_output(id);
    dims
}

fn demand(kind: ConstraintKind) -> Constraint {
    Constraint { node: "n".to_owned(), kind }
}

fn equal(a: Dim, b: Dim) -> Constraint {
    demand(ConstraintKind::Equal(a, b))
}

fn specs(list: &[&str]) -> Vec<ShapeSpec> {
    list.iter().map(|text| ShapeSpec::parse(text).unwrap()).collect()
}

fn lines(module: &mut Module, shapes: &[&str], demands: &[Constraint]) -> Result<Vec<String>, Vec<String>> {
    let show = |list: Vec<Diag>| list.iter().map(Diag::to_string).collect::<Vec<String>>();
    let asked = apply(module, &specs(shapes)).map_err(show)?;
    let report = derive(module, &asked, demands).map_err(show)?;
    assert_eq!(verify(module), []);
    Ok(report.lines())
}

fn known(value: i64) -> Dim {
    Dim::Known(value)
}

/// A dim after `n` convolutions of stride 2 with "same" padding and kernel 3.
fn halved(dim: &Dim, n: usize) -> Dim {
    (0..n).fold(dim.clone(), |d, _| d.sub(&known(1)).floor_div(&known(2)).add(&known(1)))
}

#[test]
fn defaults_by_role() {
    let mut module = Module::default();
    input(&mut module, "image", DType::F32, &["N", "3", "?", "?"]);
    input(&mut module, "ids", DType::I64, &["N", "?"]);
    input(&mut module, "wave", DType::F32, &["1", "?"]);
    assert_eq!(
        lines(&mut module, &[], &[]).unwrap(),
        [
            "N: 1..1..8 (default)",
            "image.2: 1..640..1024 (default)",
            "image.3: 1..640..1024 (default)",
            "ids.1: 1..128..512 (default)",
            "wave.1: 1..256..4096 (default)",
        ]
    );
    let n = module.symbols.find("N").unwrap();
    assert_eq!(module.symbols.range(n), Interval::new(1, 8));
    assert_eq!(module.symbols.info(n).unwrap().opt, Some(1));
}

#[test]
fn a_feature_pyramid_needs_a_multiple() {
    let mut module = Module::default();
    input(&mut module, "x", DType::F32, &["1", "3", "H", "64"]);
    let h = Dim::symbol(module.symbols.find("H").unwrap());
    // Upsampled by 2 and added to the level above, five levels deep.
    let demands: Vec<Constraint> =
        (0..5).map(|k| equal(halved(&h, k + 1).mul(&known(2)), halved(&h, k))).collect();
    assert_eq!(lines(&mut module, &[], &demands).unwrap(), ["H: 32..640..1024 step 32 (derived)"]);
    // The same as additions that broadcast: 1 x 1 pixels would add up, but are not meant.
    let demands: Vec<Constraint> = demands
        .into_iter()
        .map(|constraint| match constraint.kind {
            ConstraintKind::Equal(a, b) => demand(ConstraintKind::Broadcast(a, b)),
            _ => constraint,
        })
        .collect();
    let again = |shapes: &[&str]| {
        let mut module = Module::default();
        input(&mut module, "x", DType::F32, &["1", "3", "H", "64"]);
        lines(&mut module, shapes, &demands).unwrap()
    };
    assert_eq!(again(&[]), ["H: 32..640..1024 step 32 (derived)"]);
    assert_eq!(again(&["H=1..32..64"]), ["H: 1..32..64 (user)"]);
}

#[test]
fn a_branch_demands_only_what_its_sibling_demands_too() {
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["1", "T"]);
    let at = |node: &str, kind: ConstraintKind| Constraint { node: node.to_owned(), kind };
    let five = ConstraintKind::Equal(x[1].clone(), known(5));
    let nine = ConstraintKind::AtLeast(x[1].clone(), 9);
    let demands = [at("if/then_branch/squeeze", five.clone()), at("if/then_branch/conv", nine)];
    assert_eq!(lines(&mut module, &[], &demands).unwrap(), ["T: 9..256..4096 (derived)"]);
    let both = [at("if/then_branch/a", five.clone()), at("if/else_branch/b", five)];
    let mut module = Module::default();
    input(&mut module, "x", DType::F32, &["1", "T"]);
    assert_eq!(lines(&mut module, &[], &both).unwrap(), ["T = 5 (derived)"]);
}

#[test]
fn a_single_valid_value_becomes_a_number() {
    let mut module = Module::default();
    input(&mut module, "x", DType::F32, &["N", "3", "?", "100"]);
    let asked = apply(&mut module, &[]).unwrap();
    let h = Dim::symbol(module.symbols.find("x.2").unwrap());
    // Reshaped to [-1, 40·48] after an operator that keeps the size.
    let report = derive(&mut module, &asked, &[equal(h.mul(&known(40)), known(1920))]).unwrap();
    assert_eq!(report.lines(), ["N: 1..1..8 (default)", "x.2 = 48 (derived)"]);
    let x = module.graph.inputs()[0];
    assert_eq!(module.graph[x].ty.show(&module.symbols), "f32[N x 3 x 48 x 100]");
}

#[test]
fn equal_symbols_become_one() {
    let mut module = Module::default();
    let a = input(&mut module, "ids", DType::I64, &["batch", "seq"]);
    let b = input(&mut module, "mask", DType::I64, &["batch_1", "seq_1"]);
    let demands = [equal(a[0].clone(), b[0].clone()), equal(b[1].clone(), a[1].clone())];
    assert_eq!(
        lines(&mut module, &["mask=1..2..4x?"], &demands).unwrap(),
        [
            "batch: 1..2..4 (user)",
            "seq: 1..128..512 (default)",
            "batch_1 = batch (derived)",
            "seq_1 = seq (derived)"
        ]
    );
    assert_eq!(module.graph[module.graph.inputs()[1]].ty.show(&module.symbols), "i64[batch x seq]");
}

fn broadcast(a: &Dim, b: &Dim) -> Constraint {
    demand(ConstraintKind::Broadcast(a.clone(), b.clone()))
}

#[test]
fn symbols_that_broadcast_are_equal_or_one() {
    // `Sub(x, y)`: either may be 1, and the engine reaches up to where they are equal.
    let sizes = |shapes: &[&str]| {
        let mut module = Module::default();
        let x = input(&mut module, "x", DType::F32, &["1", "a"]);
        let y = input(&mut module, "y", DType::F32, &["1", "3", "2", "d"]);
        lines(&mut module, shapes, &[broadcast(&x[1], &y[3])])
    };
    assert_eq!(sizes(&[]).unwrap(), ["a: 1..640..1024 (derived)", "d: 1..640..1024 (derived)"]);
    // The other one follows what the user says of one.
    assert_eq!(sizes(&["a=2..4..8"]).unwrap(), ["a: 2..4..8 (user)", "d: 1..4..8 (derived)"]);
    assert_eq!(sizes(&["a=1..1"]).unwrap(), ["a = 1 (user)", "d: 1..640..1024 (default)"]);
    assert_eq!(sizes(&["a=1..1", "d=1..8"]).unwrap()[1], "d: 1..8..8 (user)");
    assert_eq!(sizes(&["a=5..8", "d=1..8"]).unwrap(), ["a: 5..8..8 (user)", "d: 1..8..8 (user)"]);
    let why = sizes(&["a=1..4", "d=1..8"]).unwrap_err();
    assert!(why[0].contains("node `n` needs a = d, or one of them 1"), "{why:?}");
}

#[test]
fn a_symbol_beside_a_number_is_one_or_that_number() {
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["1", "a"]);
    assert_eq!(
        lines(&mut module, &[], &[broadcast(&x[1], &known(3))]).unwrap(),
        ["a: 1..3..3 step 2 (derived)"]
    );
}

#[test]
fn what_one_of_two_tied_symbols_needs_is_not_asked_of_the_other() {
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["1", "a"]);
    let y = input(&mut module, "y", DType::F32, &["1", "1", "1", "d"]);
    let nine = demand(ConstraintKind::AtLeast(y[3].clone(), 9));
    assert_eq!(
        lines(&mut module, &[], &[broadcast(&x[1], &y[3]), nine.clone()]).unwrap(),
        ["a: 1..640..1024 (derived)", "d: 9..640..1024 (derived)"]
    );
    // A reshape that d = 48 alone meets.
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["1", "a"]);
    let y = input(&mut module, "y", DType::F32, &["1", "1", "1", "d"]);
    let only = equal(y[3].mul(&known(40)), known(1920));
    assert_eq!(
        lines(&mut module, &[], &[broadcast(&x[1], &y[3]), only]).unwrap(),
        ["a: 1..48..48 (derived)", "d = 48 (derived)"]
    );
}

#[test]
fn three_symbols_broadcast_together() {
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["a", "b", "c"]);
    let demands = [broadcast(&x[1], &x[2]), broadcast(&x[0], &x[1].max(&x[2]))];
    assert_eq!(
        lines(&mut module, &[], &demands).unwrap(),
        ["a: 1..1..8 (derived)", "b: 1..1..8 (derived)", "c: 1..1..8 (derived)"]
    );
}

#[test]
fn a_dim_computed_from_another_is_reached() {
    // Twice the one is the other: far from both defaults.
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["1", "a"]);
    let y = input(&mut module, "y", DType::F32, &["1", "1", "1", "d"]);
    let twice = y[3].mul(&known(2)).add(&known(6));
    assert_eq!(
        lines(&mut module, &[], &[broadcast(&x[1], &twice)]).unwrap(),
        ["a: 8..256..2054 (derived)", "d: 1..125..1024 (default)"]
    );
}

#[test]
fn what_a_branch_broadcasts_is_equal_at_the_sizes_of_the_profile() {
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["1", "a"]);
    let y = input(&mut module, "y", DType::F32, &["1", "1", "1", "d"]);
    let kind = ConstraintKind::Equal(x[1].clone(), y[3].clone());
    let inside = Constraint { node: "if/then_branch/concat".to_owned(), kind };
    assert_eq!(
        lines(&mut module, &[], &[inside]).unwrap(),
        ["a: 1..640..1024 (derived)", "d: 1..640..1024 (derived)"]
    );
}

#[test]
fn demands_on_two_symbols_hold_at_all_three_points() {
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["rows", "tokens"]);
    let total = x[0].add(&x[1]);
    // The sum is a multiple of 7, and broadcasts with 21.
    let demands =
        [equal(total.modulo(&known(7)), known(0)), demand(ConstraintKind::AtLeast(x[0].sub(&x[1]), 3))];
    assert_eq!(lines(&mut module, &[], &demands).unwrap().len(), 2);
    let at = |name: &str| {
        let symbol = module.symbols.find(name).unwrap();
        let range = module.symbols.range(symbol);
        [range.min.unwrap(), module.symbols.info(symbol).unwrap().opt.unwrap(), range.max.unwrap()]
    };
    let (rows, tokens) = (at("rows"), at("tokens"));
    for k in 0..3 {
        assert_eq!((rows[k] + tokens[k]) % 7, 0);
        assert!(rows[k] - tokens[k] >= 3);
    }
    assert!(rows.is_sorted() && tokens.is_sorted());
    assert_eq!((rows[0], tokens[0]), (5, 2));
}

#[test]
fn what_no_size_meets_is_left_to_the_run() {
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["N", "4"]);
    let demands = [equal(x[0].mul(&known(2)), known(7))];
    assert_eq!(
        lines(&mut module, &[], &demands).unwrap(),
        ["N: 1..1..8 (default)", "not met by any size: node `n` needs 2*N = 7"]
    );
}

#[test]
fn sizes_of_the_user_replace_symbols() {
    let mut module = Module::default();
    input(&mut module, "x", DType::F32, &["N", "3", "?", "?"]);
    input(&mut module, "y", DType::F32, &["N"]);
    assert_eq!(
        lines(&mut module, &["x=2x3x224x32..64..96"], &[]).unwrap(),
        ["N = 2 (user)", "x.2 = 224 (user)", "x.3: 32..64..96 (user)"]
    );
    assert_eq!(module.graph[module.graph.inputs()[1]].ty.static_shape(), Some(vec![2]));
    let mut module = Module::default();
    input(&mut module, "x", DType::F32, &["N", "3"]);
    assert_eq!(lines(&mut module, &["N=4..8"], &[]).unwrap(), ["N: 4..4..8 (user)"]);
}

#[test]
fn wrong_wishes_are_named() {
    let fails = |shapes: &[&str], demands: &dyn Fn(&[Dim]) -> Vec<Constraint>| -> String {
        let mut module = Module::default();
        let dims = input(&mut module, "x", DType::F32, &["N", "3", "H"]);
        lines(&mut module, shapes, &demands(&dims)).unwrap_err().join("\n")
    };
    let none = |_: &[Dim]| Vec::new();
    assert!(fails(&["z=1"], &none).contains("no input and no dim has this name; the inputs are x"));
    assert!(fails(&["x=1x3"], &none).contains("has rank 3"));
    assert!(fails(&["x=1x4x9"], &none).contains("axis 1: 4 is asked for, but the model has 3 there"));
    assert!(fails(&["x=1x3x9", "N=2"], &none).contains("and 1 elsewhere"));
    let even = |dims: &[Dim]| vec![equal(dims[2].modulo(&known(4)), known(0))];
    assert_eq!(
        fails(&["x=?x3x8..30"], &even),
        "H = 30 is asked for, but node `n` needs mod(H, 4) = 0; 28 would do"
    );
}

#[test]
fn defaults_shrink_where_values_would_be_huge() {
    let mut module = Module::default();
    let x = input(&mut module, "x", DType::F32, &["N", "64", "H", "W"]);
    // Pairs of pixels: (H·W)².
    let pixels = x[2].mul(&x[3]);
    module.graph.add_value("scores", Type::tensor(DType::F32, vec![pixels.clone(), pixels]));
    let report = lines(&mut module, &[], &[]).unwrap();
    let max: Vec<i64> = ["H", "W"]
        .iter()
        .map(|name| module.symbols.range(module.symbols.find(name).unwrap()).max.unwrap())
        .collect();
    assert!((max[0] * max[1]).pow(2) <= 1 << 28, "{report:?}");
}

struct NoRules;

impl Rules for NoRules {
    fn rule(&self, _: &str, _: &str) -> Option<&dyn Infer> {
        None
    }
}

#[test]
fn an_input_of_unknown_rank_takes_the_users() {
    let mut module = Module::default();
    let x = module.graph.add_input("x", Type::unranked(DType::F32));
    module.graph.add_output(x);
    let report = resolve(&mut module, &specs(&["x=2x1..5..9"]), &NoRules).unwrap();
    assert_eq!(report.lines(), ["x.0 = 2 (user)", "x.1: 1..5..9 (user)"]);
}
