//! A network, layer by layer, into the shim; each layer is compared with what TensorRT makes of it.

use crate::{
    log::Log,
    numbers::{Api, Number, dtype_number, dtype_of},
};
use cxx::UniquePtr;
use std::{collections::HashSet, pin::Pin};
use trtc_bundle::DType;
use trtc_network::{
    Fault, Layer, LayerEntry, Network, Region, TensorId, TensorInfo,
    layer::{Capture, Count, Extent, LoopIterator, LoopOutput, Recurrence, ResizeTo, TripLimit, Window},
};
use trtc_tensorrt_sys::{NO_TENSOR, ffi};

/// Names of layers and nodes longer than this are cut: TensorRT takes 4096 bytes with what it adds.
const LONGEST_NAME: usize = 1000;

/// Fills a shim network. Names each layer `node@k`, so that a message of the builder leads back to its node.
pub(crate) struct Emitter<'a> {
    api: Api,
    network: &'a Network,
    weights: &'a [&'a [u8]],
    log: &'a Log,
    shim: UniquePtr<ffi::NetworkBuilder>,
    /// Node of each layer emitted so far.
    layer_nodes: Vec<u32>,
}

type Done = Result<(), cxx::Exception>;

impl<'a> Emitter<'a> {
    /// `weights[k]` are the bytes of `network.weights[k]`; they must outlive the shim network, which is why both share `'a`.
    pub fn new(
        api: Api,
        network: &'a Network,
        weights: &'a [&'a [u8]],
        log: &'a Log,
        shim: UniquePtr<ffi::NetworkBuilder>,
    ) -> Emitter<'a> {
        Emitter { api, network, weights, log, shim, layer_nodes: Vec::new() }
    }

    /// The finished shim network and the node name of each layer `@k`.
    pub fn run(mut self) -> Result<(UniquePtr<ffi::NetworkBuilder>, Vec<u32>), Fault> {
        if self.weights.len() != self.network.weights.len() {
            let (given, named) = (self.weights.len(), self.network.weights.len());
            return Err(self.fault(None, format!("{given} blocks of weights were given for {named}")));
        }
        for input in &self.network.inputs {
            let info = self.info(input.tensor).map_err(|what| self.fault(None, what))?;
            let dtype = self.dtype(info.dtype).map_err(|what| self.fault(None, what))?;
            let added = self.shim.pin_mut().add_input(input.tensor.0, &input.name, dtype, &info.dims);
            let named = input.dim_names.iter().enumerate().filter(|(_, name)| !name.is_empty());
            let done = added.and_then(|()| {
                let mut named = named;
                named.try_for_each(|(axis, name)| {
                    self.shim.pin_mut().name_dim(input.tensor.0, axis as i32, name)
                })
            });
            done.map_err(|e| self.fault(None, format!("input `{}`: {}", input.name, e.what())))?;
        }
        self.block(&self.network.layers)?;
        self.outputs()?;
        for profile in &self.network.profile {
            let mut set = Ok(());
            if let Some([min, opt, max]) = &profile.dims {
                set = set.and_then(|()| self.shim.pin_mut().set_profile_dims(&profile.name, min, opt, max));
            }
            if let Some([min, opt, max]) = &profile.values {
                set = set.and_then(|()| self.shim.pin_mut().set_profile_values(&profile.name, min, opt, max));
            }
            set.map_err(|e| self.fault(None, format!("profile of `{}`: {}", profile.name, e.what())))?;
        }
        Ok((self.shim, self.layer_nodes))
    }

    /// TensorRT renames the tensor that becomes an output, so one that has a name already goes out through an identity.
    fn outputs(&mut self) -> Result<(), Fault> {
        let mut named: HashSet<TensorId> = self.network.inputs.iter().map(|input| input.tensor).collect();
        for (k, output) in self.network.outputs.iter().enumerate() {
            let mut id = output.tensor.0;
            let mut marked = Ok(());
            if !named.insert(output.tensor) {
                let copy = (self.network.tensors.len() + k) as u32;
                marked = self.shim.pin_mut().identity(id);
                marked = marked
                    .and_then(|()| self.shim.pin_mut().bind(&format!("output {}", output.name), &[copy]));
                id = copy;
            }
            marked = marked.and_then(|()| self.shim.pin_mut().mark_output(id, &output.name));
            marked.map_err(|e| self.fault(None, format!("output `{}`: {}", output.name, e.what())))?;
        }
        Ok(())
    }

    fn block(&mut self, entries: &'a [LayerEntry]) -> Result<(), Fault> {
        entries.iter().try_for_each(|entry| self.entry(entry))
    }

    fn entry(&mut self, entry: &'a LayerEntry) -> Result<(), Fault> {
        match &entry.layer {
            Layer::If { condition, captures, then_branch, else_branch } => {
                self.conditional(entry, *condition, captures, then_branch, else_branch)
            }
            Layer::Loop { limits, recurrences, iterators, body, results } => {
                self.repeat(entry, limits, recurrences, iterators, body, results)
            }
            layer => {
                self.add(layer).map_err(|what| self.fault(Some(entry), what))?;
                self.bind(entry, &entry.outputs)
            }
        }
    }

    /// Names the layer added last, takes its outputs and compares them with what the network says.
    fn bind(&mut self, entry: &LayerEntry, outputs: &[TensorId]) -> Result<(), Fault> {
        let name = self.next_name(entry);
        let mut ids = Vec::with_capacity(outputs.len());
        for &id in outputs {
            self.info(id).map_err(|what| self.fault(Some(entry), what))?;
            ids.push(id.0);
        }
        self.shim.pin_mut().bind(&name, &ids).map_err(|e| self.fault(Some(entry), e.what()))?;
        outputs.iter().try_for_each(|&id| self.compare(id).map_err(|what| self.fault(Some(entry), what)))
    }

    fn compare(&self, id: TensorId) -> Result<(), String> {
        let ours = self.info(id)?;
        let theirs = self.shim.describe(id.0).map_err(|e| e.what().to_owned())?;
        let Ok(rank) = usize::try_from(theirs.rank) else {
            return Err("TensorRT takes the layer as invalid".to_owned());
        };
        let dims = theirs.dims.get(..rank).unwrap_or_default();
        let differ = |(&a, &b): (&i64, &i64)| a >= 0 && b >= 0 && a != b;
        if dtype_number(self.api, ours.dtype) == Some(theirs.dtype)
            && rank == ours.dims.len()
            && !dims.iter().zip(&ours.dims).any(differ)
        {
            return Ok(());
        }
        let dtype =
            dtype_of(self.api, theirs.dtype).map_or_else(|| theirs.dtype.to_string(), |d| d.to_string());
        Err(format!("TensorRT makes {dtype} {dims:?} of it, the network says {} {:?}", ours.dtype, ours.dims))
    }

    fn conditional(
        &mut self,
        entry: &'a LayerEntry,
        condition: TensorId,
        captures: &[Capture],
        then_branch: &'a Region,
        else_branch: &'a Region,
    ) -> Result<(), Fault> {
        let name = self.next_name(entry);
        let handle = self.shim.pin_mut().begin_if(condition.0, &name);
        let handle = handle.map_err(|e| self.fault(Some(entry), e.what()))?;
        for capture in captures {
            let added = self.shim.pin_mut().if_input(handle, capture.outer.0);
            added.map_err(|e| self.fault(Some(entry), e.what()))?;
            self.bind(entry, &[capture.inner])?;
        }
        self.block(&then_branch.layers)?;
        self.block(&else_branch.layers)?;
        if then_branch.outputs.len() != entry.outputs.len()
            || else_branch.outputs.len() != entry.outputs.len()
        {
            return Err(self.fault(Some(entry), "its branches and outputs are of unequal number"));
        }
        for ((&output, then_x), else_x) in
            entry.outputs.iter().zip(&then_branch.outputs).zip(&else_branch.outputs)
        {
            let added = self.shim.pin_mut().if_output(handle, then_x.0, else_x.0);
            added.map_err(|e| self.fault(Some(entry), e.what()))?;
            self.bind(entry, &[output])?;
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        entry: &'a LayerEntry,
        limits: &[(TripLimit, TensorId)],
        recurrences: &[Recurrence],
        iterators: &[LoopIterator],
        body: &'a [LayerEntry],
        results: &[LoopOutput],
    ) -> Result<(), Fault> {
        let name = self.next_name(entry);
        let handle = self.shim.pin_mut().begin_loop(&name).map_err(|e| self.fault(Some(entry), e.what()))?;
        let by_count = |limit: &&(TripLimit, TensorId)| limit.0 == TripLimit::Count;
        for (kind, limit) in limits.iter().filter(by_count) {
            let added = self.shim.pin_mut().loop_limit(handle, limit.0, kind.number(self.api));
            added.map_err(|e| self.fault(Some(entry), e.what()))?;
            self.bind(entry, &[])?;
        }
        for recurrence in recurrences {
            let added = self.shim.pin_mut().loop_recurrence(handle, recurrence.initial.0);
            added.map_err(|e| self.fault(Some(entry), e.what()))?;
            self.bind(entry, &[recurrence.current])?;
        }
        for iterator in iterators {
            let axis = iterator.axis as i32;
            let added = self.shim.pin_mut().loop_iterator(handle, iterator.x.0, axis, iterator.reverse);
            added.map_err(|e| self.fault(Some(entry), e.what()))?;
            self.bind(entry, &[iterator.current])?;
        }
        self.block(body)?;
        // What the body makes: next states and conditions.
        for (k, recurrence) in recurrences.iter().enumerate() {
            let closed = self.shim.pin_mut().loop_next(handle, k as u32, recurrence.next.0);
            closed.map_err(|e| self.fault(Some(entry), e.what()))?;
        }
        for (kind, limit) in limits.iter().filter(|limit| !by_count(limit)) {
            let added = self.shim.pin_mut().loop_limit(handle, limit.0, kind.number(self.api));
            added.map_err(|e| self.fault(Some(entry), e.what()))?;
            self.bind(entry, &[])?;
        }
        if results.len() != entry.outputs.len() {
            return Err(self.fault(Some(entry), "its results and outputs are of unequal number"));
        }
        for (&output, result) in entry.outputs.iter().zip(results) {
            let (kind, axis) = (result.kind.number(self.api), result.axis as i32);
            let length = optional(result.length);
            let added = self.shim.pin_mut().loop_output(handle, result.value.0, kind, axis, length);
            added.map_err(|e| self.fault(Some(entry), e.what()))?;
            self.bind(entry, &[output])?;
        }
        Ok(())
    }

    /// Adds one layer that is neither an `If` nor a `Loop`.
    fn add(&mut self, layer: &Layer) -> Result<(), String> {
        let api = self.api;
        let dtype = |d: DType| dtype_number(api, d).ok_or_else(|| format!("TensorRT has no {d}"));
        match layer {
            Layer::Constant { dims, weights } => return self.constant(dims, weights.index()),
            Layer::Convolution { x, kernel, bias, window, groups } => {
                let maps = self.kernel_dim(*kernel, 0)?;
                let window = shim_window(window);
                let shim = self.shim.pin_mut();
                return said(shim.convolution(x.0, kernel.0, optional(*bias), maps, &window, *groups));
            }
            Layer::Deconvolution { x, kernel, bias, window, groups } => {
                let maps = self.kernel_dim(*kernel, 1)?.saturating_mul(*groups);
                let window = shim_window(window);
                let shim = self.shim.pin_mut();
                return said(shim.deconvolution(x.0, kernel.0, optional(*bias), maps, &window, *groups));
            }
            _ => {}
        }
        let shim: Pin<&mut ffi::NetworkBuilder> = self.shim.pin_mut();
        said(match layer {
            Layer::Constant { .. } | Layer::Convolution { .. } | Layer::Deconvolution { .. } => Ok(()),
            Layer::If { .. } | Layer::Loop { .. } => return Err("control flow is not one layer".to_owned()),
            Layer::Activation { x, kind, alpha, beta } => {
                shim.activation(x.0, kind.number(api), *alpha, *beta)
            }
            Layer::Cast { x, to } => shim.cast(x.0, dtype(*to)?),
            Layer::Concatenation { xs, axis } => shim.concatenation(&ids(xs), *axis as i32),
            Layer::Cumulative { x, axis, op, exclusive, reverse } => {
                shim.cumulative(x.0, axis.0, op.number(api), *exclusive, *reverse)
            }
            Layer::Dequantize { x, scale, axis, to } => {
                shim.dequantize(x.0, scale.0, optional_axis(*axis), dtype(*to)?)
            }
            Layer::Quantize { x, scale, axis, to } => {
                shim.quantize(x.0, scale.0, optional_axis(*axis), dtype(*to)?)
            }
            Layer::Einsum { xs, equation } => shim.einsum(&ids(xs), equation),
            Layer::ElementWise { a, b, op } => shim.element_wise(a.0, b.0, op.number(api)),
            Layer::Fill { shape, op, alpha, beta, to } => {
                shim.fill(&shim_extent(shape), op.number(api), alpha.0, beta.0, dtype(*to)?)
            }
            Layer::Gather { data, indices, axis, mode, batch_dims } => {
                shim.gather(data.0, indices.0, *axis as i32, mode.number(api), *batch_dims as i32)
            }
            Layer::GridSample { x, grid, interpolation, align_corners, mode } => {
                shim.grid_sample(x.0, grid.0, interpolation.number(api), *align_corners, mode.number(api))
            }
            Layer::Identity { x } => shim.identity(x.0),
            Layer::Lrn { x, window, alpha, beta, k } => shim.lrn(x.0, *window, *alpha, *beta, *k),
            Layer::MatrixMultiply { a, op_a, b, op_b } => {
                shim.matrix_multiply(a.0, op_a.number(api), b.0, op_b.number(api))
            }
            Layer::Nms { boxes, scores, max_output_boxes, iou_threshold, score_threshold, format, to } => {
                shim.nms(
                    boxes.0,
                    scores.0,
                    max_output_boxes.0,
                    optional(*iou_threshold),
                    optional(*score_threshold),
                    format.number(api),
                    dtype(*to)?,
                )
            }
            Layer::NonZero { x, to } => shim.non_zero(x.0, dtype(*to)?),
            Layer::Normalization { x, scale, bias, axes, epsilon, groups } => {
                shim.normalization(x.0, scale.0, bias.0, mask(axes)?, *epsilon, *groups)
            }
            Layer::OneHot { indices, values, depth, axis } => {
                shim.one_hot(indices.0, values.0, depth.0, *axis as i32)
            }
            Layer::ParametricRelu { x, slopes } => shim.parametric_relu(x.0, slopes.0),
            Layer::Pooling { x, kind, window, exclude_padding, blend } => {
                shim.pooling(x.0, kind.number(api), &shim_window(window), *exclude_padding, *blend)
            }
            Layer::Reduce { x, op, axes, keep_dims } => {
                shim.reduce(x.0, op.number(api), mask(axes)?, *keep_dims)
            }
            Layer::Resize {
                x,
                to,
                interpolation,
                coordinates,
                selector,
                round,
                cubic_coeff,
                exclude_outside,
            } => {
                let settings = ffi::ResizeSettings {
                    interpolation: interpolation.number(api),
                    coordinates: coordinates.number(api),
                    selector: selector.number(api),
                    round: round.number(api),
                    cubic_coeff: *cubic_coeff,
                    exclude_outside: *exclude_outside,
                };
                match to {
                    ResizeTo::Sizes(sizes) => shim.resize_to(x.0, &shim_extent(sizes), &settings),
                    ResizeTo::Scales(scales) => shim.resize_by(x.0, scales, &settings),
                }
            }
            Layer::ReverseSequence { x, lengths, batch_axis, sequence_axis } => {
                shim.reverse_sequence(x.0, lengths.0, *batch_axis as i32, *sequence_axis as i32)
            }
            Layer::Scatter { data, indices, updates, mode, axis } => {
                shim.scatter(data.0, indices.0, updates.0, mode.number(api), *axis as i32)
            }
            Layer::Select { condition, then_input, else_input } => {
                shim.select(condition.0, then_input.0, else_input.0)
            }
            Layer::Shape { x } => shim.shape_of(x.0),
            Layer::Shuffle { x, first, reshape, zero_is_placeholder, second } => {
                let none = Extent::Static(Vec::new());
                let dims = shim_extent(reshape.as_ref().unwrap_or(&none));
                let (first, second) =
                    (first.as_deref().unwrap_or_default(), second.as_deref().unwrap_or_default());
                shim.shuffle(x.0, first, reshape.is_some(), &dims, *zero_is_placeholder, second)
            }
            Layer::Slice { x, start, size, stride, mode, fill } => {
                let (start, size, stride) = (shim_extent(start), shim_extent(size), shim_extent(stride));
                shim.slice(x.0, &start, &size, &stride, mode.number(api), optional(*fill))
            }
            Layer::SoftMax { x, axis } => shim.softmax(x.0, mask(&[*axis])?),
            Layer::Squeeze { x, axes } => shim.squeeze(x.0, &longs(axes)),
            Layer::Unsqueeze { x, axes } => shim.unsqueeze(x.0, &longs(axes)),
            Layer::TopK { x, op, k, axis, indices } => {
                let (fixed, tensor) = match k {
                    Count::Static(k) => (*k, NO_TENSOR),
                    Count::Tensor(id) => (0, id.0),
                };
                if i32::try_from(fixed).is_err() {
                    return Err(format!("top {fixed} is over 32 bits"));
                }
                shim.top_k(x.0, op.number(api), fixed, tensor, mask(&[*axis])?, dtype(*indices)?)
            }
            Layer::Unary { x, op } => shim.unary(x.0, op.number(api)),
        })
    }

    fn constant(&mut self, dims: &[i64], index: usize) -> Result<(), String> {
        let (Some(info), Some(&bytes)) = (self.network.weights.get(index), self.weights.get(index)) else {
            return Err(format!("weights {index} do not exist"));
        };
        let dtype = self.dtype(info.dtype)?;
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(u64::try_from(d).ok()?));
        let expected = usize::try_from(info.count).ok().and_then(|count| info.dtype.bytes_for(count));
        if elements != Some(info.count) || expected != Some(bytes.len()) {
            return Err(format!(
                "a constant of {dims:?} {} over {} elements in {} bytes",
                info.dtype,
                info.count,
                bytes.len()
            ));
        }
        let count = i64::try_from(info.count).map_err(|_| "a constant of over 2^63 elements".to_owned())?;
        // SAFETY: `bytes` holds exactly `count` packed elements (checked above) and lives for `'a`, which the shim
        // network does not outlive: `Builder::build` drops it before it returns.
        said(unsafe { self.shim.pin_mut().constant(dims, dtype, bytes.as_ptr(), count) })
    }

    fn kernel_dim(&self, kernel: TensorId, axis: usize) -> Result<i64, String> {
        let dims = &self.info(kernel)?.dims;
        dims.get(axis).copied().filter(|&d| d > 0).ok_or_else(|| format!("a kernel of dims {dims:?}"))
    }

    fn info(&self, id: TensorId) -> Result<&'a TensorInfo, String> {
        self.network.tensor(id).ok_or_else(|| format!("tensor {} does not exist", id.0))
    }

    fn dtype(&self, dtype: DType) -> Result<i32, String> {
        dtype_number(self.api, dtype).ok_or_else(|| format!("TensorRT has no {dtype}"))
    }

    fn next_name(&mut self, entry: &LayerEntry) -> String {
        let number = self.layer_nodes.len();
        self.layer_nodes.push(entry.node);
        let node = self.network.nodes.get(entry.node as usize).map_or("", String::as_str);
        let node = if node.is_empty() { entry.layer.name() } else { node };
        format!("{}@{number}", cut(node, LONGEST_NAME))
    }

    /// A broken promise, with the library's own words where it said something.
    fn fault(&self, entry: Option<&LayerEntry>, what: impl Into<String>) -> Fault {
        let mut what = what.into();
        let mut node = String::new();
        if let Some(entry) = entry {
            node = self.network.nodes.get(entry.node as usize).cloned().unwrap_or_default();
            what = format!("{}: {what}", entry.layer.name());
        }
        let words = crate::builder::Words::read(&self.log.raw(), self.network, &self.layer_nodes);
        if !words.lines.is_empty() {
            what = format!("{what}: {}", words.lines.join("; "));
        }
        Fault { node, what }
    }
}

