//! The cost model: what a partition is estimated to take. Constants come from `defaults.toml` and files of its layout.

mod estimate;
mod work;

pub(crate) use estimate::{DEVICE, Estimator, HOST, body_share, total};
pub(crate) use work::OpClass;

use serde::Deserialize;
use toml::{Table, Value};
use trtc_bundle::{Product, Target};

/// Constants for every target.
#[derive(Clone, Debug)]
pub struct CostModel {
    layers: Vec<Table>,
    places: bool,
}

/// Why a cost model file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cost model: {0}")]
pub struct CostModelError(String);

/// Constants for one target. Times in microseconds, bandwidths in 10^9 bytes a second.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constants {
    pub engine_launch_us: f64,
    pub host_run_us: f64,
    pub copy_us: f64,
    pub to_device_gb_s: f64,
    pub to_host_gb_s: f64,
    pub handover_us: f64,
    pub unknown_bytes: u64,
    pub loop_trips: u64,
    pub device: Side,
    pub host: Side,
}

/// What one side computes in how long.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Side {
    pub gflop_s: f64,
    pub memory_gb_s: f64,
    pub node_us: NodeTimes,
}

/// Microseconds of a node beside its arithmetic and memory traffic, by class.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeTimes {
    pub contraction: f64,
    pub window: f64,
    pub elementwise: f64,
    pub movement: f64,
    pub view: f64,
    pub shape: f64,
    pub other: f64,
}

impl NodeTimes {
    fn of(&self, class: OpClass) -> f64 {
        match class {
            OpClass::Contraction => self.contraction,
            OpClass::Window => self.window,
            OpClass::Elementwise => self.elementwise,
            OpClass::Movement => self.movement,
            OpClass::View => self.view,
            OpClass::Shape => self.shape,
            OpClass::Other => self.other,
        }
    }

    fn all(&self) -> [f64; 7] {
        let NodeTimes { contraction, window, elementwise, movement, view, shape, other } = *self;
        [contraction, window, elementwise, movement, view, shape, other]
    }
}

const DEFAULTS: &str = include_str!("defaults.toml");
const PRODUCTS: [&str; 2] = ["rtx", "tensorrt"];

impl Default for CostModel {
    fn default() -> CostModel {
        // A test parses the defaults; should they ever not parse, every target is refused with the reason.
        CostModel { layers: DEFAULTS.parse::<Table>().into_iter().collect(), places: true }
    }
}

impl CostModel {
    /// The defaults, for estimates only: engines are maximal clusters, whatever they cost.
    pub fn maximal_clusters() -> CostModel {
        CostModel { places: false, ..CostModel::default() }
    }

    /// Whether nodes are placed by cost.
    pub(crate) fn places(&self) -> bool {
        self.places
    }

    /// The defaults, changed by `text`: TOML of the layout of `partitioner/src/cost/defaults.toml`, of which it names
    /// what it changes.
    ///
    /// # Errors
    /// Text that is no TOML, a table or constant that does not exist, a number that is negative or no number.
    pub fn with_changes(text: &str) -> Result<CostModel, CostModelError> {
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| CostModelError(error.to_string().trim().replace('\n', " ")))?;
        for (name, value) in &table {
            let capabilities =
                value.as_table().into_iter().flatten().filter(|(key, _)| key.starts_with("sm"));
            if name != "base" && !PRODUCTS.contains(&name.as_str()) {
                return Err(CostModelError(format!("no table `{name}`; known: base, rtx, tensorrt")));
            }
            for (key, _) in capabilities {
                if name == "base" || key[2..].parse::<u16>().is_err() {
                    return Err(CostModelError(format!(
                        "`{name}.{key}` is no compute capability of a product"
                    )));
                }
            }
        }
        let mut model = CostModel::default();
        model.layers.push(table);
        // Whatever it changes is read for some target.
        for product in PRODUCTS {
            model.constants_for(Some(product), None)?;
            let names: Vec<String> = model.capabilities(product);
            for name in names {
                model.constants_for(Some(product), Some(&name))?;
            }
        }
        Ok(model)
    }

    fn capabilities(&self, product: &str) -> Vec<String> {
        let tables = self.layers.iter().filter_map(|layer| layer.get(product)?.as_table());
        tables.flat_map(|table| table.keys().filter(|key| key.starts_with("sm")).cloned()).collect()
    }

    /// The constants of a target; a target with several compute capabilities counts as its lowest one.
    pub(crate) fn constants(&self, target: &Target) -> Result<Constants, CostModelError> {
        let product = match target.product() {
            Product::Rtx => Some("rtx"),
            Product::TensorRt => Some("tensorrt"),
            _ => None,
        };
        let capability = target.min_sm().map(|sm| format!("sm{sm}"));
        self.constants_for(product, capability.as_deref())
    }

    fn constants_for(
        &self,
        product: Option<&str>,
        capability: Option<&str>,
    ) -> Result<Constants, CostModelError> {
        let mut merged = Table::new();
        for layer in &self.layers {
            overlay(&mut merged, layer.get("base"), false);
        }
        if let Some(product) = product {
            for layer in &self.layers {
                overlay(&mut merged, layer.get(product), true);
            }
            for layer in &self.layers {
                let own = capability.and_then(|capability| layer.get(product)?.as_table()?.get(capability));
                overlay(&mut merged, own, false);
            }
        }
        let constants: Constants =
            Value::Table(merged).try_into().map_err(|error: toml::de::Error| one_line(&error))?;
        constants.check()?;
        Ok(constants)
    }
}

