//! The verifier: what must hold of every module between two passes.
//!
//! It runs after each pass in debug builds and after the front ends. A finding is a fault of ours (or of a front end),
//! except that a front end may hand on what a broken model says.

use crate::{
    diag::{Code, Diag},
    dim::Dim,
    graph::{Capture, Graph, Module, NodeId, ValueId},
    symbols::Symbols,
    types::Type,
};
use std::collections::HashSet;

/// Everything that is wrong with the module; empty when it is well formed. O(nodes + uses).
///
/// Checked, subgraphs included: every use has a producer, a constant, a graph input or a capture behind it; producers,
/// users and edges agree; no cycle; names of nodes and of live values are unique in their graph; captures name live
/// values of the graph around; dims are not negative and mention known symbols; constants and small elements fit their types.
pub fn verify(module: &Module) -> Vec<Diag> {
    let mut verifier = Verifier { symbols: &module.symbols, diags: Vec::new() };
    if !module.graph.captures.is_empty() {
        verifier.report("", "", "the model's own graph has captures");
    }
    verifier.graph(&module.graph, "");
    verifier.diags
}

/// Panics on findings in debug builds, with the name of the pass that left them.
pub(crate) fn debug_verify(module: &Module, pass: &str) {
    if cfg!(debug_assertions) {
        let diags = verify(module);
        debug_assert!(diags.is_empty(), "after {pass}: {}", list(&diags));
    }
}

fn list(diags: &[Diag]) -> String {
    diags.iter().map(Diag::to_string).collect::<Vec<String>>().join("; ")
}

struct Verifier<'a> {
    symbols: &'a Symbols,
    diags: Vec<Diag>,
}

/// How a value comes to be, as far as its graph knows.
fn sources(graph: &Graph) -> Vec<u8> {
    let mut counts = vec![0u8; graph.value_count()];
    let mut add = |id: ValueId| {
        if let Some(count) = counts.get_mut(id.index()) {
            *count = count.saturating_add(1);
        }
    };
    graph.inputs().iter().copied().for_each(&mut add);
    graph.captures.iter().map(|capture| capture.inner).for_each(&mut add);
    for id in graph.value_ids() {
        if graph[id].producer().is_some() {
            add(id);
        }
    }
    counts
}

