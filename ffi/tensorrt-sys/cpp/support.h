//! Small helpers of one translation unit, and the state that every object of one library shares.
#pragma once
#include "shim.h"
#include "trtc-tensorrt-sys/src/bridge.rs.h"
#include <NvInfer.h>
#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace trtc {
namespace {

using namespace nvinfer1;

constexpr uint32_t kNONE = UINT32_MAX;

std::string text(rust::Str s)
{
    return std::string(s.data(), s.size());
}

Dims dims_of(Ints values)
{
    if (values.size() > Dims::MAX_DIMS)
        throw std::invalid_argument("rank " + std::to_string(values.size()) + " is over 8");
    Dims dims{};
    dims.nbDims = static_cast<int32_t>(values.size());
    for (size_t k = 0; k < values.size(); ++k)
        dims.d[k] = values[k];
    return dims;
}

TensorDesc desc_of(Dims const& dims, DataType dtype)
{
    TensorDesc desc{};
    desc.dtype = static_cast<int32_t>(dtype);
    desc.rank = dims.nbDims;
    for (int32_t k = 0; k < dims.nbDims && k < Dims::MAX_DIMS; ++k)
        desc.dims[static_cast<size_t>(k)] = dims.d[k];
    return desc;
}

Permutation permutation_of(Ids order)
{
    if (order.size() > Dims::MAX_DIMS)
        throw std::invalid_argument("a permutation of more than 8 axes");
    Permutation permutation{};
    for (size_t k = 0; k < order.size(); ++k)
        permutation.order[k] = static_cast<int32_t>(order[k]);
    return permutation;
}

//! A pointer that TensorRT hands out, or an exception that says which function gave null.
template <typename T>
T* need(T* pointer, char const* what)
{
    if (!pointer)
        throw std::runtime_error(std::string(what) + " returned null");
    return pointer;
}

void need(bool done, char const* what)
{
    if (!done)
        throw std::runtime_error(std::string(what) + " refused its arguments");
}

class Logger final : public ILogger {
  public:
    explicit Logger(Sink const& sink) : sink_(sink) {}
    void log(Severity severity, AsciiChar const* message) noexcept override
    {
        auto const* bytes = reinterpret_cast<uint8_t const*>(message);
        sink_.log(static_cast<int32_t>(severity), {bytes, std::strlen(message)});
    }

  private:
    Sink const& sink_;
};

//! Keeps errors as TensorRT asks and passes their text on; repeats of what the logger said are the reader's to drop.
class Recorder final : public IErrorRecorder {
  public:
    explicit Recorder(Sink const& sink) : sink_(sink) {}
    int32_t getNbErrors() const noexcept override
    {
        std::lock_guard<std::mutex> guard(mutex_);
        return static_cast<int32_t>(errors_.size());
    }
    ErrorCode getErrorCode(int32_t index) const noexcept override
    {
        std::lock_guard<std::mutex> guard(mutex_);
        return inside(index) ? errors_[static_cast<size_t>(index)].first : ErrorCode::kUNSPECIFIED_ERROR;
    }
    ErrorDesc getErrorDesc(int32_t index) const noexcept override
    {
        std::lock_guard<std::mutex> guard(mutex_);
        return inside(index) ? errors_[static_cast<size_t>(index)].second.c_str() : "";
    }
    bool hasOverflowed() const noexcept override
    {
        return false;
    }
    void clear() noexcept override
    {
        std::lock_guard<std::mutex> guard(mutex_);
        errors_.clear();
    }
    bool reportError(ErrorCode code, ErrorDesc description) noexcept override
    {
        {
            std::lock_guard<std::mutex> guard(mutex_);
            errors_.emplace_back(code, description);
        }
        auto const* bytes = reinterpret_cast<uint8_t const*>(description);
        sink_.log(1, {bytes, std::strlen(description)});
        return false;
    }
    RefCount incRefCount() noexcept override
    {
        return ++references_;
    }
    RefCount decRefCount() noexcept override
    {
        return --references_;
    }

  private:
    bool inside(int32_t index) const noexcept
    {
        return index >= 0 && static_cast<size_t>(index) < errors_.size();
    }
    Sink const& sink_;
    mutable std::mutex mutex_;
    std::vector<std::pair<ErrorCode, std::string>> errors_;
    std::atomic<RefCount> references_{0};
};

//! A loaded library. Every object made from it holds it, because TensorRT keeps pointers to logger and recorder.
struct Core {
    Core(void* library, rust::Box<Sink> s) : handle(library), sink(std::move(s)), logger(*sink), recorder(*sink) {}
    void* handle;
    rust::Box<Sink> sink;
    Logger logger;
    Recorder recorder;
};

using CorePtr = std::shared_ptr<Core>;

} // namespace
} // namespace trtc
