// JSON as serde reads it into trtc_network's types.
#pragma once

#include <NvInfer.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace nvinfer1;

struct Unreadable {
    std::string what;
};

// Variants of trtc_network::layer's enums, in the order of TensorRT's.
constexpr char const* kActivations[] = {"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Selu", "Softsign", "Softplus", "Clip",
    "HardSigmoid", "ScaledTanh", "ThresholdedRelu", "GeluErf", "GeluTanh"};
constexpr char const* kElementWise[] = {
    "Sum", "Prod", "Max", "Min", "Sub", "Div", "Pow", "FloorDiv", "And", "Or", "Xor", "Equal", "Greater", "Less"};
constexpr char const* kUnary[] = {"Exp", "Log", "Sqrt", "Recip", "Abs", "Neg", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin",
    "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Ceil", "Floor", "Erf", "Not", "Sign", "Round", "IsInf", "IsNan"};
constexpr char const* kReduce[] = {"Sum", "Prod", "Max", "Min", "Avg", "None"};
constexpr char const* kPool[] = {"Max", "Average", "MaxAverageBlend"};
constexpr char const* kMatrix[] = {"None", "Transpose", "Vector"};
constexpr char const* kTopK[] = {"Max", "Min"};
constexpr char const* kGather[] = {"Default", "Element", "Nd"};
constexpr char const* kScatter[] = {"Element", "Nd"};
constexpr char const* kSample[] = {"Strict", "Wrap", "Clamp", "Fill", "Reflect"};
constexpr char const* kInterpolation[] = {"Nearest", "Linear", "Cubic"};
constexpr char const* kCoordinates[] = {"AlignCorners", "Asymmetric", "HalfPixel"};
constexpr char const* kSelector[] = {"Formula", "Upper"};
constexpr char const* kRound[] = {"HalfUp", "HalfDown", "Floor", "Ceil"};
constexpr char const* kFill[] = {"Linspace", "RandomUniform", "RandomNormal"};
constexpr char const* kTrip[] = {"Count", "While"};
constexpr char const* kLoopOutput[] = {"LastValue", "Concatenate", "Reverse"};
constexpr char const* kBoxes[] = {"CornerPairs", "CenterSizes"};
constexpr char const* kTypes[] = {
    "f32", "f16", "i8", "i32", "bool", "u8", "f8e4m3", "bf16", "i64", "i4", "f4e2m1", "f8e8m0"};
constexpr int kBits[] = {32, 16, 8, 32, 8, 8, 8, 16, 64, 4, 4, 8};

std::string quoted(std::string const& text)
{
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\')
            (out += '\\') += static_cast<char>(c);
        else if (c < 0x20) {
            char code[8];
            snprintf(code, sizeof code, "\\u%04x", c);
            out += code;
        } else
            out += static_cast<char>(c);
    }
    return out + '"';
}

template <typename E, size_t N>
std::string name(char const* const (&names)[N], E value)
{
    auto const at = static_cast<size_t>(value);
    if (at >= N)
        throw Unreadable{"an enum's value " + std::to_string(at)};
    return quoted(names[at]);
}

std::string number(double value)
{
    if (std::isnan(value))
        return "\"nan\"";
    if (std::isinf(value))
        return value > 0 ? "\"inf\"" : "\"-inf\"";
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    return text;
}

std::string list(std::vector<std::string> const& items)
{
    std::string out = "[";
    for (auto const& item : items)
        (out += out.size() > 1 ? "," : "") += item;
    return out + "]";
}

std::vector<int64_t> values(Dims const& dims)
{
    return {dims.d, dims.d + std::max(dims.nbDims, 0)};
}

template <typename T>
std::string list(std::vector<T> const& items)
{
    std::vector<std::string> texts;
    for (auto const& item : items)
        texts.push_back(std::to_string(item));
    return list(texts);
}

std::string list(Dims const& dims)
{
    return list(values(dims));
}

std::vector<int64_t> axes_of(uint32_t mask)
{
    std::vector<int64_t> axes;
    for (int axis = 0; axis < 32; ++axis)
        if (mask >> axis & 1U)
            axes.push_back(axis);
    return axes;
}

// {"Variant":{fields}}, fields in pairs of name and JSON.
using Fields = std::vector<std::pair<char const*, std::string>>;
std::string object(Fields const& fields)
{
    std::string out = "{";
    for (auto const& [key, value] : fields)
        ((((out += out.size() > 1 ? "," : "") += '"') += key) += "\":") += value;
    return out + "}";
}
std::string variant(char const* name, Fields const& fields)
{
    return object({{name, object(fields)}});
}
std::string fixed(std::string const& json)
{
    return "{\"Static\":" + json + "}";
}
std::string boolean(bool value)
{
    return value ? "true" : "false";
}

} // namespace
