//! Networks to engines.

use crate::{Library, emit::Emitter, locate::product_name, numbers::dtype_of};
use cxx::UniquePtr;
use std::{fmt, ops::Deref, sync::PoisonError};
use trtc_bundle::{DType, Product, Target};
use trtc_network::{Fault, Network, TensorInfo};
use trtc_tensorrt_sys::ffi;

/// Settings of one build; the default leaves limits to the library and keeps products of f32 in f32.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BuildOptions {
    /// Scratch memory that a layer may use, in bytes.
    pub workspace_bytes: Option<u64>,
    /// Threads of the builder.
    pub max_threads: Option<u32>,
    /// Whether convolutions and matrix products of f32 may round their operands to TF32 (10 bits of mantissa), which GPUs
    /// from sm80 on multiply faster. Sums stay f32.
    pub tf32: bool,
}

impl BuildOptions {
    /// Limits the scratch memory that a layer may use.
    pub fn with_workspace_bytes(mut self, bytes: u64) -> BuildOptions {
        self.workspace_bytes = Some(bytes);
        self
    }

    /// Limits the builder's threads.
    pub fn with_max_threads(mut self, threads: u32) -> BuildOptions {
        self.max_threads = Some(threads);
        self
    }

    /// Allows TF32.
    pub fn with_tf32(mut self, allow: bool) -> BuildOptions {
        self.tf32 = allow;
        self
    }
}

/// Why there is no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A layer that TensorRT takes as invalid or sees otherwise than the network says: a broken promise of ours.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The builder refused the network.
    #[error("{}", .words.join("; "))]
    Refused {
        /// The builder's own error lines, each once, without what only this machine is to blame for.
        words: Vec<String>,
        /// Source nodes that the words name, each once.
        nodes: Vec<String>,
    },
    /// The library only runs engines.
    #[error("the library has no builder")]
    NoBuilder,
    /// The target is another product's.
    #[error("a {library} library cannot build for {target}")]
    Target {
        /// Product of the library.
        library: &'static str,
        /// The target.
        target: Target,
    },
}

/// A serialized engine in the library's own memory.
pub struct EngineBytes {
    bytes: UniquePtr<ffi::EngineBytes>,
    // The memory is the library's.
    _library: Library,
}

// SAFETY: a block of memory that nobody writes to and that any thread may free.
unsafe impl Send for EngineBytes {}
// SAFETY: as above.
unsafe impl Sync for EngineBytes {}

impl Deref for EngineBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.bytes()
    }
}

impl fmt::Debug for EngineBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineBytes({})", self.len())
    }
}

/// Builds engines with one library, one at a time.
#[derive(Clone, Debug)]
pub struct Builder {
    library: Library,
}

impl Builder {
    pub(crate) fn new(library: Library) -> Builder {
        Builder { library }
    }

    /// Builds the engine of `network` for every compute capability of `target`.
    ///
    /// `weights[k]` are the packed little-endian bytes of `network.weights[k]`; they are not copied. For TensorRT the
    /// GPU of this machine decides what the engine runs on.
    ///
    /// # Errors
    /// [`BuildError`]. The library may also abort the process, and recurses as deep as the network.
    pub fn build(
        &self,
        network: &Network,
        weights: &[&[u8]],
        target: &Target,
        options: &BuildOptions,
    ) -> Result<EngineBytes, BuildError> {
        let inner = &self.library.inner;
        if target.product() != self.library.product() {
            let library = product_name(self.library.product());
            return Err(BuildError::Target { library, target: target.clone() });
        }
        if !self.library.has_builder() {
            return Err(BuildError::NoBuilder);
        }
        let _one_at_a_time = inner.building.lock().unwrap_or_else(PoisonError::into_inner);
        inner.log.clear();
        let refused = |e: cxx::Exception, layers: &[u32]| {
            let mut words = Words::read(&inner.log.raw(), network, layers);
            if words.lines.is_empty() {
                words.lines.push(e.what().to_owned());
            }
            BuildError::Refused { words: words.lines, nodes: words.nodes }
        };
        let shim = inner.ffi.network(&network.name).map_err(|e| refused(e, &[]))?;
        let (mut shim, layers) = Emitter::new(inner.api, network, weights, &inner.log, shim).run()?;
        let sms: Vec<i32> = match target.product() {
            Product::Rtx => target.sms().iter().map(|&sm| i32::from(sm)).collect(),
            _ => Vec::new(),
        };
        let settings = ffi::BuildSettings {
            sms: &sms,
            workspace_bytes: options.workspace_bytes.unwrap_or(0),
            max_threads: options.max_threads.map_or(0, |n| i32::try_from(n).unwrap_or(i32::MAX)),
            tf32: options.tf32,
        };
        let bytes = shim.pin_mut().build(&settings).map_err(|e| refused(e, &layers))?;
        Ok(EngineBytes { bytes, _library: self.library.clone() })
    }
}

