//! Networks as text, a line a layer: for snapshots and for reproducers.

use crate::layer::LayerEntry;
use crate::network::{Network, TensorId};
use std::fmt::{self, Write};

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "network {}", self.name)?;
        for input in &self.inputs {
            write!(f, "  input {} = {}", describe(self, input.tensor), input.name)?;
            match input.dim_names.as_slice() {
                [] => writeln!(f)?,
                names => writeln!(f, " dims [{}]", names.join(", "))?,
            }
        }
        for profile in &self.profile {
            writeln!(f, "  profile {} dims {:?} values {:?}", profile.name, profile.dims, profile.values)?;
        }
        layers(self, &self.layers, 2, f)?;
        for output in &self.outputs {
            writeln!(f, "  output {} = {}", describe(self, output.tensor), output.name)?;
        }
        Ok(())
    }
}

fn describe(network: &Network, id: TensorId) -> String {
    match network.tensor(id) {
        Some(info) => {
            let dims: Vec<String> =
                info.dims.iter().map(|&d| if d < 0 { "?".to_owned() } else { d.to_string() }).collect();
            format!("%{}:{}[{}]", id.0, info.dtype, dims.join("x"))
        }
        None => format!("%{}", id.0),
    }
}

fn layers(network: &Network, list: &[LayerEntry], indent: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for entry in list {
        let outputs: Vec<String> = entry.outputs.iter().map(|&id| describe(network, id)).collect();
        let mut line = String::new();
        write!(line, "{:indent$}{} = {:?}", "", outputs.join(", "), entry.layer)?;
        let node = network.nodes.get(entry.node as usize).map_or("", String::as_str);
        writeln!(f, "{}  ; {node}", line.replace("TensorId(", "%(").replace("WeightsId(", "w("))?;
    }
    Ok(())
}
