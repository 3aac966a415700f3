//! Normal forms by hand, and random expressions against direct evaluation.

use super::{Dim, Interval, Symbol};
use proptest::prelude::*;

fn s(k: u32) -> Dim {
    Dim::symbol(Symbol(k))
}

fn n(value: i64) -> Dim {
    Dim::Known(value)
}

fn text(dim: &Dim) -> String {
    match dim {
        Dim::Known(value) => value.to_string(),
        Dim::Expr(expr) => format!("{expr:?}"),
        Dim::Unknown => "?".to_owned(),
    }
}

#[test]
fn sums_and_products_have_one_form() {
    let (a, b) = (s(0), s(1));
    assert_eq!(a.add(&b).mul(&a.sub(&b)), a.mul(&a).sub(&b.mul(&b)));
    assert_eq!(a.sub(&a), n(0));
    assert_eq!(text(&n(1).add(&a.mul(&n(2))).sub(&b)), "2*s0 - s1 + 1");
    assert_eq!(n(i64::MAX).add(&n(1)), Dim::Unknown);
    assert_eq!(Dim::Unknown.mul(&n(0)), n(0));
}

#[test]
fn convolutions_in_a_row_are_one_quotient() {
    let halve = |d: &Dim| d.sub(&n(1)).floor_div(&n(2)).add(&n(1));
    let d = (0..5).fold(s(0), |d, _| halve(&d));
    assert_eq!(text(&d), "floordiv(s0 + 31, 32)");
    assert_eq!(s(0).mul(&n(6)).floor_div(&n(4)), s(0).add(&s(0).floor_div(&n(2))));
    assert_eq!(text(&s(0).mul(&n(2)).add(&n(3)).floor_div(&n(4))), "floordiv(s0 + 1, 2)");
    assert_eq!(s(0).mul(&n(-2)).floor_div(&n(-2)), s(0));
}

#[test]
fn quotients_cancel() {
    let (a, b, c) = (s(0), s(1), s(2));
    let sum = a.add(&n(1));
    let product = sum.mul(&b.add(&n(3))).mul(&c);
    assert_eq!(product.floor_div(&sum), b.add(&n(3)).mul(&c));
    assert_eq!(product.floor_div(&b.add(&n(3)).mul(&c)), sum);
    assert_eq!(a.mul(&b).mul(&n(6)).floor_div(&a.mul(&n(4))), b.add(&b.floor_div(&n(2))));
    assert_eq!(text(&a.mul(&b).add(&n(5)).floor_div(&a)), "s1 + floordiv(5, s0)");
    assert_eq!(a.floor_div(&n(0)), Dim::Unknown);
    assert_eq!(n(i64::MIN).floor_div(&n(-1)), Dim::Unknown);
    let tiny = a.mul(&n(i64::MIN));
    assert_eq!(tiny.floor_div(&n(-1)), Dim::Unknown);
    assert_eq!(tiny.floor_div(&b.mul(&n(-1))), Dim::Unknown);
}

#[test]
fn remainders_and_extremes() {
    let a = s(0);
    assert_eq!(a.mul(&n(2)).add(&n(1)).modulo(&n(2)), n(1));
    assert_eq!(a.add(&n(6)).modulo(&n(4)), a.mul(&n(5)).add(&n(2)).modulo(&n(4)));
    assert_eq!(n(-7).modulo(&n(3)), n(2));
    assert_eq!(n(7).modulo(&n(-3)), n(-2));
    assert_eq!(a.modulo(&n(0)), Dim::Unknown);
    assert_eq!(a.max(&a.add(&n(2))), a.add(&n(2)));
    assert_eq!(a.min(&a.add(&n(2))), a);
    assert_eq!(a.max(&n(1)).max(&n(1)), a.max(&n(1)));
    assert_eq!(text(&a.max(&n(1)).min(&s(1))), "min(s1, max(1, s0))");
}

#[test]
fn intervals_of_open_ranges() {
    let range = |k: Symbol| match k.0 {
        0 => Interval { min: Some(1), max: None },
        _ => Interval::new(-2, 3),
    };
    let of = |d: Dim| d.interval(&range);
    assert_eq!(of(n(3).sub(&s(0))), Interval { min: None, max: Some(2) });
    assert_eq!(of(s(0).mul(&s(1))), Interval::ANY);
    assert_eq!(of(s(0).floor_div(&n(4))), Interval { min: Some(0), max: None });
    assert_eq!(of(s(0).modulo(&n(4))), Interval::new(0, 3));
    assert_eq!(of(s(1).mul(&s(1))), Interval::new(-6, 9));
    assert_eq!(of(s(0).max(&n(7))), Interval { min: Some(7), max: None });
    assert_eq!(of(s(0).min(&n(7))), Interval::new(1, 7));
}

