//! What inference takes from the model's declarations.

use super::*;

#[test]
fn declared_numbers_do_not_overrule_symbols_of_inputs() {
    let mut module = Module::default();
    let n = Dim::symbol(module.symbols.named("N"));
    let g = &mut module.graph;
    let x = g.add_input("x", Type::tensor(DType::F32, vec![n.clone()]));
    let y = add(g, "relu", "Relu", vec![], &[x]);
    g[y].ty = f32_type(&[7]);
    let found = add(g, "found", "NonZero", vec![], &[y]);
    g[found].ty = Type::tensor(DType::I64, known(&[1, 3]));
    g.add_output(found);
    let open = add(g, "open", "Open", vec![], &[y]);
    g[open].ty = Type::tensor(DType::I64, known(&[1, 3]));
    g.add_output(open);
    run(&mut module);
    assert_eq!(module.graph[y].ty.shape().unwrap(), [n]);
    // Neither sizes that data decide, nor what an exporter's example may have left.
    assert_eq!(module.graph[found].ty.show(&module.symbols), "i64[1 x found.n]");
    assert_eq!(module.graph[open].ty.show(&module.symbols), "i64[1 x ?]");
    assert!(module.declared.is_empty());
}

#[test]
fn declared_sizes_are_believed_and_noted_where_no_dim_is_open() {
    for (distrusts, shown) in [(false, "i64[1 x 3]"), (true, "i64[1 x ?]")] {
        let mut module = Module { distrusts, ..Module::default() };
        let x = module.graph.add_input("x", f32_type(&[4]));
        let open = add(&mut module.graph, "open", "Open", vec![], &[x]);
        module.graph[open].ty = Type::tensor(DType::I64, known(&[1, 3]));
        module.graph.add_output(open);
        run(&mut module);
        assert_eq!(module.graph[open].ty.show(&module.symbols), shown);
        let noted = module.declared.get(&("open".into(), 0)).map(|d| (d.dims.clone(), d.inputs.clone()));
        let inputs = vec![Some((DType::F32, vec![4]))];
        assert_eq!(noted, (!distrusts).then(|| (vec![Some(1), Some(3)], inputs)));
    }
}

#[test]
fn of_a_declaration_with_a_wrong_number_nothing_is_believed() {
    let mut module = Module::default();
    let g = &mut module.graph;
    let x = g.add_input("x", Type::tensor(DType::F32, vec![Dim::Known(3)]));
    let found = add(g, "found", "Open", vec![], &[x]);
    // The first dim is 1, whatever the model says; so the second may be anything, too.
    g[found].ty = Type::tensor(DType::I64, known(&[2, 3]));
    g.add_output(found);
    run(&mut module);
    assert_eq!(module.graph[found].ty.show(&module.symbols), "i64[1 x ?]");
}
