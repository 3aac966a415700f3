// Single layers of a network in the form of trtc_network::layer, with the tensors and weights that they mention.
#pragma once

#include "json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace {

class Layers {
protected:
    explicit Layers(std::ostream& bin) : bin_(bin) {}

    std::string fresh(DataType type, std::string const& dims)
    {
        tensors_.push_back(object({{"dtype", name(kTypes, type)}, {"dims", dims}}));
        return std::to_string(tensors_.size() - 1);
    }

    std::string id(ITensor* tensor)
    {
        if (!tensor)
            throw Unreadable{"an input that is not there"};
        auto const [at, added] = ids_.try_emplace(tensor);
        if (added)
            at->second = fresh(tensor->getType(), list(tensor->getDimensions()));
        return at->second;
    }

    std::string in(ILayer& layer, int k)
    {
        return id(layer.getInput(k));
    }

    std::string optional(ILayer& layer, int k)
    {
        return k < layer.getNbInputs() && layer.getInput(k) ? in(layer, k) : "null";
    }

    // The extent of an operand that is a tensor where there is one.
    std::string extent(ILayer& layer, int k, Dims const& dims)
    {
        if (k < layer.getNbInputs() && layer.getInput(k))
            return "{\"Tensor\":" + in(layer, k) + "}";
        if (dims.nbDims < 0)
            throw Unreadable{"dims that are not there"};
        return fixed(list(dims));
    }

    std::string entry(std::string const& layer, std::vector<std::string> const& outputs, int node)
    {
        return object({{"layer", layer}, {"outputs", list(outputs)}, {"node", std::to_string(node)}});
    }

    // A constant layer of weights that the parser gave to a layer directly.
    std::string constant(Weights const& weights, std::vector<int64_t> const& dims)
    {
        std::string const tensor = fresh(weights.type, list(dims));
        extra_.push_back(entry(constant_layer(weights, list(dims)), {tensor}, node_));
        return tensor;
    }

    std::string constant_layer(Weights const& weights, std::string const& dims)
    {
        auto const type = static_cast<size_t>(weights.type);
        int64_t const bytes = (weights.count * kBits[type] + 7) / 8;
        spans_.push_back(list(std::vector<int64_t>{offset_, bytes}));
        bin_.write(static_cast<char const*>(weights.values), bytes);
        offset_ += bytes;
        weights_.push_back(object({{"dtype", name(kTypes, weights.type)}, {"count", std::to_string(weights.count)}}));
        return variant("Constant", {{"dims", dims}, {"weights", std::to_string(weights_.size() - 1)}});
    }

    // A list of integers as a constant.
    std::string integers(DataType type, std::vector<int64_t> const& list)
    {
        std::string bytes;
        for (int64_t value : list) {
            auto const narrow = static_cast<int32_t>(value);
            if (type == DataType::kINT32)
                bytes.append(reinterpret_cast<char const*>(&narrow), sizeof narrow);
            else
                bytes.append(reinterpret_cast<char const*>(&value), sizeof value);
        }
        kept_.push_back(std::make_unique<std::string>(std::move(bytes)));
        auto const count = static_cast<int64_t>(list.size());
        return constant({type, kept_.back()->data(), count}, {count});
    }

    template <typename T>
    std::string scalar(DataType type, T value, std::vector<int64_t> const& dims)
    {
        kept_.push_back(std::make_unique<std::string>(reinterpret_cast<char const*>(&value), sizeof value));
        return constant({type, kept_.back()->data(), 1}, dims);
    }

    template <typename L>
    std::string window(L& layer, Dims const& kernel, std::vector<int64_t> const& dilation)
    {
        if (layer.getPaddingMode() != PaddingMode::kEXPLICIT_ROUND_DOWN)
            throw Unreadable{"a padding mode"};
        return object({{"kernel", list(kernel)}, {"stride", list(layer.getStrideNd())},
            {"pre_padding", list(layer.getPrePadding())}, {"post_padding", list(layer.getPostPadding())},
            {"dilation", list(dilation)}});
    }

