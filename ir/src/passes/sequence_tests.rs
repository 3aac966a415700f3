//! Sequences and optionals across the borders of subgraphs, and loops over them.

use super::tests::{printed, run_that_adds};

#[track_caller]
fn becomes(text: &str, wanted: &str) {
    let mut module = crate::text::parse(text).unwrap();
    run_that_adds(&mut module);
    let left = printed(&module);
    assert_eq!(left, wanted, "\n{left}");
}

#[test]
fn a_map_over_a_static_sequence_is_its_turns() {
    becomes(
        "graph g(%a: f32[2], %b: f32[3], %t: f32[1]) {
           const %one: i64[] = [1]
           %s = SequenceConstruct-11(%a, %b)
           %m, %k = SequenceMap-17(%s, %t) {body=graph body(%e: f32[N], %u: f32[1]) {
             %o = Add-14(%e, %u)
             %p = Relu-14(%o)
             return %o, %p
           }}
           %y = SequenceAt-11(%m, %one)
           %n = SequenceLength-11(%m)
           %z = ConcatFromSequence-11(%k) {axis=0}
           return %y, %n, %z
         }",
        "  const %n: i64[] = [2]
  %o = Add-14(%a, %t) @m/body/o
  %p = Relu-14(%o) @m/body/p
  %y = Add-14(%b, %t) @\"m/body/o#1\"
  %m/body/p = Relu-14(%y) @\"m/body/p#1\"
  %z = Concat-13(%p, %m/body/p) {axis=0}
  return %y, %n, %z
}",
    );
}

#[test]
fn a_map_over_a_split_and_a_sequence_beside_it() {
    becomes(
        "graph g(%x: f32[4 x 3], %b: f32[2 x 3], %c: f32[1 x 3]) {
           const %two: i64[] = [2]
           %s = SplitToSequence-24(%x, %two)
           %t = SequenceConstruct-11(%b, %c)
           %m = SequenceMap-17(%s, %t) {body=graph body(%e: ?, %f: ?) {
             %o = Add-14(%e, %f)
             return %o
           }}
           %z = ConcatFromSequence-11(%m) {axis=0}
           return %z
         }",
        "  const %\"m#part_0/starts\": i64[1] = [0]
  const %\"m#part_0/ends\": i64[1] = [2]
  const %\"m#part_0/axes\": i64[1] = [0]
  const %\"m#part_1/starts\": i64[1] = [2]
  const %\"m#part_1/ends\": i64[1] = [4]
  const %\"m#part_1/axes\": i64[1] = [0]
  %\"m#part_0\" = Slice-13(%x, %\"m#part_0/starts\", %\"m#part_0/ends\", %\"m#part_0/axes\")
  %\"m#part_1\" = Slice-13(%x, %\"m#part_1/starts\", %\"m#part_1/ends\", %\"m#part_1/axes\")
  %o = Add-14(%\"m#part_0\", %b) @m/body/o
  %m/body/o = Add-14(%\"m#part_1\", %c) @\"m/body/o#1\"
  %z = Concat-13(%o, %m/body/o) {axis=0}
  return %z
}",
    );
}

#[test]
fn a_loop_that_makes_a_sequence_is_its_turns() {
    becomes(
        "graph g(%a: f32[2], %b: f32[3], %h: f32[2]) {
           const %go: bool[] = [true]
           %s = SequenceConstruct-11(%a, %b)
           %n = SequenceLength-11(%s)
           %none = SequenceEmpty-11()
           %made, %state, %stacked = Loop-25(%n, %go, %none, %h) {body=graph body(%i: i64[], %c: bool[], %q: ?, %r: ?) captures(%in: ? = %s) {
             %c_out = Identity-25(%c)
             %e = SequenceAt-11(%in, %i)
             %f = Relu-14(%e)
             %grown = SequenceInsert-11(%q, %f)
             %next = Neg-13(%r)
             return %c_out, %grown, %next, %next
           }}
           %z = ConcatFromSequence-11(%made) {axis=0}
           return %z, %state, %stacked
         }",
        "  const %axes: i64[1] = [0]
  %f = Relu-14(%a) @made/body/f
  %next = Neg-13(%h) @made/body/next
  %made/body/f = Relu-14(%b) @\"made/body/f#1\"
  %z = Concat-13(%f, %made/body/f) {axis=0}
  %state = Neg-13(%next) @\"made/body/next#1\"
  %row = Unsqueeze-25(%next, %axes) @\"made#stack_0_row_0\"
  %\"made#stack_0/row\" = Unsqueeze-25(%state, %axes) @\"made#stack_0_row_1\"
  %stacked = Concat-13(%row, %\"made#stack_0/row\") @\"made#stack_0\" {axis=0}
  return %z, %state, %stacked
}",
    );
}

#[test]
fn branches_that_make_sequences_give_their_elements() {
    becomes(
        "graph g(%c: bool[], %a: f32[2], %b: f32[2]) {
           const %one: i64[] = [1]
           %s, %t = If-25(%c) {else_branch=graph no() captures(%a1: f32[2] = %a, %b1: f32[2] = %b) {
             %n = Neg-13(%a1)
             %p = SequenceConstruct-11(%b1, %n)
             return %p, %n
           }, then_branch=graph yes() captures(%a2: f32[2] = %a, %b2: f32[2] = %b) {
             %q = SequenceConstruct-11(%a2)
             %r = SequenceInsert-11(%q, %b2)
             return %r, %a2
           }}
           %y = SequenceAt-11(%s, %one)
           return %y, %t
         }",
        "  %output_0_0, %t, %y = If-25(%c) @s {else_branch=graph no() captures(%a1: f32[2] = %a, %b1: f32[2] = %b) {
    %n = Neg-13(%a1)
    return %b1, %n, %n
  }, then_branch=graph yes() captures(%a2: f32[2] = %a, %b2: f32[2] = %b) {
    return %a2, %a2, %b2
  }}
  return %y, %t
}",
    );
}