#[test]
fn endless_growth_becomes_unknown() {
    let d = (0..10_000).fold(s(0), |d, k| d.max(&s(k).mul(&d)));
    assert_eq!(d, Dim::Unknown);
    let sum = (0..10_000).fold(n(0), |sum, k| sum.add(&s(k)));
    assert_eq!(sum, Dim::Unknown);
}

/// An expression as a tree, evaluated without any normal form.
#[derive(Clone, Debug)]
enum Tree {
    Number(i64),
    Symbol(u32),
    Op(char, Box<Tree>, Box<Tree>),
}

impl Tree {
    fn dim(&self) -> Dim {
        match self {
            Tree::Number(value) => n(*value),
            Tree::Symbol(k) => s(*k),
            Tree::Op(op, a, b) => {
                let (a, b) = (a.dim(), b.dim());
                match op {
                    '+' => a.add(&b),
                    '-' => a.sub(&b),
                    '*' => a.mul(&b),
                    '/' => a.floor_div(&b),
                    'c' => a.ceil_div(&b),
                    '%' => a.modulo(&b),
                    '<' => a.min(&b),
                    _ => a.max(&b),
                }
            }
        }
    }

    /// Exact value; `None` where a divisor is 0.
    fn value(&self, at: &[i64; 3]) -> Option<i128> {
        Some(match self {
            Tree::Number(value) => (*value).into(),
            Tree::Symbol(k) => at[*k as usize].into(),
            Tree::Op(op, a, b) => {
                let (a, b) = (a.value(at)?, b.value(at)?);
                let floor = |a: i128, b: i128| {
                    let q = a.checked_div(b)?;
                    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
                };
                match op {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => a * b,
                    '/' => floor(a, b)?,
                    'c' => floor(a + b - 1, b)?,
                    '%' => a - b * floor(a, b)?,
                    '<' => a.min(b),
                    _ => a.max(b),
                }
            }
        })
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![(-6i64..13).prop_map(Tree::Number), (0u32..3).prop_map(Tree::Symbol)];
    leaf.prop_recursive(5, 24, 2, |inner| {
        let ops = prop::sample::select(vec!['+', '-', '*', '/', '/', 'c', '%', '<', '>']);
        (ops, inner.clone(), inner).prop_map(|(op, a, b)| Tree::Op(op, Box::new(a), Box::new(b)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_normal_form_has_the_value_of_the_tree(tree in tree(), at in [1i64..20, 1i64..20, -9i64..20]) {
        let dim = tree.dim();
        if let (Some(wanted), Some(got)) =
            (tree.value(&at), dim.eval(&|symbol| at.get(symbol.0 as usize).copied()))
        {
            prop_assert_eq!(i128::from(got), wanted, "{}", text(&dim));
        }
        if let (Dim::Known(value), Some(wanted)) = (&dim, tree.value(&at)) {
            prop_assert_eq!(i128::from(*value), wanted);
        }
    }

    #[test]
    fn intervals_hold_the_value(
        tree in tree(),
        low in [-4i64..10, 0i64..10, 1i64..10],
        spread in [0i64..8, 0i64..8, 0i64..8],
        pick in [0i64..8, 0i64..8, 0i64..8],
        open in any::<bool>(),
    ) {
        let at: [i64; 3] = std::array::from_fn(|k| low[k] + pick[k].min(spread[k]));
        let range = |symbol: Symbol| {
            let k = symbol.0 as usize;
            Interval { min: Some(low[k]), max: (!open).then(|| low[k] + spread[k]) }
        };
        let dim = tree.dim();
        if let Some(value) = dim.eval(&|symbol| at.get(symbol.0 as usize).copied()) {
            let interval = dim.interval(&range);
            prop_assert!(interval.contains(value), "{} = {value} is not in {interval:?}", text(&dim));
        }
    }

    #[test]
    fn equal_forms_have_equal_values(a in tree(), b in tree(), at in [1i64..20, 1i64..20, 1i64..20]) {
        if a.dim() == b.dim()
            && a.dim() != Dim::Unknown
            && let (Some(x), Some(y)) = (a.value(&at), b.value(&at))
        {
            prop_assert_eq!(x, y);
        }
    }

    #[test]
    fn substitution_is_evaluation(tree in tree(), at in [1i64..20, 1i64..20, 1i64..20]) {
        let dim = tree.dim();
        let put = dim.substitute(&|symbol| Dim::Known(at[symbol.0 as usize]));
        if let (Some(wanted), Dim::Known(got)) = (dim.eval(&|symbol| Some(at[symbol.0 as usize])), put) {
            prop_assert_eq!(got, wanted);
        }
    }
}