    template <typename L>
    std::string convolution(char const* what, L& layer, bool transposed)
    {
        int64_t const maps = layer.getNbOutputMaps(), groups = layer.getNbGroups();
        int64_t const channels = layer.getInput(0)->getDimensions().d[1];
        std::vector<int64_t> dims
            = transposed ? std::vector<int64_t>{channels, maps / groups} : std::vector<int64_t>{maps, channels / groups};
        for (int64_t size : values(layer.getKernelSizeNd()))
            dims.push_back(size);
        std::string kernel = optional(layer, 1), bias = optional(layer, 2);
        if (kernel == "null")
            kernel = constant(layer.getKernelWeights(), dims);
        if (bias == "null" && layer.getBiasWeights().count > 0)
            bias = constant(layer.getBiasWeights(), {maps});
        return variant(what,
            {{"x", in(layer, 0)}, {"kernel", kernel}, {"bias", bias},
                {"window", window(layer, layer.getKernelSizeNd(), values(layer.getDilationNd()))},
                {"groups", std::to_string(groups)}});
    }

    // (x · scale + shift) ^ power, as layers of their own.
    std::string scale(IScaleLayer& layer)
    {
        if (layer.getPower().count > 0)
            throw Unreadable{"a Scale with a power"};
        auto const x = layer.getInput(0)->getDimensions();
        std::vector<int64_t> dims(static_cast<size_t>(x.nbDims), 1);
        if (layer.getMode() == ScaleMode::kCHANNEL)
            dims.at(static_cast<size_t>(layer.getChannelAxis())) = x.d[layer.getChannelAxis()];
        else if (layer.getMode() == ScaleMode::kELEMENTWISE)
            throw Unreadable{"a Scale by element"};
        std::string from = in(layer, 0);
        if (layer.getScale().count > 0) {
            std::string const product = fresh(layer.getOutput(0)->getType(), list(x));
            extra_.push_back(entry(binary(from, constant(layer.getScale(), dims), "Prod"), {product}, node_));
            from = product;
        }
        if (layer.getShift().count > 0)
            return binary(from, constant(layer.getShift(), dims), "Sum");
        return variant("Identity", {{"x", from}});
    }

    std::string binary(std::string const& a, std::string const& b, char const* op)
    {
        return variant("ElementWise", {{"a", a}, {"b", b}, {"op", quoted(op)}});
    }

    // Numbers of a constant that a layer reads: axes.
    std::vector<int64_t> numbers(ITensor* tensor)
    {
        for (ILayer* layer : layers_) {
            if (layer->getType() != LayerType::kCONSTANT || layer->getOutput(0) != tensor)
                continue;
            Weights const weights = static_cast<IConstantLayer*>(layer)->getWeights();
            std::vector<int64_t> found;
            for (int64_t k = 0; k < weights.count; ++k)
                found.push_back(weights.type == DataType::kINT64 ? static_cast<int64_t const*>(weights.values)[k]
                                                                 : static_cast<int32_t const*>(weights.values)[k]);
            return found;
        }
        throw Unreadable{"axes that are no constant"};
    }

    std::string axes(ILayer& layer, int rank)
    {
        std::vector<int64_t> axes = numbers(layer.getInput(1));
        for (int64_t& axis : axes)
            axis += axis < 0 ? rank : 0;
        return list(axes);
    }

    std::string permutation(Permutation const& order, int rank)
    {
        bool same = true;
        std::vector<int64_t> axes;
        for (int k = 0; k < rank; ++k) {
            same = same && order.order[k] == k;
            axes.push_back(order.order[k]);
        }
        return same ? "null" : list(axes);
    }