#[test]
fn branches_that_make_optionals_give_what_is_in_them() {
    becomes(
        "graph g(%c: bool[], %a: f32[2]) {
           %s = If-25(%c) {else_branch=graph no() captures(%a1: f32[2] = %a) {
             %n = Neg-13(%a1)
             %l = SequenceConstruct-11(%n)
             %p = Optional-15(%l)
             return %p
           }, then_branch=graph yes() captures(%a2: f32[2] = %a) {
             %q = SequenceConstruct-11(%a2)
             %r = Optional-15(%q)
             return %r
           }}
           %has = OptionalHasElement-18(%s)
           %got = OptionalGetElement-18(%s)
           %y = ConcatFromSequence-11(%got) {axis=0, new_axis=1}
           return %y, %has
         }",
        "  const %has: bool[] = [true]
  const %y/axes: i64[1] = [0]
  %s/output_0_0 = If-25(%c) @s {else_branch=graph no() captures(%a1: f32[2] = %a) {
    %n = Neg-13(%a1)
    return %n
  }, then_branch=graph yes() captures(%a2: f32[2] = %a) {
    return %a2
  }}
  %y = Unsqueeze-25(%s/output_0_0, %y/axes) @\"y#wide_0\"
  return %y, %has
}",
    );
}

#[test]
fn a_branch_takes_an_element_of_a_sequence_around_it() {
    becomes(
        "graph g(%c: bool[], %a: f32[2], %x: f32[2 x 2]) {
           const %one: i64[] = [1]
           %s = SequenceConstruct-11(%a, %a)
           %t = SplitToSequence-24(%x) {keepdims=0}
           %y = If-25(%c) {else_branch=graph no() captures(%in: ? = %s) {
             const %at: i64[] = [0]
             %p = SequenceAt-11(%in, %at)
             %q = Neg-13(%p)
             return %q
           }, then_branch=graph yes() captures(%split: ? = %t) {
             const %last: i64[] = [-1]
             %r = SequenceAt-11(%split, %last)
             return %r
           }}
           return %y
         }",
        "  %y = If-25(%c) {else_branch=graph no() captures(%a: f32[2] = %a) {
    %q = Neg-13(%a)
    return %q
  }, then_branch=graph yes() captures(%x: f32[2 x 2] = %x) {
    const %r/index: i64[] = [-1]
    %r = Gather-13(%x, %r/index) {axis=0}
    return %r
  }}
  return %y
}",
    );
}

#[test]
fn parts_that_are_put_together_anew() {
    becomes(
        "graph g(%x: f32[2 x 3], %a: f32[3]) {
           const %zero: i64[] = [0]
           %s = SplitToSequence-24(%x) {keepdims=0}
           %t = SequenceInsert-11(%s, %a, %zero)
           %y = ConcatFromSequence-11(%t) {axis=-1, new_axis=1}
           return %y
         }",
        "  const %\"s#part_0/index\": i64[] = [0]
  const %\"s#part_1/index\": i64[] = [1]
  const %y/axes: i64[1] = [-1]
  %\"s#part_0\" = Gather-13(%x, %\"s#part_0/index\") {axis=0}
  %\"s#part_1\" = Gather-13(%x, %\"s#part_1/index\") {axis=0}
  %\"y#wide_0\" = Unsqueeze-25(%a, %y/axes)
  %\"y#wide_1\" = Unsqueeze-25(%\"s#part_0\", %y/axes)
  %\"y#wide_2\" = Unsqueeze-25(%\"s#part_1\", %y/axes)
  %y = Concat-13(%\"y#wide_0\", %\"y#wide_1\", %\"y#wide_2\") {axis=-1}
  return %y
}",
    );
}

#[test]
fn what_is_not_known_stays() {
    for text in [
        // As many turns as the run gives.
        "graph g(%s: seq(f32[2])) {
           %m = SequenceMap-17(%s) {body=graph body(%e: f32[2]) {
             %o = Neg-13(%e)
             return %o
           }}
           return %m
         }",
        // Sequences of two lengths.
        "graph g(%c: bool[], %a: f32[2]) {
           %s = If-25(%c) {else_branch=graph no() captures(%a1: f32[2] = %a) {
             %p = SequenceConstruct-11(%a1)
             return %p
           }, then_branch=graph yes() captures(%a2: f32[2] = %a) {
             %q = SequenceConstruct-11(%a2, %a2)
             return %q
           }}
           return %s
         }",
        // A place that only the run knows.
        "graph g(%c: bool[], %a: f32[2], %k: i64[]) {
           %s = SequenceConstruct-11(%a, %a)
           %y = If-25(%c) {else_branch=graph no() captures(%in: ? = %s, %at: i64[] = %k) {
             %p = SequenceAt-11(%in, %at)
             return %p
           }, then_branch=graph yes() captures(%a2: f32[2] = %a) {
             %r = Neg-13(%a2)
             return %r
           }}
           return %y
         }",
    ] {
        let mut module = crate::text::parse(text).unwrap();
        let (ledger, new) = run_that_adds(&mut module);
        assert!(printed(&module).contains("Sequence"), "{}", printed(&module));
        assert!(ledger.is_empty() && new.is_empty(), "{ledger:?} {new:?}");
    }
}
