//! The one description of what crosses between Rust and C++.

use crate::callbacks::{OutputSink, Sink};

/// The cxx bridge. Enums travel as the numbers of the product in use, tensors as the ids that the caller gave them in
/// [`ffi::NetworkBuilder::bind`]; [`crate::NO_TENSOR`] stands for a tensor that is not there.
#[allow(missing_docs, clippy::too_many_arguments, reason = "names are those of NvInfer.h")]
#[allow(
    clippy::missing_safety_doc,
    reason = "the sections stand below; the lint does not see them through cxx"
)]
#[cxx::bridge(namespace = "trtc")]
pub mod ffi {
    /// What TensorRT says of a tensor. A rank of −1 means that its layer is invalid.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct TensorDesc {
        dtype: i32,
        rank: i32,
        dims: [i64; 8],
    }

    /// Build-time values, or a shape tensor in their place.
    struct Extent<'a> {
        values: &'a [i64],
        tensor: u32,
    }

    struct Window<'a> {
        kernel: &'a [i64],
        stride: &'a [i64],
        pre_padding: &'a [i64],
        post_padding: &'a [i64],
        dilation: &'a [i64],
    }

    struct ResizeSettings {
        interpolation: i32,
        coordinates: i32,
        selector: i32,
        round: i32,
        cubic_coeff: f32,
        exclude_outside: bool,
    }

    struct BuildSettings<'a> {
        /// Compute capabilities (TensorRT-RTX only; empty: the GPU that is there).
        sms: &'a [i32],
        /// 0: the library's default.
        workspace_bytes: u64,
        /// 0: the library's default.
        max_threads: i32,
        /// Whether products of f32 may round their operands to TF32.
        tf32: bool,
    }

    extern "Rust" {
        type Sink;
        fn log(self: &Sink, severity: i32, text: &[u8]);

        type OutputSink;
        fn allocate(self: &OutputSink, bytes: u64, alignment: u64, stream: usize) -> usize;
        fn shape(self: &OutputSink, dims: &[i64]);
    }

    unsafe extern "C++" {
        include!("shim.h");

        type Library;
        type NetworkBuilder;
        type EngineBytes;
        type Runtime;
        type Engine;
        type Context;

        /// Loads the library at `path` (never unloads it). Fails with the loader's words.
        fn open(rtx: bool, path: &str, sink: Box<Sink>) -> Result<UniquePtr<Library>>;
        /// Whether libcuda.so.1 is there and finds a device. Creates no CUDA context.
        fn cuda_devices() -> i32;

        /// `major * 10000 + minor * 100 + patch`; 0 when the library does not say.
        fn version(self: &Library) -> i32;
        fn has_builder(self: &Library) -> bool;
        fn network(self: &Library, name: &str) -> Result<UniquePtr<NetworkBuilder>>;
        /// Must not be called without a CUDA driver: TensorRT 11.3 then hands out a garbage pointer.
        fn runtime(self: &Library) -> Result<UniquePtr<Runtime>>;

        fn add_input(
            self: Pin<&mut NetworkBuilder>,
            id: u32,
            name: &str,
            dtype: i32,
            dims: &[i64],
        ) -> Result<()>;
        /// Dims of inputs that have the same name are the same size in every run.
        fn name_dim(self: Pin<&mut NetworkBuilder>, x: u32, axis: i32, name: &str) -> Result<()>;
        fn mark_output(self: Pin<&mut NetworkBuilder>, x: u32, name: &str) -> Result<()>;
        fn set_profile_dims(
            self: Pin<&mut NetworkBuilder>,
            name: &str,
            min: &[i64],
            opt: &[i64],
            max: &[i64],
        ) -> Result<()>;
        fn set_profile_values(
            self: Pin<&mut NetworkBuilder>,
            name: &str,
            min: &[i64],
            opt: &[i64],
            max: &[i64],
        ) -> Result<()>;
        /// Names the layer added last and gives ids to its outputs (all of them).
        fn bind(self: Pin<&mut NetworkBuilder>, name: &str, outputs: &[u32]) -> Result<()>;
        fn describe(self: &NetworkBuilder, x: u32) -> Result<TensorDesc>;
        fn build(
            self: Pin<&mut NetworkBuilder>,
            settings: &BuildSettings<'_>,
        ) -> Result<UniquePtr<EngineBytes>>;
        fn bytes(self: &EngineBytes) -> &[u8];

        // One function a layer type; the layer becomes the one that `bind` names.
        fn activation(self: Pin<&mut NetworkBuilder>, x: u32, kind: i32, alpha: f32, beta: f32)
        -> Result<()>;
        fn cast(self: Pin<&mut NetworkBuilder>, x: u32, dtype: i32) -> Result<()>;
        fn concatenation(self: Pin<&mut NetworkBuilder>, xs: &[u32], axis: i32) -> Result<()>;
        /// # Safety
        /// `data` points to `count` elements of `dtype` (or `count` is 0) and stays valid until the builder is dropped.
        unsafe fn constant(
            self: Pin<&mut NetworkBuilder>,
            dims: &[i64],
            dtype: i32,
            data: *const u8,
            count: i64,
        ) -> Result<()>;
        fn convolution(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            kernel: u32,
            bias: u32,
            maps: i64,
            window: &Window<'_>,
            groups: i64,
        ) -> Result<()>;
        fn deconvolution(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            kernel: u32,
            bias: u32,
            maps: i64,
            window: &Window<'_>,
            groups: i64,
        ) -> Result<()>;
        fn cumulative(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            axis: u32,
            op: i32,
            exclusive: bool,
            reverse: bool,
        ) -> Result<()>;
        /// `axis` −1: one scale for the whole tensor.
        fn dequantize(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            scale: u32,
            axis: i32,
            dtype: i32,
        ) -> Result<()>;
        fn quantize(self: Pin<&mut NetworkBuilder>, x: u32, scale: u32, axis: i32, dtype: i32) -> Result<()>;
        fn einsum(self: Pin<&mut NetworkBuilder>, xs: &[u32], equation: &str) -> Result<()>;
        fn element_wise(self: Pin<&mut NetworkBuilder>, a: u32, b: u32, op: i32) -> Result<()>;
        fn fill(
            self: Pin<&mut NetworkBuilder>,
            shape: &Extent<'_>,
            op: i32,
            alpha: u32,
            beta: u32,
            dtype: i32,
        ) -> Result<()>;
        fn gather(
            self: Pin<&mut NetworkBuilder>,
            data: u32,
            indices: u32,
            axis: i32,
            mode: i32,
            batch_dims: i32,
        ) -> Result<()>;
        fn grid_sample(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            grid: u32,
            interpolation: i32,
            align_corners: bool,
            mode: i32,
        ) -> Result<()>;
        fn identity(self: Pin<&mut NetworkBuilder>, x: u32) -> Result<()>;
        fn lrn(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            window: i64,
            alpha: f32,
            beta: f32,
            k: f32,
        ) -> Result<()>;
        fn matrix_multiply(
            self: Pin<&mut NetworkBuilder>,
            a: u32,
            op_a: i32,
            b: u32,
            op_b: i32,
        ) -> Result<()>;
        fn nms(
            self: Pin<&mut NetworkBuilder>,
            boxes: u32,
            scores: u32,
            max_output_boxes: u32,
            iou_threshold: u32,
            score_threshold: u32,
            format: i32,
            dtype: i32,
        ) -> Result<()>;
        fn non_zero(self: Pin<&mut NetworkBuilder>, x: u32, dtype: i32) -> Result<()>;
        fn normalization(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            scale: u32,
            bias: u32,
            axes: u32,
            epsilon: f32,
            groups: i64,
        ) -> Result<()>;
        fn one_hot(
            self: Pin<&mut NetworkBuilder>,
            indices: u32,
            values: u32,
            depth: u32,
            axis: i32,
        ) -> Result<()>;
        fn parametric_relu(self: Pin<&mut NetworkBuilder>, x: u32, slopes: u32) -> Result<()>;
        fn pooling(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            kind: i32,
            window: &Window<'_>,
            exclude_padding: bool,
            blend: f32,
        ) -> Result<()>;
        /// `axes` is a bit mask.
        fn reduce(self: Pin<&mut NetworkBuilder>, x: u32, op: i32, axes: u32, keep_dims: bool) -> Result<()>;
        fn resize_to(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            sizes: &Extent<'_>,
            settings: &ResizeSettings,
        ) -> Result<()>;
        fn resize_by(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            scales: &[f32],
            settings: &ResizeSettings,
        ) -> Result<()>;
        fn reverse_sequence(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            lengths: u32,
            batch_axis: i32,
            sequence_axis: i32,
        ) -> Result<()>;
        fn scatter(
            self: Pin<&mut NetworkBuilder>,
            data: u32,
            indices: u32,
            updates: u32,
            mode: i32,
            axis: i32,
        ) -> Result<()>;
        fn select(
            self: Pin<&mut NetworkBuilder>,
            condition: u32,
            then_input: u32,
            else_input: u32,
        ) -> Result<()>;
        /// The name says `shape_of` because a `Shape` of dims is [`OutputSink::shape`]'s word.
        fn shape_of(self: Pin<&mut NetworkBuilder>, x: u32) -> Result<()>;
        /// Empty `first` and `second`: no transpose. `reshape` false: no reshape.
        fn shuffle(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            first: &[u32],
            reshape: bool,
            dims: &Extent<'_>,
            zero_is_placeholder: bool,
            second: &[u32],
        ) -> Result<()>;
        fn slice(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            start: &Extent<'_>,
            size: &Extent<'_>,
            stride: &Extent<'_>,
            mode: i32,
            fill: u32,
        ) -> Result<()>;
        fn softmax(self: Pin<&mut NetworkBuilder>, x: u32, axes: u32) -> Result<()>;
        fn squeeze(self: Pin<&mut NetworkBuilder>, x: u32, axes: &[i64]) -> Result<()>;
        fn unsqueeze(self: Pin<&mut NetworkBuilder>, x: u32, axes: &[i64]) -> Result<()>;
        /// `k` counts when `k_tensor` is not there.
        fn top_k(
            self: Pin<&mut NetworkBuilder>,
            x: u32,
            op: i32,
            k: i64,
            k_tensor: u32,
            axes: u32,
            dtype: i32,
        ) -> Result<()>;
        fn unary(self: Pin<&mut NetworkBuilder>, x: u32, op: i32) -> Result<()>;

        // Control flow. The handle that `begin_*` returns names the If or Loop in the calls that follow.
        fn begin_if(self: Pin<&mut NetworkBuilder>, condition: u32, name: &str) -> Result<u32>;
        fn if_input(self: Pin<&mut NetworkBuilder>, handle: u32, outer: u32) -> Result<()>;
        fn if_output(self: Pin<&mut NetworkBuilder>, handle: u32, then_x: u32, else_x: u32) -> Result<()>;
        fn begin_loop(self: Pin<&mut NetworkBuilder>, name: &str) -> Result<u32>;
        fn loop_limit(self: Pin<&mut NetworkBuilder>, handle: u32, x: u32, kind: i32) -> Result<()>;
        fn loop_recurrence(self: Pin<&mut NetworkBuilder>, handle: u32, initial: u32) -> Result<()>;
        /// Closes the recurrence number `index` (in the order of `loop_recurrence`).
        fn loop_next(self: Pin<&mut NetworkBuilder>, handle: u32, index: u32, next: u32) -> Result<()>;
        fn loop_iterator(
            self: Pin<&mut NetworkBuilder>,
            handle: u32,
            x: u32,
            axis: i32,
            reverse: bool,
        ) -> Result<()>;
        fn loop_output(
            self: Pin<&mut NetworkBuilder>,
            handle: u32,
            value: u32,
            kind: i32,
            axis: i32,
            length: u32,
        ) -> Result<()>;

        fn deserialize(self: &Runtime, engine: &[u8]) -> Result<UniquePtr<Engine>>;

        fn io_count(self: &Engine) -> i32;
        fn io_name(self: &Engine, index: i32) -> Result<String>;
        fn io_desc(self: &Engine, name: &str) -> Result<TensorDesc>;
        fn io_mode(self: &Engine, name: &str) -> i32;
        fn io_location(self: &Engine, name: &str) -> i32;
        fn io_is_shape(self: &Engine, name: &str) -> bool;
        /// `select`: 0 minimum, 1 optimum, 2 maximum, of profile 0.
        fn profile_dims(self: &Engine, name: &str, select: i32) -> TensorDesc;
        /// Empty where the input is not a shape tensor.
        fn profile_values(self: &Engine, name: &str, select: i32, count: usize) -> Vec<i64>;
        fn device_memory_bytes(self: &Engine) -> i64;
        /// `user_memory`: the caller gives activation memory with `set_device_memory`.
        fn context(self: &Engine, user_memory: bool) -> Result<UniquePtr<Context>>;

        fn set_input_dims(self: Pin<&mut Context>, name: &str, dims: &[i64]) -> bool;
        fn tensor_dims(self: &Context, name: &str) -> TensorDesc;
        /// # Safety
        /// `address` is memory of the tensor's location and size (or 0) that lives until the work that uses it is done.
        unsafe fn set_address(self: Pin<&mut Context>, name: &str, address: usize) -> bool;
        fn set_output_sink(self: Pin<&mut Context>, name: &str, sink: Box<OutputSink>) -> Result<()>;
        /// Names of the inputs whose dims or values are still missing.
        fn infer_shapes(self: Pin<&mut Context>) -> Result<Vec<String>>;
        fn max_output_bytes(self: &Context, name: &str) -> i64;
        fn needed_device_memory(self: Pin<&mut Context>) -> usize;
        /// # Safety
        /// `address` is device memory of `bytes` bytes that outlives the work of this context.
        unsafe fn set_device_memory(self: Pin<&mut Context>, address: usize, bytes: i64);
        /// # Safety
        /// `stream` is a CUDA stream of the engine's device; every address is set and valid until the work is done.
        unsafe fn enqueue(self: Pin<&mut Context>, stream: usize) -> bool;
    }
}