    std::string shuffle(IShuffleLayer& layer)
    {
        int const rank = layer.getInput(0)->getDimensions().nbDims, after = layer.getOutput(0)->getDimensions().nbDims;
        Dims const dims = layer.getReshapeDimensions();
        bool const from_tensor = layer.getNbInputs() > 1 && layer.getInput(1);
        std::string reshape = "null";
        if (from_tensor || dims.nbDims > 0 || (dims.nbDims == 0 && after == 0 && rank != 0))
            reshape = extent(layer, 1, dims);
        return variant("Shuffle",
            {{"x", in(layer, 0)}, {"first", permutation(layer.getFirstTranspose(), rank)}, {"reshape", reshape},
                {"zero_is_placeholder", boolean(layer.getZeroIsPlaceholder())},
                {"second", permutation(layer.getSecondTranspose(), after)}});
    }

    // The extent of a slice: of some axes only, where those are given, and `rest` for the others.
    std::string slice_extent(
        ISliceLayer& layer, int k, Dims const& dims, std::vector<int64_t> const& axes, std::vector<int64_t> rest)
    {
        if (axes.empty())
            return extent(layer, k, dims);
        if (k < layer.getNbInputs() && layer.getInput(k)) {
            auto const type = layer.getInput(k)->getType();
            auto const ranks = std::vector<int64_t>{static_cast<int64_t>(rest.size())};
            std::string const all = integers(type, rest), at = integers(DataType::kINT64, axes);
            std::string const merged = fresh(type, list(ranks));
            extra_.push_back(entry(variant("Scatter",
                                       {{"data", all}, {"indices", at}, {"updates", in(layer, k)},
                                           {"mode", "\"Element\""}, {"axis", "0"}}),
                {merged}, node_));
            return "{\"Tensor\":" + merged + "}";
        }
        for (size_t j = 0; j < axes.size(); ++j)
            rest.at(static_cast<size_t>(axes[j])) = dims.d[j];
        return fixed(list(rest));
    }

    std::string slice(ISliceLayer& layer)
    {
        Dims const x = layer.getInput(0)->getDimensions();
        auto const rank = static_cast<size_t>(x.nbDims);
        std::vector<int64_t> axes = values(layer.getAxes());
        if (optional(layer, 5) != "null")
            axes = numbers(layer.getInput(5));
        for (int64_t& axis : axes)
            axis += axis < 0 ? x.nbDims : 0;
        return variant("Slice",
            {{"x", in(layer, 0)},
                {"start", slice_extent(layer, 1, layer.getStart(), axes, std::vector<int64_t>(rank, 0))},
                {"size", slice_extent(layer, 2, layer.getSize(), axes, values(x))},
                {"stride", slice_extent(layer, 3, layer.getStride(), axes, std::vector<int64_t>(rank, 1))},
                {"mode", name(kSample, layer.getMode())}, {"fill", optional(layer, 4)}});
    }

    std::string resize(IResizeLayer& layer)
    {
        std::string to;
        int const rank = layer.getInput(0)->getDimensions().nbDims;
        std::vector<float> scales(static_cast<size_t>(rank));
        if (layer.getNbInputs() > 1 && layer.getInput(1))
            to = object({{"Sizes", extent(layer, 1, {})}});
        else if (layer.getScales(rank, scales.data()) == rank) {
            std::vector<std::string> texts;
            for (float scale : scales)
                texts.push_back(number(scale));
            to = object({{"Scales", list(texts)}});
        } else
            to = object({{"Sizes", fixed(list(layer.getOutputDimensions()))}});
        return variant("Resize",
            {{"x", in(layer, 0)}, {"to", to}, {"interpolation", name(kInterpolation, layer.getResizeMode())},
                {"coordinates", name(kCoordinates, layer.getCoordinateTransformation())},
                {"selector", name(kSelector, layer.getSelectorForSinglePixel())},
                {"round", name(kRound, layer.getNearestRounding())}, {"cubic_coeff", number(layer.getCubicCoeff())},
                {"exclude_outside", boolean(layer.getExcludeOutside())}});
    }