impl Verifier<'_> {
    fn report(&mut self, node: &str, op: &str, why: impl Into<String>) {
        let mut diag = Diag::new(Code::INVALID, why);
        diag.node = node.to_owned();
        diag.op = op.to_owned();
        self.diags.push(diag);
    }

    fn graph(&mut self, graph: &Graph, path: &str) {
        let sources = sources(graph);
        let defined = |id: ValueId| {
            sources.get(id.index()).is_some_and(|&n| n > 0)
                || (id.index() < graph.value_count() && graph[id].constant.is_some())
        };
        let mut uses = vec![0u32; graph.value_count()];
        let mut names: HashSet<&str> = HashSet::new();
        for id in graph.node_ids() {
            let node = &graph[id];
            if !names.insert(&node.name) {
                self.report(&self.place(path, &node.name), "", "the name stands twice in its graph");
            }
            self.node(graph, id, path, &defined, &mut uses);
        }
        self.values(graph, path, &sources, &uses);
        for &id in graph.outputs() {
            if id.index() >= graph.value_count() {
                self.report(path, "graph", format!("output {id:?} is not a value of the graph"));
            } else if !defined(id) {
                self.report(path, "graph", format!("nothing makes the output `{}`", graph[id].name));
            }
        }
        if let Err(cycle) = graph.topo_order() {
            let names: Vec<String> = cycle.iter().map(|&id| format!("`{}`", graph[id].name)).collect();
            self.report(path, "graph", format!("a cycle: {}", names.join(" -> ")));
        }
    }

    fn place(&self, path: &str, name: &str) -> String {
        crate::infer::node_path(path, name)
    }

    fn node(
        &mut self,
        graph: &Graph,
        id: NodeId,
        path: &str,
        defined: &dyn Fn(ValueId) -> bool,
        uses: &mut [u32],
    ) {
        let node = &graph[id];
        let label = self.place(path, &node.name);
        let op = node.op.to_string();
        let mut edges = 0;
        for value in node.uses() {
            match uses.get_mut(value.index()) {
                Some(count) => *count += 1,
                None => {
                    self.report(&label, &op, format!("uses {value:?}, which is not a value of the graph"));
                    continue;
                }
            }
            if !defined(value) {
                self.report(&label, &op, format!("nothing makes the input `{}`", graph[value].name));
            }
            edges += usize::from(graph[value].producer().is_some());
        }
        if graph.predecessors(id).count() != edges {
            self.report(&label, &op, "edges and inputs differ");
        }
        for (slot, output) in node.outputs().iter().enumerate() {
            if let Some(output) = *output
                && (output.index() >= graph.value_count() || graph[output].producer() != Some((id, slot)))
            {
                self.report(&label, &op, format!("output {slot} does not know its producer"));
            }
        }
        let mut captured: Vec<ValueId> = Vec::new();
        for (name, body) in node.attrs.graphs() {
            let place = format!("{label}/{name}");
            let mut seen = HashSet::new();
            for &Capture { outer, inner } in &body.captures {
                if !seen.insert(outer) {
                    self.report(&place, "graph", format!("{outer:?} is captured twice"));
                }
                if inner.index() >= body.value_count() {
                    self.report(&place, "graph", format!("captures into {inner:?}, which is no value"));
                }
                captured.push(outer);
            }
            self.graph(body, &place);
        }
        captured.sort_unstable();
        captured.dedup();
        if captured != node.captured() {
            self.report(&label, &op, "what the subgraphs capture is not what the node lists");
        }
    }

    fn values(&mut self, graph: &Graph, path: &str, sources: &[u8], uses: &[u32]) {
        let mut names: HashSet<&str> = HashSet::new();
        for id in graph.value_ids() {
            let value = &graph[id];
            let label = || format!("value `{}`", value.name);
            if value.users().len() != uses[id.index()] as usize {
                self.report(path, "graph", format!("{}: users and uses differ", label()));
            }
            if let Some((node, slot)) = value.producer()
                && graph.get(node).and_then(|node| node.output(slot)) != Some(id)
            {
                self.report(path, "graph", format!("{}: its producer does not make it", label()));
            }
            let count = sources[id.index()];
            let live = count > 0 || uses[id.index()] > 0;
            if live && !names.insert(&value.name) {
                self.report(path, "graph", format!("{}: the name stands twice", label()));
            }
            if count > 1 || (value.producer().is_some() && value.constant.is_some()) {
                self.report(path, "graph", format!("{}: it is made more than once", label()));
            }
            if let Some(why) = self.type_fault(&value.ty) {
                self.report(path, "graph", format!("{}: {why}", label()));
            }
            if let Some(tensor) = &value.constant
                && value.ty.static_shape().as_deref() != Some(tensor.dims())
            {
                self.report(path, "graph", format!("{}: type and constant differ", label()));
            }
            if let Some(list) = &value.elements
                && let Some(shape) = value.ty.shape()
            {
                let fits = match shape {
                    [] => list.len() == 1,
                    [Dim::Known(n)] => *n == list.len() as i64,
                    [_] => true,
                    _ => false,
                };
                if !fits {
                    self.report(path, "graph", format!("{}: its elements do not fit its shape", label()));
                }
            }
        }
    }

    fn type_fault(&self, ty: &Type) -> Option<String> {
        match ty {
            Type::Unknown => None,
            Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
                let shape = tensor.shape.as_ref()?;
                if let Some(dim) = shape.iter().find(|dim| dim.known().is_some_and(|d| d < 0)) {
                    return Some(format!("dim {} is negative", self.symbols.show(dim)));
                }
                let mut stranger = None;
                for dim in shape {
                    dim.for_each_symbol(&mut |symbol| {
                        if self.symbols.info(symbol).is_none() {
                            stranger = Some(symbol);
                        }
                    });
                }
                stranger.map(|symbol| format!("{symbol:?} is not a symbol of the module"))
            }
            Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => self.type_fault(inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::verify;
    use crate::{Attr, Attrs, Dim, Graph, Module, Node, NodeId, OpKey, Tensor, Type, ValueId};
    use trtc_bundle::DType;

    fn node(g: &mut Graph, name: &str, attrs: Attrs, inputs: &[ValueId], output: ValueId) -> NodeId {
        let key = OpKey::new("", "Op");
        g.add_node(Node::new(name, key, 1, attrs, inputs.iter().copied().map(Some), [Some(output)]))
    }

    fn sound() -> (Module, ValueId, ValueId) {
        let mut module = Module::default();
        let g = &mut module.graph;
        let x = g.add_input("x", Type::Unknown);
        let y = g.add_value("y", Type::Unknown);
        node(g, "n", Attrs::new(), &[x], y);
        g.add_output(y);
        (module, x, y)
    }

    fn only(module: &Module) -> String {
        let list = verify(module);
        assert_eq!(list.len(), 1, "{list:?}");
        list[0].to_string()
    }

    #[test]
    fn a_sound_module_passes() {
        assert_eq!(verify(&sound().0), []);
    }

    #[test]
    fn each_fault_is_found() {
        let (mut module, x, _) = sound();
        let loose = module.graph.add_value("loose", Type::Unknown);
        let z = module.graph.add_value("z", Type::Unknown);
        node(&mut module.graph, "m", Attrs::new(), &[x, loose], z);
        assert_eq!(only(&module), "node `m` (Op): nothing makes the input `loose`");

        let (mut module, x, _) = sound();
        let z = module.graph.add_value("z", Type::Unknown);
        node(&mut module.graph, "n", Attrs::new(), &[x], z);
        assert!(only(&module).contains("stands twice"));

        let (mut module, x, _) = sound();
        let z = module.graph.add_value("y", Type::Unknown);
        node(&mut module.graph, "m", Attrs::new(), &[x], z);
        assert!(only(&module).contains("value `y`: the name stands twice"));

        let (mut module, _, y) = sound();
        let z = module.graph.add_value("z", Type::Unknown);
        let m = node(&mut module.graph, "m", Attrs::new(), &[y], z);
        let n = module.graph.node_ids().next().unwrap();
        module.graph.set_input(n, 1, Some(z));
        assert!(only(&module).contains("a cycle"));
        module.graph.remove_node(m);

        let (mut module, _, y) = sound();
        module.graph[y].ty = Type::tensor(DType::F32, vec![Dim::Known(-1)]);
        assert!(only(&module).contains("dim -1 is negative"));

        let (mut module, _, y) = sound();
        module.graph[y].ty = Type::tensor(DType::F32, vec![Dim::symbol(crate::Symbol(5))]);
        assert!(only(&module).contains("not a symbol of the module"));

        let (mut module, _, y) = sound();
        module.graph[y].ty = Type::tensor(DType::I64, vec![Dim::Known(2)]);
        module.graph[y].elements = Some(vec![Dim::Known(1)]);
        assert!(only(&module).contains("its elements do not fit its shape"));

        let (mut module, ..) = sound();
        let c = module.graph.add_constant("c", Tensor::from_i64s(&[1]));
        module.graph[c].ty = Type::unranked(DType::I64);
        assert!(only(&module).contains("type and constant differ"));
    }

    #[test]
    fn faults_in_subgraphs_have_a_path() {
        let (mut module, x, _) = sound();
        let mut body = Graph::new("body");
        let inner = body.add_capture(x, "x", Type::Unknown);
        body.add_output(inner);
        let lost = body.add_value("lost", Type::Unknown);
        body.add_output(lost);
        let mut attrs = Attrs::new();
        attrs.set("body", Attr::Graph(Box::new(body)));
        let z = module.graph.add_value("z", Type::Unknown);
        let outer = node(&mut module.graph, "loop", attrs, &[], z);
        let list = verify(&module);
        assert_eq!(list.len(), 1);
        assert_eq!(
            (list[0].node.as_str(), list[0].why.as_str()),
            ("loop/body", "nothing makes the output `lost`")
        );
        // Captures changed behind the graph's back.
        if let Some(Attr::Graph(body)) = module.graph.node_mut(outer).unwrap().attrs.get_mut("body") {
            body.set_outputs(vec![inner]);
            body.captures.clear();
        }
        assert!(verify(&module).iter().any(|d| d.why.contains("not what the node lists")));
        module.graph.refresh_captures(outer);
        assert!(verify(&module).iter().all(|d| d.why.contains("nothing makes the output")));
    }
}
