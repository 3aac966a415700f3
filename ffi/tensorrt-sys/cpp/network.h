//! Building: one function a layer type.
#pragma once
#include "support.h"
#include <deque>

namespace trtc {
namespace {

class HostBytes final : public EngineBytes {
  public:
    explicit HostBytes(IHostMemory* memory) : memory_(memory) {}
    rust::Slice<uint8_t const> bytes() const override
    {
        return {static_cast<uint8_t const*>(memory_->data()), memory_->size()};
    }

  private:
    std::unique_ptr<IHostMemory> memory_;
};

class NetworkImpl final : public NetworkBuilder {
  public:
    NetworkImpl(CorePtr core, IBuilder* builder, rust::Str name) : core_(std::move(core)), builder_(builder)
    {
        builder_->setErrorRecorder(&core_->recorder);
        auto const flags = 1U << static_cast<uint32_t>(NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
        network_.reset(need(builder_->createNetworkV2(flags), "createNetworkV2"));
        config_.reset(need(builder_->createBuilderConfig(), "createBuilderConfig"));
        network_->setErrorRecorder(&core_->recorder);
        network_->setName(text(name).c_str());
    }

    void add_input(uint32_t id, rust::Str name, int32_t dtype, Ints dims) override
    {
        put(id, need(network_->addInput(text(name).c_str(), type(dtype), dims_of(dims)), "addInput"));
    }

    void name_dim(uint32_t x, int32_t axis, rust::Str name) override
    {
        // A name may have 4096 bytes with its end.
        if (name.size() < 4096) {
            tensor(x).setDimensionName(axis, text(name).c_str());
        }
    }

    void mark_output(uint32_t x, rust::Str name) override
    {
        tensor(x).setName(text(name).c_str());
        network_->markOutput(tensor(x));
    }

    void set_profile_dims(rust::Str name, Ints min, Ints opt, Ints max) override
    {
        std::string const input = text(name);
        auto const set = [&](OptProfileSelector select, Ints dims) {
            need(profile().setDimensions(input.c_str(), select, dims_of(dims)), "setDimensions of a profile");
        };
        set(OptProfileSelector::kMIN, min);
        set(OptProfileSelector::kOPT, opt);
        set(OptProfileSelector::kMAX, max);
    }

    void set_profile_values(rust::Str name, Ints min, Ints opt, Ints max) override
    {
        std::string const input = text(name);
        auto const set = [&](OptProfileSelector select, Ints values) {
            auto const count = static_cast<int32_t>(values.size());
            need(profile().setShapeValuesV2(input.c_str(), select, values.data(), count), "setShapeValuesV2");
        };
        set(OptProfileSelector::kMIN, min);
        set(OptProfileSelector::kOPT, opt);
        set(OptProfileSelector::kMAX, max);
    }

    void bind(rust::Str name, Ids outputs) override
    {
        std::string const label = text(name);
        layer_->setName(label.c_str());
        if (static_cast<size_t>(layer_->getNbOutputs()) != outputs.size())
            throw std::runtime_error("the layer has " + std::to_string(layer_->getNbOutputs()) + " outputs, not "
                + std::to_string(outputs.size()));
        for (size_t k = 0; k < outputs.size(); ++k) {
            ITensor* output = need(layer_->getOutput(static_cast<int32_t>(k)), "getOutput");
            output->setName((label + ":" + std::to_string(k)).c_str());
            put(outputs[k], output);
        }
    }

    TensorDesc describe(uint32_t x) const override
    {
        return desc_of(tensor(x).getDimensions(), tensor(x).getType());
    }

    std::unique_ptr<EngineBytes> build(BuildSettings const& settings) override
    {
#ifdef TRTC_RTX
        if (!settings.sms.empty()) {
            need(config_->setNbComputeCapabilities(static_cast<int32_t>(settings.sms.size())),
                "setNbComputeCapabilities");
            for (size_t k = 0; k < settings.sms.size(); ++k)
                need(config_->setComputeCapability(
                         static_cast<ComputeCapability>(settings.sms[k]), static_cast<int32_t>(k)),
                    "setComputeCapability");
        }
#endif
        if (settings.workspace_bytes > 0)
            config_->setMemoryPoolLimit(MemoryPoolType::kWORKSPACE, settings.workspace_bytes);
        if (settings.max_threads > 0)
            need(builder_->setMaxThreads(settings.max_threads), "setMaxThreads");
        // On unless cleared.
        if (!settings.tf32)
            config_->clearFlag(BuilderFlag::kTF32);
        if (profile_)
            need(config_->addOptimizationProfile(profile_) >= 0, "addOptimizationProfile");
        // RTX has no buildEngineWithConfig; this one is in both.
        return std::make_unique<HostBytes>(
            need(builder_->buildSerializedNetwork(*network_, *config_), "buildSerializedNetwork"));
    }

    void activation(uint32_t x, int32_t kind, float alpha, float beta) override
    {
        auto* layer = add(network_->addActivation(tensor(x), static_cast<ActivationType>(kind)), "addActivation");
        layer->setAlpha(alpha);
        layer->setBeta(beta);
    }

    void cast(uint32_t x, int32_t dtype) override
    {
        add(network_->addCast(tensor(x), type(dtype)), "addCast");
    }

    void concatenation(Ids xs, int32_t axis) override
    {
        auto const inputs = tensors(xs);
        auto* layer = add(
            network_->addConcatenation(inputs.data(), static_cast<int32_t>(inputs.size())), "addConcatenation");
        layer->setAxis(axis);
    }

    void constant(Ints dims, int32_t dtype, uint8_t const* data, int64_t count) override
    {
        // An empty slice of Rust has a dangling pointer; TensorRT wants null exactly when the count is 0.
        Weights const weights{type(dtype), count > 0 ? data : nullptr, count};
        add(network_->addConstant(dims_of(dims), weights), "addConstant");
    }

    void convolution(
        uint32_t x, uint32_t kernel, uint32_t bias, int64_t maps, Window const& window, int64_t groups) override
    {
        auto* layer = add(
            network_->addConvolutionNd(tensor(x), maps, dims_of(window.kernel), none(x), none(x)),
            "addConvolutionNd");
        place(layer, kernel, bias, window, groups);
    }

    void deconvolution(
        uint32_t x, uint32_t kernel, uint32_t bias, int64_t maps, Window const& window, int64_t groups) override
    {
        auto* layer = add(
            network_->addDeconvolutionNd(tensor(x), maps, dims_of(window.kernel), none(x), none(x)),
            "addDeconvolutionNd");
        place(layer, kernel, bias, window, groups);
    }

    void cumulative(uint32_t x, uint32_t axis, int32_t op, bool exclusive, bool reverse) override
    {
        add(network_->addCumulative(
                tensor(x), tensor(axis), static_cast<CumulativeOperation>(op), exclusive, reverse),
            "addCumulative");
    }

    void dequantize(uint32_t x, uint32_t scale, int32_t axis, int32_t dtype) override
    {
        auto* layer = add(network_->addDequantize(tensor(x), tensor(scale), type(dtype)), "addDequantize");
        if (axis >= 0)
            layer->setAxis(axis);
    }

    void quantize(uint32_t x, uint32_t scale, int32_t axis, int32_t dtype) override
    {
        auto* layer = add(network_->addQuantize(tensor(x), tensor(scale), type(dtype)), "addQuantize");
        if (axis >= 0)
            layer->setAxis(axis);
    }

    void einsum(Ids xs, rust::Str equation) override
    {
        auto const inputs = tensors(xs);
        add(network_->addEinsum(inputs.data(), static_cast<int32_t>(inputs.size()), text(equation).c_str()),
            "addEinsum");
    }

    void element_wise(uint32_t a, uint32_t b, int32_t op) override
    {
        add(network_->addElementWise(tensor(a), tensor(b), static_cast<ElementWiseOperation>(op)),
            "addElementWise");
    }

    void fill(Extent const& shape, int32_t op, uint32_t alpha, uint32_t beta, int32_t dtype) override
    {
        auto* layer = add(
            network_->addFill(static_dims(shape), static_cast<FillOperation>(op), type(dtype)), "addFill");
        if (shape.tensor != kNONE)
            layer->setInput(0, tensor(shape.tensor));
        layer->setInput(1, tensor(alpha));
        layer->setInput(2, tensor(beta));
    }

    void gather(uint32_t data, uint32_t indices, int32_t axis, int32_t mode, int32_t batch_dims) override
    {
        auto const kind = static_cast<GatherMode>(mode);
        auto* layer = add(network_->addGatherV2(tensor(data), tensor(indices), kind), "addGatherV2");
        if (kind != GatherMode::kND)
            layer->setGatherAxis(axis);
        if (batch_dims > 0)
            layer->setNbElementWiseDims(batch_dims);
    }

    void grid_sample(
        uint32_t x, uint32_t grid, int32_t interpolation, bool align_corners, int32_t mode) override
    {
        auto* layer = add(network_->addGridSample(tensor(x), tensor(grid)), "addGridSample");
        layer->setInterpolationMode(static_cast<InterpolationMode>(interpolation));
        layer->setAlignCorners(align_corners);
        need(layer->setSampleMode(static_cast<SampleMode>(mode)), "setSampleMode");
    }

    void identity(uint32_t x) override
    {
        add(network_->addIdentity(tensor(x)), "addIdentity");
    }

    void lrn(uint32_t x, int64_t window, float alpha, float beta, float k) override
    {
        add(network_->addLRN(tensor(x), window, alpha, beta, k), "addLRN");
    }

    void matrix_multiply(uint32_t a, int32_t op_a, uint32_t b, int32_t op_b) override
    {
        add(network_->addMatrixMultiply(tensor(a), static_cast<MatrixOperation>(op_a), tensor(b),
                static_cast<MatrixOperation>(op_b)),
            "addMatrixMultiply");
    }

    void nms(uint32_t boxes, uint32_t scores, uint32_t max_output_boxes, uint32_t iou_threshold,
        uint32_t score_threshold, int32_t format, int32_t dtype) override
    {
        auto* layer = add(
            network_->addNMS(tensor(boxes), tensor(scores), tensor(max_output_boxes), type(dtype)), "addNMS");
        layer->setBoundingBoxFormat(static_cast<BoundingBoxFormat>(format));
        if (iou_threshold != kNONE)
            layer->setInput(3, tensor(iou_threshold));
        if (score_threshold != kNONE)
            layer->setInput(4, tensor(score_threshold));
    }

    void non_zero(uint32_t x, int32_t dtype) override
    {
        add(network_->addNonZero(tensor(x), type(dtype)), "addNonZero");
    }

    void normalization(
        uint32_t x, uint32_t scale, uint32_t bias, uint32_t axes, float epsilon, int64_t groups) override
    {
        auto* layer = add(
            network_->addNormalizationV2(tensor(x), tensor(scale), tensor(bias), axes), "addNormalizationV2");
        layer->setEpsilon(epsilon);
        if (groups != 1)
            layer->setNbGroups(groups);
    }

    void one_hot(uint32_t indices, uint32_t values, uint32_t depth, int32_t axis) override
    {
        add(network_->addOneHot(tensor(indices), tensor(values), tensor(depth), axis), "addOneHot");
    }

    void parametric_relu(uint32_t x, uint32_t slopes) override
    {
        add(network_->addParametricReLU(tensor(x), tensor(slopes)), "addParametricReLU");
    }

    void pooling(uint32_t x, int32_t kind, Window const& window, bool exclude_padding, float blend) override
    {
        auto const pool = static_cast<PoolingType>(kind);
        auto* layer = add(network_->addPoolingNd(tensor(x), pool, dims_of(window.kernel)), "addPoolingNd");
        layer->setStrideNd(dims_of(window.stride));
        layer->setPrePadding(dims_of(window.pre_padding));
        layer->setPostPadding(dims_of(window.post_padding));
        if (pool != PoolingType::kMAX)
            layer->setAverageCountExcludesPadding(exclude_padding);
        if (pool == PoolingType::kMAX_AVERAGE_BLEND)
            layer->setBlendFactor(blend);
    }

    void reduce(uint32_t x, int32_t op, uint32_t axes, bool keep_dims) override
    {
        add(network_->addReduce(tensor(x), static_cast<ReduceOperation>(op), axes, keep_dims), "addReduce");
    }

    void resize_to(uint32_t x, Extent const& sizes, ResizeSettings const& settings) override
    {
        auto* layer = resize(x, settings);
        if (sizes.tensor != kNONE)
            layer->setInput(1, tensor(sizes.tensor));
        else
            layer->setOutputDimensions(dims_of(sizes.values));
    }

    void resize_by(uint32_t x, rust::Slice<float const> scales, ResizeSettings const& settings) override
    {
        resize(x, settings)->setScales(scales.data(), static_cast<int32_t>(scales.size()));
    }

    void reverse_sequence(uint32_t x, uint32_t lengths, int32_t batch_axis, int32_t sequence_axis) override
    {
        auto* layer = add(network_->addReverseSequence(tensor(x), tensor(lengths)), "addReverseSequence");
        layer->setBatchAxis(batch_axis);
        layer->setSequenceAxis(sequence_axis);
    }

    void scatter(uint32_t data, uint32_t indices, uint32_t updates, int32_t mode, int32_t axis) override
    {
        auto const kind = static_cast<ScatterMode>(mode);
        auto* layer = add(
            network_->addScatter(tensor(data), tensor(indices), tensor(updates), kind), "addScatter");
        if (kind == ScatterMode::kELEMENT)
            layer->setAxis(axis);
    }

    void select(uint32_t condition, uint32_t then_input, uint32_t else_input) override
    {
        add(network_->addSelect(tensor(condition), tensor(then_input), tensor(else_input)), "addSelect");
    }

    void shape_of(uint32_t x) override
    {
        add(network_->addShape(tensor(x)), "addShape");
    }

    void shuffle(
        uint32_t x, Ids first, bool reshape, Extent const& dims, bool zero_is_placeholder, Ids second) override
    {
        auto* layer = add(network_->addShuffle(tensor(x)), "addShuffle");
        layer->setZeroIsPlaceholder(zero_is_placeholder);
        if (!first.empty())
            layer->setFirstTranspose(permutation_of(first));
        if (reshape && dims.tensor != kNONE)
            layer->setInput(1, tensor(dims.tensor));
        else if (reshape)
            layer->setReshapeDimensions(dims_of(dims.values));
        if (!second.empty())
            layer->setSecondTranspose(permutation_of(second));
    }

    void slice(uint32_t x, Extent const& start, Extent const& size, Extent const& stride, int32_t mode,
        uint32_t fill) override
    {
        auto* layer = add(
            network_->addSlice(tensor(x), static_dims(start), static_dims(size), static_dims(stride)), "addSlice");
        layer->setMode(static_cast<SampleMode>(mode));
        // The setters of static values would reset these inputs, so they come last.
        int32_t index = 1;
        for (Extent const* extent : {&start, &size, &stride}) {
            if (extent->tensor != kNONE)
                layer->setInput(index, tensor(extent->tensor));
            ++index;
        }
        if (fill != kNONE)
            layer->setInput(4, tensor(fill));
    }

    void softmax(uint32_t x, uint32_t axes) override
    {
        add(network_->addSoftMax(tensor(x)), "addSoftMax")->setAxes(axes);
    }

    void squeeze(uint32_t x, Ints axes) override
    {
        // Not the overload that takes a pointer: it is newer than 11.3.
        ITensor& list = numbers(axes);
        add(network_->addSqueeze(tensor(x), list), "addSqueeze");
    }

    void unsqueeze(uint32_t x, Ints axes) override
    {
        ITensor& list = numbers(axes);
        add(network_->addUnsqueeze(tensor(x), list), "addUnsqueeze");
    }

    void top_k(uint32_t x, int32_t op, int64_t k, uint32_t k_tensor, uint32_t axes, int32_t dtype) override
    {
        // A K that only the run knows replaces the static one, which has to be valid all the same.
        auto const fixed = static_cast<int32_t>(k_tensor == kNONE ? k : 1);
        auto* layer = add(
            network_->addTopK(tensor(x), static_cast<TopKOperation>(op), fixed, axes, type(dtype)), "addTopK");
        if (k_tensor != kNONE)
            layer->setInput(1, tensor(k_tensor));
    }

    void unary(uint32_t x, int32_t op) override
    {
        add(network_->addUnary(tensor(x), static_cast<UnaryOperation>(op)), "addUnary");
    }

    uint32_t begin_if(uint32_t condition, rust::Str name) override
    {
        auto* conditional = need(network_->addIfConditional(), "addIfConditional");
        conditional->setName(text(name).c_str());
        need(conditional->setCondition(tensor(condition)), "setCondition");
        ifs_.push_back(conditional);
        return static_cast<uint32_t>(ifs_.size() - 1);
    }

    void if_input(uint32_t handle, uint32_t outer) override
    {
        add(ifs_.at(handle)->addInput(tensor(outer)), "addInput of an If");
    }

    void if_output(uint32_t handle, uint32_t then_x, uint32_t else_x) override
    {
        add(ifs_.at(handle)->addOutput(tensor(then_x), tensor(else_x)), "addOutput of an If");
    }

    uint32_t begin_loop(rust::Str name) override
    {
        auto* loop = need(network_->addLoop(), "addLoop");
        loop->setName(text(name).c_str());
        loops_.push_back({loop, {}});
        return static_cast<uint32_t>(loops_.size() - 1);
    }

    void loop_limit(uint32_t handle, uint32_t x, int32_t kind) override
    {
        add(loops_.at(handle).loop->addTripLimit(tensor(x), static_cast<TripLimit>(kind)), "addTripLimit");
    }

    void loop_recurrence(uint32_t handle, uint32_t initial) override
    {
        auto& entry = loops_.at(handle);
        entry.recurrences.push_back(add(entry.loop->addRecurrence(tensor(initial)), "addRecurrence"));
    }

    void loop_next(uint32_t handle, uint32_t index, uint32_t next) override
    {
        loops_.at(handle).recurrences.at(index)->setInput(1, tensor(next));
    }

    void loop_iterator(uint32_t handle, uint32_t x, int32_t axis, bool reverse) override
    {
        add(loops_.at(handle).loop->addIterator(tensor(x), axis, reverse), "addIterator");
    }

    void loop_output(uint32_t handle, uint32_t value, int32_t kind, int32_t axis, uint32_t length) override
    {
        auto* layer = add(
            loops_.at(handle).loop->addLoopOutput(tensor(value), static_cast<LoopOutput>(kind), axis),
            "addLoopOutput");
        if (length != kNONE)
            layer->setInput(1, tensor(length));
    }

  private:
    struct LoopEntry {
        ILoop* loop;
        std::vector<IRecurrenceLayer*> recurrences;
    };

    static DataType type(int32_t number)
    {
        return static_cast<DataType>(number);
    }

    ITensor& tensor(uint32_t id) const
    {
        if (id >= tensors_.size() || !tensors_[id])
            throw std::out_of_range("tensor " + std::to_string(id) + " is used before it is made");
        return *tensors_[id];
    }

    std::vector<ITensor*> tensors(Ids ids) const
    {
        std::vector<ITensor*> list;
        for (uint32_t id : ids)
            list.push_back(&tensor(id));
        return list;
    }

    void put(uint32_t id, ITensor* x)
    {
        if (id == kNONE)
            throw std::out_of_range("a tensor without an id");
        if (id >= tensors_.size())
            tensors_.resize(id + 1, nullptr);
        tensors_[id] = x;
    }

    template <typename Layer>
    Layer* add(Layer* layer, char const* what)
    {
        layer_ = need(layer, what);
        return layer;
    }

    //! Build-time dims, or a placeholder of the right kind where a tensor will give them.
    static Dims static_dims(Extent const& extent)
    {
        return extent.tensor == kNONE ? dims_of(extent.values) : Dims{};
    }

    //! "Kernel and bias come as tensors": no weights, of the input's type.
    Weights none(uint32_t x) const
    {
        return {tensor(x).getType(), nullptr, 0};
    }

    template <typename Layer>
    void place(Layer* layer, uint32_t kernel, uint32_t bias, Window const& window, int64_t groups)
    {
        layer->setInput(1, tensor(kernel));
        if (bias != kNONE)
            layer->setInput(2, tensor(bias));
        layer->setStrideNd(dims_of(window.stride));
        layer->setPrePadding(dims_of(window.pre_padding));
        layer->setPostPadding(dims_of(window.post_padding));
        layer->setDilationNd(dims_of(window.dilation));
        layer->setNbGroups(groups);
    }

    IResizeLayer* resize(uint32_t x, ResizeSettings const& settings)
    {
        auto* layer = add(network_->addResize(tensor(x)), "addResize");
        layer->setResizeMode(static_cast<InterpolationMode>(settings.interpolation));
        layer->setCoordinateTransformation(static_cast<ResizeCoordinateTransformation>(settings.coordinates));
        layer->setSelectorForSinglePixel(static_cast<ResizeSelector>(settings.selector));
        layer->setNearestRounding(static_cast<ResizeRoundMode>(settings.round));
        layer->setCubicCoeff(settings.cubic_coeff);
        layer->setExcludeOutside(settings.exclude_outside);
        return layer;
    }

    //! A rank-1 i64 constant whose values live as long as the network.
    ITensor& numbers(Ints values)
    {
        numbers_.emplace_back(values.begin(), values.end());
        auto const& kept = numbers_.back();
        Weights const weights{
            DataType::kINT64, kept.empty() ? nullptr : kept.data(), static_cast<int64_t>(kept.size())};
        Dims dims{};
        dims.nbDims = 1;
        dims.d[0] = weights.count;
        return *need(network_->addConstant(dims, weights), "addConstant")->getOutput(0);
    }

    IOptimizationProfile& profile()
    {
        if (!profile_)
            profile_ = need(builder_->createOptimizationProfile(), "createOptimizationProfile");
        return *profile_;
    }

    // Destroyed from the last to the first: network and config before the builder, the builder before its logger.
    CorePtr core_;
    std::deque<std::vector<int64_t>> numbers_;
    std::unique_ptr<IBuilder> builder_;
    std::unique_ptr<INetworkDefinition> network_;
    std::unique_ptr<IBuilderConfig> config_;
    IOptimizationProfile* profile_{nullptr};
    ILayer* layer_{nullptr};
    std::vector<ITensor*> tensors_;
    std::vector<IIfConditional*> ifs_;
    std::vector<LoopEntry> loops_;
};

} // namespace
} // namespace trtc
