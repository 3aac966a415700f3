//! What a bundle is compiled for: a value, never read from the machine that compiles.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Product that runs the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Product {
    /// TensorRT-RTX: engines are built without a GPU, for a list of compute capabilities.
    Rtx,
    /// TensorRT: engines are built on the GPU that runs them.
    #[serde(rename = "tensorrt")]
    TensorRt,
    /// No engines: everything on the host.
    Host,
}

/// A product, its version, and the compute capabilities that every engine must run on.
///
/// Written `rtx-1.7:sm86,sm89`, `tensorrt-11.3:sm90`, `host`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    product: Product,
    version: (u16, u16),
    sms: Vec<u16>,
}

/// Why a target's text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "target `{text}`: {why}; known: rtx-1.7:sm75,sm80,sm86,sm89,sm120,sm121 (any subset), tensorrt-11.3:smXX, host"
)]
pub struct TargetError {
    text: String,
    why: String,
}

impl Target {
    /// Compute capabilities that the TensorRT-RTX 1.7 builder accepts (measured: 61 70 87 88 90 100 103 110 130
    /// are refused by `setComputeCapability`).
    pub const RTX_1_7_SMS: &'static [u16] = &[75, 80, 86, 89, 120, 121];

    /// What is compiled for when nobody says otherwise: `rtx-1.7:sm86,sm89,sm120`.
    pub fn default_target() -> Target {
        Target { product: Product::Rtx, version: (1, 7), sms: vec![86, 89, 120] }
    }

    /// The target without engines.
    pub fn host() -> Target {
        Target { product: Product::Host, version: (0, 0), sms: Vec::new() }
    }

    /// Product of the target.
    pub fn product(&self) -> Product {
        self.product
    }

    /// (major, minor); (0, 0) for the host.
    pub fn version(&self) -> (u16, u16) {
        self.version
    }

    /// Compute capabilities, ascending, without duplicates; empty for the host.
    pub fn sms(&self) -> &[u16] {
        &self.sms
    }

    /// The lowest compute capability; `None` for the host. A node is admitted only when every one accepts it,
    /// and type gates rise with the capability.
    pub fn min_sm(&self) -> Option<u16> {
        self.sms.first().copied()
    }

    /// Whether engines for this target can be built on a machine without its GPU.
    pub fn builds_without_gpu(&self) -> bool {
        self.product == Product::Rtx
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let fail = |why: String| TargetError { text: text.to_owned(), why };
        if text == "host" {
            return Ok(Target::host());
        }
        let (head, list) =
            text.split_once(':').ok_or_else(|| fail("the compute capabilities are missing".into()))?;
        let (product, version) = match head {
            "rtx-1.7" => (Product::Rtx, (1, 7)),
            "tensorrt-11.3" => (Product::TensorRt, (11, 3)),
            _ => return Err(fail(format!("no product and version `{head}`"))),
        };
        let mut sms = Vec::new();
        for item in list.split(',') {
            let sm: u16 = item
                .strip_prefix("sm")
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| fail(format!("`{item}` is not a compute capability like sm89")))?;
            if product == Product::Rtx && !Target::RTX_1_7_SMS.contains(&sm) {
                return Err(fail(format!("TensorRT-RTX 1.7 does not build for sm{sm}")));
            }
            if !(50..=199).contains(&sm) {
                return Err(fail(format!("no compute capability sm{sm}")));
            }
            sms.push(sm);
        }
        sms.sort_unstable();
        sms.dedup();
        if product == Product::TensorRt && sms.len() != 1 {
            return Err(fail("a TensorRT engine is for exactly one compute capability".into()));
        }
        Ok(Target { product, version, sms })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.product {
            Product::Rtx => "rtx",
            Product::TensorRt => "tensorrt",
            Product::Host => return f.write_str("host"),
        };
        write!(f, "{name}-{}.{}:", self.version.0, self.version.1)?;
        for (k, sm) in self.sms.iter().enumerate() {
            let comma = if k == 0 { "" } else { "," };
            write!(f, "{comma}sm{sm}")?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Target, TargetError> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn text_round_trips() {
        for text in ["rtx-1.7:sm86,sm89,sm120", "tensorrt-11.3:sm90", "host"] {
            assert_eq!(text.parse::<Target>().map(|t| t.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(Target::default_target().to_string(), "rtx-1.7:sm86,sm89,sm120");
    }

    #[test]
    fn bad_text_says_what_is_wrong() {
        for (text, word) in [
            ("rtx-1.7", "missing"),
            ("rtx-1.7:sm90", "sm90"),
            ("rtx-1.6:sm89", "rtx-1.6"),
            ("tensorrt-11.3:sm80,sm90", "exactly one"),
            ("rtx-1.7:89", "`89`"),
        ] {
            let error = text.parse::<Target>().expect_err("must be refused").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