    std::string fill(IFillLayer& layer)
    {
        if (layer.getOperation() != FillOperation::kLINSPACE)
            throw Unreadable{"a random Fill"};
        std::string alpha = optional(layer, 1), beta = optional(layer, 2);
        if (alpha == "null" || beta == "null") {
            if (layer.isAlphaBetaInt64()) {
                alpha = scalar(DataType::kINT64, layer.getAlphaInt64(), {});
                beta = scalar(DataType::kINT64, layer.getBetaInt64(), {1});
            } else {
                alpha = scalar(DataType::kFLOAT, static_cast<float>(layer.getAlpha()), {});
                beta = scalar(DataType::kFLOAT, static_cast<float>(layer.getBeta()), {1});
            }
        }
        return variant("Fill",
            {{"shape", extent(layer, 0, layer.getDimensions())}, {"op", name(kFill, layer.getOperation())}, {"alpha", alpha},
                {"beta", beta}, {"to", name(kTypes, layer.getToType())}});
    }

    template <typename L>
    std::string quantization(char const* what, L& layer)
    {
        if (layer.getNbInputs() > 2 && layer.getInput(2))
            throw Unreadable{"a zero point"};
        bool const per_channel = layer.getInput(1)->getDimensions().nbDims == 1;
        return variant(what,
            {{"x", in(layer, 0)}, {"scale", in(layer, 1)},
                {"axis", per_channel && layer.getAxis() >= 0 ? std::to_string(layer.getAxis()) : "null"},
                {"to", name(kTypes, layer.getOutput(0)->getType())}});
    }

