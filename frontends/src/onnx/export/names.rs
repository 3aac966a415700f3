//! Names of values through all levels of graphs: a subgraph sees the names around it, so none is used twice.

use crate::onnx::draft::Names;
use std::collections::HashMap;
use trtc_ir::{Graph, ValueId};

/// Names of one graph's values.
#[derive(Debug, Default)]
pub(super) struct ValueNames(HashMap<ValueId, String>);

impl ValueNames {
    /// The name of a value; it gets one on its first use.
    pub(super) fn get(&mut self, graph: &Graph, id: ValueId, names: &mut Names) -> String {
        if let Some(name) = self.0.get(&id) {
            return name.clone();
        }
        let wanted = match &*graph[id].name {
            "" => format!("value_{}", id.index()),
            name => name.to_owned(),
        };
        let name = names.unique(&wanted);
        self.0.insert(id, name.clone());
        name
    }

    /// Gives a value a name: of what it captures.
    pub(super) fn set(&mut self, id: ValueId, name: String) {
        self.0.insert(id, name);
    }
}