impl Builder {
    /// What TensorRT itself says of the outputs of `network` as its layers are added, before anything is built. Dims that
    /// follow from constants, through whatever layers the library evaluates, are numbers; others are −1.
    ///
    /// # Errors
    /// [`BuildError::Fault`], [`BuildError::Refused`], [`BuildError::NoBuilder`].
    pub fn outputs(&self, network: &Network, weights: &[&[u8]]) -> Result<Vec<TensorInfo>, BuildError> {
        let inner = &self.library.inner;
        if !self.library.has_builder() {
            return Err(BuildError::NoBuilder);
        }
        let _one_at_a_time = inner.building.lock().unwrap_or_else(PoisonError::into_inner);
        inner.log.clear();
        let refused =
            |e: cxx::Exception| BuildError::Refused { words: vec![e.what().to_owned()], nodes: Vec::new() };
        let shim = inner.ffi.network(&network.name).map_err(refused)?;
        let (shim, _) = Emitter::new(inner.api, network, weights, &inner.log, shim).run()?;
        let info = |output: &trtc_network::Output| {
            let found = shim.describe(output.tensor.0).map_err(refused)?;
            let rank = usize::try_from(found.rank).unwrap_or(0).min(found.dims.len());
            let dtype =
                dtype_of(inner.api, found.dtype).or(network.tensor(output.tensor).map(|own| own.dtype));
            let (dtype, dims) = (dtype.unwrap_or(DType::F32), found.dims[..rank].to_vec());
            Ok(TensorInfo { dtype, dims })
        };
        network.outputs.iter().map(info).collect()
    }
}

/// Error lines of the library, made fit to show.
pub(crate) struct Words {
    pub lines: Vec<String>,
    pub nodes: Vec<String>,
}

impl Words {
    /// Cleans `raw`; layers named `node@k` lose their number, and their nodes are listed.
    pub fn read(raw: &[String], network: &Network, layer_nodes: &[u32]) -> Words {
        let mut words = Words { lines: Vec::new(), nodes: Vec::new() };
        for line in raw {
            let line = words.without_numbers(without_driver_tail(line.trim()), network, layer_nodes);
            let line = one_line(&line);
            if !line.is_empty() && !words.lines.contains(&line) {
                words.lines.push(line);
            }
        }
        if words.lines.is_empty() {
            // Then the driver is what it is about.
            words.lines.extend(raw.first().cloned());
        }
        words
    }

    fn without_numbers(&mut self, line: &str, network: &Network, layer_nodes: &[u32]) -> String {
        let mut shown = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(at) = rest.find('@') {
            let (head, tail) = rest.split_at(at);
            let digits = tail.bytes().skip(1).take_while(u8::is_ascii_digit).count();
            let number = tail.get(1..=digits).and_then(|text| text.parse::<usize>().ok());
            let node = number.and_then(|k| layer_nodes.get(k)).and_then(|&n| network.nodes.get(n as usize));
            shown.push_str(head);
            match node {
                Some(node) if !node.is_empty() && head.ends_with(node.as_str()) => {
                    if !self.nodes.contains(node) {
                        self.nodes.push(node.clone());
                    }
                    rest = tail.get(digits + 1..).unwrap_or_default();
                }
                _ => {
                    shown.push('@');
                    rest = tail.get(1..).unwrap_or_default();
                }
            }
        }
        shown.push_str(rest);
        shown
    }
}

/// The builder at times appends listings of its internals, over many lines: the beginning says what is wrong.
fn one_line(text: &str) -> String {
    const CHARS: usize = 400;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

/// On a machine without a GPU each error drags a complaint about the missing driver behind it, as a line of its own or
/// as a tail, whatever went wrong.
fn without_driver_tail(line: &str) -> &str {
    let Some(at) = line.find("(cudaError 35") else { return line };
    let head = line.get(..at).unwrap_or_default();
    if head.starts_with("[checkMacros.cpp::catchCudaError") { "" } else { head.trim_end() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as TensorRT-RTX 1.7 wrote them.
    const DRIVER: &str = "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at \
                          /_src/common/dispatch/checkMacros.cpp:250 (cudaError 35: CUDA driver version is insufficient \
                          for CUDA runtime version))";
    const GEMM: &str = "Cannot compile operation 'a b@1' for Turing (SM75): FP32 GEMM is not supported.";

    #[test]
    fn a_listing_is_one_line_and_cut() {
        assert_eq!(one_line("a\n  b:\tc"), "a b: c");
        let long = one_line(&"é ".repeat(1000));
        assert!(long.ends_with('…') && long.chars().count() == 402, "{}", long.chars().count());
    }

    fn words(raw: &[&str]) -> Words {
        let network = Network { nodes: vec!["other".into(), "a b".into()], ..Network::default() };
        let raw: Vec<String> = raw.iter().map(|line| (*line).to_owned()).collect();
        Words::read(&raw, &network, &[0, 1])
    }

    #[test]
    fn words_name_nodes_once_and_leave_the_driver_out() {
        let words = words(&[GEMM, DRIVER, GEMM, "shape of a b@1:0, other@0 and x@0 @ 7@"]);
        assert_eq!(words.nodes, ["a b", "other"]);
        assert_eq!(
            words.lines,
            [&GEMM.replace("@1", ""), "shape of a b:0, other and x@0 @ 7@"],
            "x is no node of layer 0, so its @ stays"
        );
    }

    #[test]
    fn a_driver_that_is_the_only_complaint_is_said() {
        assert_eq!(words(&[DRIVER]).lines, [DRIVER]);
        assert!(words(&[]).lines.is_empty());
    }
}
