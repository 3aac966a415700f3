//! The classes that Rust sees: abstract, without a TensorRT type, so that both products stand behind them.
#pragma once
#include "rust/cxx.h"
#include <cstdint>
#include <memory>

namespace trtc {

struct Sink;
struct OutputSink;
struct TensorDesc;
struct Extent;
struct Window;
struct ResizeSettings;
struct BuildSettings;

using Ints = rust::Slice<int64_t const>;
using Ids = rust::Slice<uint32_t const>;

class EngineBytes {
  public:
    virtual ~EngineBytes() = default;
    virtual rust::Slice<uint8_t const> bytes() const = 0;
};

class NetworkBuilder {
  public:
    virtual ~NetworkBuilder() = default;
    virtual void add_input(uint32_t id, rust::Str name, int32_t dtype, Ints dims) = 0;
    virtual void name_dim(uint32_t x, int32_t axis, rust::Str name) = 0;
    virtual void mark_output(uint32_t x, rust::Str name) = 0;
    virtual void set_profile_dims(rust::Str name, Ints min, Ints opt, Ints max) = 0;
    virtual void set_profile_values(rust::Str name, Ints min, Ints opt, Ints max) = 0;
    virtual void bind(rust::Str name, Ids outputs) = 0;
    virtual TensorDesc describe(uint32_t x) const = 0;
    virtual std::unique_ptr<EngineBytes> build(BuildSettings const& settings) = 0;

    virtual void activation(uint32_t x, int32_t kind, float alpha, float beta) = 0;
    virtual void cast(uint32_t x, int32_t dtype) = 0;
    virtual void concatenation(Ids xs, int32_t axis) = 0;
    virtual void constant(Ints dims, int32_t dtype, uint8_t const* data, int64_t count) = 0;
    virtual void convolution(
        uint32_t x, uint32_t kernel, uint32_t bias, int64_t maps, Window const& window, int64_t groups)
        = 0;
    virtual void deconvolution(
        uint32_t x, uint32_t kernel, uint32_t bias, int64_t maps, Window const& window, int64_t groups)
        = 0;
    virtual void cumulative(uint32_t x, uint32_t axis, int32_t op, bool exclusive, bool reverse) = 0;
    virtual void dequantize(uint32_t x, uint32_t scale, int32_t axis, int32_t dtype) = 0;
    virtual void quantize(uint32_t x, uint32_t scale, int32_t axis, int32_t dtype) = 0;
    virtual void einsum(Ids xs, rust::Str equation) = 0;
    virtual void element_wise(uint32_t a, uint32_t b, int32_t op) = 0;
    virtual void fill(Extent const& shape, int32_t op, uint32_t alpha, uint32_t beta, int32_t dtype) = 0;
    virtual void gather(uint32_t data, uint32_t indices, int32_t axis, int32_t mode, int32_t batch_dims) = 0;
    virtual void grid_sample(uint32_t x, uint32_t grid, int32_t interpolation, bool align_corners, int32_t mode)
        = 0;
    virtual void identity(uint32_t x) = 0;
    virtual void lrn(uint32_t x, int64_t window, float alpha, float beta, float k) = 0;
    virtual void matrix_multiply(uint32_t a, int32_t op_a, uint32_t b, int32_t op_b) = 0;
    virtual void nms(uint32_t boxes, uint32_t scores, uint32_t max_output_boxes, uint32_t iou_threshold,
        uint32_t score_threshold, int32_t format, int32_t dtype)
        = 0;
    virtual void non_zero(uint32_t x, int32_t dtype) = 0;
    virtual void normalization(
        uint32_t x, uint32_t scale, uint32_t bias, uint32_t axes, float epsilon, int64_t groups)
        = 0;
    virtual void one_hot(uint32_t indices, uint32_t values, uint32_t depth, int32_t axis) = 0;
    virtual void parametric_relu(uint32_t x, uint32_t slopes) = 0;
    virtual void pooling(uint32_t x, int32_t kind, Window const& window, bool exclude_padding, float blend) = 0;
    virtual void reduce(uint32_t x, int32_t op, uint32_t axes, bool keep_dims) = 0;
    virtual void resize_to(uint32_t x, Extent const& sizes, ResizeSettings const& settings) = 0;
    virtual void resize_by(uint32_t x, rust::Slice<float const> scales, ResizeSettings const& settings) = 0;
    virtual void reverse_sequence(uint32_t x, uint32_t lengths, int32_t batch_axis, int32_t sequence_axis) = 0;
    virtual void scatter(uint32_t data, uint32_t indices, uint32_t updates, int32_t mode, int32_t axis) = 0;
    virtual void select(uint32_t condition, uint32_t then_input, uint32_t else_input) = 0;
    virtual void shape_of(uint32_t x) = 0;
    virtual void shuffle(
        uint32_t x, Ids first, bool reshape, Extent const& dims, bool zero_is_placeholder, Ids second)
        = 0;
    virtual void slice(uint32_t x, Extent const& start, Extent const& size, Extent const& stride, int32_t mode,
        uint32_t fill)
        = 0;
    virtual void softmax(uint32_t x, uint32_t axes) = 0;
    virtual void squeeze(uint32_t x, Ints axes) = 0;
    virtual void unsqueeze(uint32_t x, Ints axes) = 0;
    virtual void top_k(uint32_t x, int32_t op, int64_t k, uint32_t k_tensor, uint32_t axes, int32_t dtype) = 0;
    virtual void unary(uint32_t x, int32_t op) = 0;