/// At most `longest` bytes of `text`, at a character's boundary.
fn cut(text: &str, longest: usize) -> &str {
    let mut end = longest.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

fn said(done: Done) -> Result<(), String> {
    done.map_err(|e| e.what().to_owned())
}

fn ids(list: &[TensorId]) -> Vec<u32> {
    list.iter().map(|id| id.0).collect()
}

fn longs(axes: &[u32]) -> Vec<i64> {
    axes.iter().map(|&axis| i64::from(axis)).collect()
}

fn optional(id: Option<TensorId>) -> u32 {
    id.map_or(NO_TENSOR, |id| id.0)
}

fn optional_axis(axis: Option<u32>) -> i32 {
    axis.map_or(-1, |axis| axis as i32)
}

fn mask(axes: &[u32]) -> Result<u32, String> {
    axes.iter().try_fold(0u32, |bits, &axis| match axis {
        0..8 => Ok(bits | 1 << axis),
        _ => Err(format!("axis {axis} is over 7")),
    })
}

fn shim_extent(extent: &Extent) -> ffi::Extent<'_> {
    match extent {
        Extent::Static(values) => ffi::Extent { values, tensor: NO_TENSOR },
        Extent::Tensor(id) => ffi::Extent { values: &[], tensor: id.0 },
    }
}

fn shim_window(window: &Window) -> ffi::Window<'_> {
    ffi::Window {
        kernel: &window.kernel,
        stride: &window.stride,
        pre_padding: &window.pre_padding,
        post_padding: &window.post_padding,
        dilation: &window.dilation,
    }
}