fn one_line(error: &toml::de::Error) -> CostModelError {
    CostModelError(error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Puts the entries of `over` over those of `table`, tables entry by entry.
fn overlay(table: &mut Table, over: Option<&Value>, skip_capabilities: bool) {
    let Some(Value::Table(over)) = over else { return };
    for (key, value) in over {
        if skip_capabilities && key.starts_with("sm") {
            continue;
        }
        match (table.get_mut(key), value) {
            (Some(Value::Table(own)), Value::Table(_)) => overlay(own, Some(value), false),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

impl Constants {
    fn check(&self) -> Result<(), CostModelError> {
        let sides = [&self.device, &self.host];
        let mut times = vec![self.engine_launch_us, self.host_run_us, self.copy_us, self.handover_us];
        times.extend(sides.iter().flat_map(|side| side.node_us.all()));
        let rates = [self.to_device_gb_s, self.to_host_gb_s]
            .into_iter()
            .chain(sides.iter().flat_map(|side| [side.gflop_s, side.memory_gb_s]));
        if times.iter().any(|time| !(0.0..=1e9).contains(time)) {
            return Err(CostModelError("a time is wanted between 0 and 1e9 microseconds".to_owned()));
        }
        if rates.into_iter().any(|rate| !(1e-6..=1e15).contains(&rate)) {
            return Err(CostModelError("a rate is wanted between 1e-6 and 1e15".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::CostModel;
    use trtc_bundle::Target;

    fn constants(model: &CostModel, target: &str) -> super::Constants {
        model.constants(&target.parse::<Target>().unwrap()).unwrap()
    }

    #[test]
    fn every_target_has_constants() {
        let model = CostModel::default();
        for target in ["rtx-1.7:sm75,sm120", "rtx-1.7:sm121", "tensorrt-11.3:sm100", "host"] {
            assert!(constants(&model, target).device.gflop_s > 1000.0);
        }
        assert!(
            constants(&model, "rtx-1.7:sm75").device.gflop_s
                < constants(&model, "rtx-1.7:sm89").device.gflop_s
        );
    }

    #[test]
    fn a_file_changes_what_it_names() {
        let text = "[base]\ncopy_us = 1\n[rtx]\nhost_run_us = 2.5\n[rtx.sm89.device]\nmemory_gb_s = 77.0\n";
        let model = CostModel::with_changes(text).unwrap();
        let (a, b) = (constants(&model, "rtx-1.7:sm89"), constants(&model, "tensorrt-11.3:sm89"));
        assert_eq!((a.copy_us, a.host_run_us, a.device.memory_gb_s), (1.0, 2.5, 77.0));
        assert_eq!((b.copy_us, b.host_run_us), (1.0, constants(&CostModel::default(), "host").host_run_us));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| CostModel::with_changes(text).unwrap_err().to_string();
        assert!(error("[base]\ncopy = 1").contains("copy"));
        assert!(error("[rtx.sm89.device]\nflops = 1").contains("flops"));
        assert!(error("[gpu]\ncopy_us = 1").contains("`gpu`"));
        assert!(error("[rtx.smx]\ncopy_us = 1").contains("rtx.smx"));
        assert!(error("[base]\ncopy_us = -1").contains("time"));
        assert!(error("[base]\nto_host_gb_s = 0").contains("rate"));
        assert!(error("[base]\ncopy_us = \"fast\"").contains("copy_us"));
        assert!(error("[base").contains("TOML"));
    }
}