    virtual uint32_t begin_if(uint32_t condition, rust::Str name) = 0;
    virtual void if_input(uint32_t handle, uint32_t outer) = 0;
    virtual void if_output(uint32_t handle, uint32_t then_x, uint32_t else_x) = 0;
    virtual uint32_t begin_loop(rust::Str name) = 0;
    virtual void loop_limit(uint32_t handle, uint32_t x, int32_t kind) = 0;
    virtual void loop_recurrence(uint32_t handle, uint32_t initial) = 0;
    virtual void loop_next(uint32_t handle, uint32_t index, uint32_t next) = 0;
    virtual void loop_iterator(uint32_t handle, uint32_t x, int32_t axis, bool reverse) = 0;
    virtual void loop_output(uint32_t handle, uint32_t value, int32_t kind, int32_t axis, uint32_t length) = 0;
};

class Context {
  public:
    virtual ~Context() = default;
    virtual bool set_input_dims(rust::Str name, Ints dims) = 0;
    virtual TensorDesc tensor_dims(rust::Str name) const = 0;
    virtual bool set_address(rust::Str name, size_t address) = 0;
    virtual void set_output_sink(rust::Str name, rust::Box<OutputSink> sink) = 0;
    virtual rust::Vec<rust::String> infer_shapes() = 0;
    virtual int64_t max_output_bytes(rust::Str name) const = 0;
    virtual size_t needed_device_memory() = 0;
    virtual void set_device_memory(size_t address, int64_t bytes) = 0;
    virtual bool enqueue(size_t stream) = 0;
};

class Engine {
  public:
    virtual ~Engine() = default;
    virtual int32_t io_count() const = 0;
    virtual rust::String io_name(int32_t index) const = 0;
    virtual TensorDesc io_desc(rust::Str name) const = 0;
    virtual int32_t io_mode(rust::Str name) const = 0;
    virtual int32_t io_location(rust::Str name) const = 0;
    virtual bool io_is_shape(rust::Str name) const = 0;
    virtual TensorDesc profile_dims(rust::Str name, int32_t select) const = 0;
    virtual rust::Vec<int64_t> profile_values(rust::Str name, int32_t select, size_t count) const = 0;
    virtual int64_t device_memory_bytes() const = 0;
    virtual std::unique_ptr<Context> context(bool user_memory) const = 0;
};

class Runtime {
  public:
    virtual ~Runtime() = default;
    virtual std::unique_ptr<Engine> deserialize(rust::Slice<uint8_t const> engine) const = 0;
};

class Library {
  public:
    virtual ~Library() = default;
    virtual int32_t version() const = 0;
    virtual bool has_builder() const = 0;
    virtual std::unique_ptr<NetworkBuilder> network(rust::Str name) const = 0;
    virtual std::unique_ptr<Runtime> runtime() const = 0;
};

std::unique_ptr<Library> open(bool rtx, rust::Str path, rust::Box<Sink> sink);
std::unique_ptr<Library> open_rtx(rust::Str path, rust::Box<Sink> sink);
std::unique_ptr<Library> open_enterprise(rust::Str path, rust::Box<Sink> sink);
int32_t cuda_devices();

} // namespace trtc
