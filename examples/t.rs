//! probe
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let l = trtc_frontends::onnx::load(&a[1]).unwrap();
    let mut m = l.module;
    let _ = trtc_ir::ranges::resolve(&mut m, &[], trtc_converters::Registry::get())
        .map_err(|e| println!("{e:?}"));
    let r = trtc_ir::passes::run_all(&mut m, trtc_converters::Registry::get());
    if let Err(e) = r {
        for d in e {
            println!("{d}");
        }
    }
    let g = &m.graph;
    for id in g.topo_order().unwrap() {
        let n = &g[id];
        if a.len() > 2 && !n.name.contains(&a[2]) {
            continue;
        }
        let show = |v: Option<trtc_ir::ValueId>| {
            v.map_or("-".into(), |v| {
                format!(
                    "{}: {}{}",
                    g[v].name,
                    g[v].ty.show(&m.symbols),
                    g[v].elements.as_ref().map_or(String::new(), |e| format!(
                        " = [{}]",
                        e.iter().map(|d| m.symbols.show(d)).collect::<Vec<_>>().join(", ")
                    ))
                )
            })
        };
        println!(
            "{} {}({}) -> {}",
            n.name,
            n.op,
            n.inputs().iter().map(|v| show(*v)).collect::<Vec<_>>().join("; "),
            n.outputs().iter().map(|v| show(*v)).collect::<Vec<_>>().join("; ")
        );
    }
}