    std::string layer(ILayer& l)
    {
        switch (l.getType()) {
        case LayerType::kACTIVATION: {
            auto& a = static_cast<IActivationLayer&>(l);
            return variant("Activation",
                {{"x", in(l, 0)}, {"kind", name(kActivations, a.getActivationType())}, {"alpha", number(a.getAlpha())},
                    {"beta", number(a.getBeta())}});
        }
        case LayerType::kCAST:
            return variant("Cast", {{"x", in(l, 0)}, {"to", name(kTypes, static_cast<ICastLayer&>(l).getToType())}});
        case LayerType::kCONCATENATION: {
            std::vector<std::string> xs;
            for (int k = 0; k < l.getNbInputs(); ++k)
                xs.push_back(in(l, k));
            return variant("Concatenation",
                {{"xs", list(xs)}, {"axis", std::to_string(static_cast<IConcatenationLayer&>(l).getAxis())}});
        }
        case LayerType::kCONSTANT: {
            auto& c = static_cast<IConstantLayer&>(l);
            return constant_layer(c.getWeights(), list(c.getDimensions()));
        }
        case LayerType::kCONVOLUTION: return convolution("Convolution", static_cast<IConvolutionLayer&>(l), false);
        case LayerType::kDECONVOLUTION: return convolution("Deconvolution", static_cast<IDeconvolutionLayer&>(l), true);
        case LayerType::kCUMULATIVE: {
            auto& c = static_cast<ICumulativeLayer&>(l);
            return variant("Cumulative",
                {{"x", in(l, 0)}, {"axis", in(l, 1)}, {"op", "\"Sum\""}, {"exclusive", boolean(c.getExclusive())},
                    {"reverse", boolean(c.getReverse())}});
        }
        case LayerType::kQUANTIZE: return quantization("Quantize", static_cast<IQuantizeLayer&>(l));
        case LayerType::kDEQUANTIZE: return quantization("Dequantize", static_cast<IDequantizeLayer&>(l));
        case LayerType::kEINSUM: {
            std::vector<std::string> xs;
            for (int k = 0; k < l.getNbInputs(); ++k)
                xs.push_back(in(l, k));
            return variant(
                "Einsum", {{"xs", list(xs)}, {"equation", quoted(static_cast<IEinsumLayer&>(l).getEquation())}});
        }
        case LayerType::kELEMENTWISE:
            return variant("ElementWise",
                {{"a", in(l, 0)}, {"b", in(l, 1)},
                    {"op", name(kElementWise, static_cast<IElementWiseLayer&>(l).getOperation())}});
        case LayerType::kFILL: return fill(static_cast<IFillLayer&>(l));
        case LayerType::kGATHER: {
            auto& g = static_cast<IGatherLayer&>(l);
            return variant("Gather",
                {{"data", in(l, 0)}, {"indices", in(l, 1)}, {"axis", std::to_string(std::max(g.getGatherAxis(), 0))},
                    {"mode", name(kGather, g.getMode())}, {"batch_dims", std::to_string(g.getNbElementWiseDims())}});
        }
        case LayerType::kGRID_SAMPLE: {
            auto& g = static_cast<IGridSampleLayer&>(l);
            return variant("GridSample",
                {{"x", in(l, 0)}, {"grid", in(l, 1)}, {"interpolation", name(kInterpolation, g.getInterpolationMode())},
                    {"align_corners", boolean(g.getAlignCorners())}, {"mode", name(kSample, g.getSampleMode())}});
        }
        case LayerType::kIDENTITY: return variant("Identity", {{"x", in(l, 0)}});
        case LayerType::kLRN: {
            auto& r = static_cast<ILRNLayer&>(l);
            return variant("Lrn",
                {{"x", in(l, 0)}, {"window", std::to_string(r.getWindowSize())}, {"alpha", number(r.getAlpha())},
                    {"beta", number(r.getBeta())}, {"k", number(r.getK())}});
        }
        case LayerType::kMATRIX_MULTIPLY: {
            auto& m = static_cast<IMatrixMultiplyLayer&>(l);
            return variant("MatrixMultiply",
                {{"a", in(l, 0)}, {"op_a", name(kMatrix, m.getOperation(0))}, {"b", in(l, 1)},
                    {"op_b", name(kMatrix, m.getOperation(1))}});
        }
        case LayerType::kNMS: {
            auto& n = static_cast<INMSLayer&>(l);
            return variant("Nms",
                {{"boxes", in(l, 0)}, {"scores", in(l, 1)}, {"max_output_boxes", in(l, 2)},
                    {"iou_threshold", optional(l, 3)}, {"score_threshold", optional(l, 4)},
                    {"format", name(kBoxes, n.getBoundingBoxFormat())}, {"to", name(kTypes, l.getOutput(0)->getType())}});
        }
        case LayerType::kNON_ZERO:
            return variant("NonZero", {{"x", in(l, 0)}, {"to", name(kTypes, l.getOutput(0)->getType())}});
        case LayerType::kNORMALIZATION: {
            auto& n = static_cast<INormalizationLayer&>(l);
            if (!n.isV2() && n.getNbGroups() != 1)
                throw Unreadable{"a Normalization of groups in its older form"};
            return variant("Normalization",
                {{"x", in(l, 0)}, {"scale", in(l, 1)}, {"bias", in(l, 2)}, {"axes", list(axes_of(n.getAxes()))},
                    {"epsilon", number(n.getEpsilon())}, {"groups", std::to_string(n.getNbGroups())}});
        }
        case LayerType::kONE_HOT:
            return variant("OneHot",
                {{"indices", in(l, 0)}, {"values", in(l, 1)}, {"depth", in(l, 2)},
                    {"axis", std::to_string(axis_of(static_cast<IOneHotLayer&>(l).getAxis(), *l.getOutput(0)))}});
        case LayerType::kPARAMETRIC_RELU:
            return variant("ParametricRelu", {{"x", in(l, 0)}, {"slopes", in(l, 1)}});
        case LayerType::kPOOLING: {
            auto& p = static_cast<IPoolingLayer&>(l);
            Dims const kernel = p.getWindowSizeNd();
            std::vector<int64_t> const ones(static_cast<size_t>(kernel.nbDims), 1);
            return variant("Pooling",
                {{"x", in(l, 0)}, {"kind", name(kPool, p.getPoolingType())}, {"window", window(p, kernel, ones)},
                    {"exclude_padding", boolean(p.getAverageCountExcludesPadding())},
                    {"blend", number(p.getBlendFactor())}});
        }
        case LayerType::kREDUCE: {
            auto& r = static_cast<IReduceLayer&>(l);
            return variant("Reduce",
                {{"x", in(l, 0)}, {"op", name(kReduce, r.getOperation())}, {"axes", list(axes_of(r.getReduceAxes()))},
                    {"keep_dims", boolean(r.getKeepDimensions())}});
        }
        case LayerType::kRESIZE: return resize(static_cast<IResizeLayer&>(l));
        case LayerType::kREVERSE_SEQUENCE: {
            auto& r = static_cast<IReverseSequenceLayer&>(l);
            return variant("ReverseSequence",
                {{"x", in(l, 0)}, {"lengths", in(l, 1)}, {"batch_axis", std::to_string(r.getBatchAxis())},
                    {"sequence_axis", std::to_string(r.getSequenceAxis())}});
        }
        case LayerType::kSCALE: return scale(static_cast<IScaleLayer&>(l));
        case LayerType::kSCATTER: {
            auto& s = static_cast<IScatterLayer&>(l);
            bool const nd = s.getMode() == ScatterMode::kND;
            return variant("Scatter",
                {{"data", in(l, 0)}, {"indices", in(l, 1)}, {"updates", in(l, 2)}, {"mode", name(kScatter, s.getMode())},
                    {"axis", std::to_string(nd ? 0 : axis_of(s.getAxis(), *l.getInput(0)))}});
        }
        case LayerType::kSELECT:
            return variant(
                "Select", {{"condition", in(l, 0)}, {"then_input", in(l, 1)}, {"else_input", in(l, 2)}});
        case LayerType::kSHAPE: return variant("Shape", {{"x", in(l, 0)}});
        case LayerType::kSHUFFLE: return shuffle(static_cast<IShuffleLayer&>(l));
        case LayerType::kSLICE: return slice(static_cast<ISliceLayer&>(l));
        case LayerType::kSOFTMAX: {
            auto const axes = axes_of(static_cast<ISoftMaxLayer&>(l).getAxes());
            if (axes.size() != 1)
                throw Unreadable{"a SoftMax over several axes"};
            return variant("SoftMax", {{"x", in(l, 0)}, {"axis", std::to_string(axes[0])}});
        }
        case LayerType::kSQUEEZE:
            return variant("Squeeze", {{"x", in(l, 0)}, {"axes", axes(l, l.getInput(0)->getDimensions().nbDims)}});
        case LayerType::kUNSQUEEZE:
            return variant("Unsqueeze", {{"x", in(l, 0)}, {"axes", axes(l, l.getOutput(0)->getDimensions().nbDims)}});
        case LayerType::kTOPK: {
            auto& t = static_cast<ITopKLayer&>(l);
            auto const axes = axes_of(t.getReduceAxes());
            std::string const k = optional(l, 1);
            return variant("TopK",
                {{"x", in(l, 0)}, {"op", name(kTopK, t.getOperation())},
                    {"k", k == "null" ? fixed(std::to_string(t.getK())) : "{\"Tensor\":" + k + "}"},
                    {"axis", std::to_string(axes.at(0))}, {"indices", name(kTypes, l.getOutput(1)->getType())}});
        }
        case LayerType::kUNARY:
            return variant(
                "Unary", {{"x", in(l, 0)}, {"op", name(kUnary, static_cast<IUnaryLayer&>(l).getOperation())}});
        default: throw Unreadable{"layer type " + std::to_string(static_cast<int>(l.getType()))};
        }
    }

    static int axis_of(int axis, ITensor& tensor)
    {
        return axis < 0 ? axis + tensor.getDimensions().nbDims : axis;
    }

    // Every layer, for constants that others read.
    std::vector<ILayer*> layers_;
    std::vector<std::string> tensors_, weights_, spans_;
    // The node that is read, and layers that belong before its own.
    int node_ = 0;
    std::vector<std::string> extra_;

private:
    std::map<ITensor*, std::string> ids_;
    std::ostream& bin_;
    int64_t offset_ = 0;
    std::vector<std::unique_ptr<std::string>> kept_;
};

} // namespace
