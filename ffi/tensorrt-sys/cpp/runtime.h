//! Running: runtime, engine, execution context.
#pragma once
#include "support.h"
#include <map>

namespace trtc {
namespace {

class Allocator final : public IOutputAllocator {
  public:
    explicit Allocator(rust::Box<OutputSink> sink) : sink_(std::move(sink)) {}
    void* reallocateOutputAsync(
        char const*, void*, uint64_t bytes, uint64_t alignment, cudaStream_t stream) noexcept override
    {
        return reinterpret_cast<void*>(sink_->allocate(bytes, alignment, reinterpret_cast<size_t>(stream)));
    }
    void notifyShape(char const*, Dims const& dims) noexcept override
    {
        sink_->shape({dims.d, static_cast<size_t>(dims.nbDims < 0 ? 0 : dims.nbDims)});
    }

  private:
    rust::Box<OutputSink> sink_;
};

class ContextImpl final : public Context {
  public:
    ContextImpl(CorePtr core, std::shared_ptr<ICudaEngine> engine, IExecutionContext* context)
        : core_(std::move(core)), engine_(std::move(engine)), context_(context)
    {
        context_->setErrorRecorder(&core_->recorder);
    }

    bool set_input_dims(rust::Str name, Ints dims) override
    {
        return dims.size() <= Dims::MAX_DIMS && context_->setInputShape(text(name).c_str(), dims_of(dims));
    }

    TensorDesc tensor_dims(rust::Str name) const override
    {
        std::string const tensor = text(name);
        return desc_of(context_->getTensorShape(tensor.c_str()), engine_->getTensorDataType(tensor.c_str()));
    }

    bool set_address(rust::Str name, size_t address) override
    {
        return context_->setTensorAddress(text(name).c_str(), reinterpret_cast<void*>(address));
    }

    void set_output_sink(rust::Str name, rust::Box<OutputSink> sink) override
    {
        std::string const tensor = text(name);
        auto allocator = std::make_unique<Allocator>(std::move(sink));
        need(context_->setOutputAllocator(tensor.c_str(), allocator.get()), "setOutputAllocator");
        allocators_[tensor] = std::move(allocator);
    }

    rust::Vec<rust::String> infer_shapes() override
    {
        std::vector<char const*> names(static_cast<size_t>(engine_->getNbIOTensors()), nullptr);
        int32_t const room = static_cast<int32_t>(names.size());
        int32_t const missing = context_->inferShapes(room, names.data());
        if (missing < 0)
            throw std::runtime_error("inferShapes failed");
        rust::Vec<rust::String> list;
        for (int32_t k = 0; k < missing && k < room; ++k)
            list.push_back(rust::String::lossy(names[static_cast<size_t>(k)]));
        return list;
    }

    int64_t max_output_bytes(rust::Str name) const override
    {
        return context_->getMaxOutputSize(text(name).c_str());
    }

    size_t needed_device_memory() override
    {
        return context_->updateDeviceMemorySizeForShapes();
    }

    void set_device_memory(size_t address, int64_t bytes) override
    {
        context_->setDeviceMemoryV2(reinterpret_cast<void*>(address), bytes);
    }

    bool enqueue(size_t stream) override
    {
        return context_->enqueueV3(reinterpret_cast<cudaStream_t>(stream));
    }

  private:
    CorePtr core_;
    std::shared_ptr<ICudaEngine> engine_;
    // The context goes before the allocators that it points to.
    std::map<std::string, std::unique_ptr<Allocator>> allocators_;
    std::unique_ptr<IExecutionContext> context_;
};

class EngineImpl final : public Engine {
  public:
    //! Contexts share the engine and outlive this object, so the engine itself keeps its runtime.
    EngineImpl(CorePtr core, std::shared_ptr<IRuntime> runtime, ICudaEngine* engine)
        : core_(std::move(core)), engine_(engine, [runtime = std::move(runtime)](ICudaEngine* e) { delete e; })
    {
    }

    int32_t io_count() const override
    {
        return engine_->getNbIOTensors();
    }

    rust::String io_name(int32_t index) const override
    {
        return rust::String::lossy(need(engine_->getIOTensorName(index), "getIOTensorName"));
    }

    TensorDesc io_desc(rust::Str name) const override
    {
        std::string const tensor = text(name);
        return desc_of(engine_->getTensorShape(tensor.c_str()), engine_->getTensorDataType(tensor.c_str()));
    }

    int32_t io_mode(rust::Str name) const override
    {
        return static_cast<int32_t>(engine_->getTensorIOMode(text(name).c_str()));
    }

    int32_t io_location(rust::Str name) const override
    {
        return static_cast<int32_t>(engine_->getTensorLocation(text(name).c_str()));
    }

    bool io_is_shape(rust::Str name) const override
    {
        return engine_->isShapeInferenceIO(text(name).c_str());
    }

    TensorDesc profile_dims(rust::Str name, int32_t select) const override
    {
        std::string const tensor = text(name);
        auto const dims = engine_->getProfileShape(tensor.c_str(), 0, static_cast<OptProfileSelector>(select));
        return desc_of(dims, engine_->getTensorDataType(tensor.c_str()));
    }

    rust::Vec<int64_t> profile_values(rust::Str name, int32_t select, size_t count) const override
    {
        rust::Vec<int64_t> list;
        auto const* values = engine_->getProfileTensorValuesV2(
            text(name).c_str(), 0, static_cast<OptProfileSelector>(select));
        for (size_t k = 0; values && k < count; ++k)
            list.push_back(values[k]);
        return list;
    }

    int64_t device_memory_bytes() const override
    {
        return engine_->getDeviceMemorySizeV2();
    }

    std::unique_ptr<Context> context(bool user_memory) const override
    {
        auto const strategy = user_memory ? ExecutionContextAllocationStrategy::kUSER_MANAGED
                                          : ExecutionContextAllocationStrategy::kSTATIC;
        auto* context = need(engine_->createExecutionContext(strategy), "createExecutionContext");
        return std::make_unique<ContextImpl>(core_, engine_, context);
    }

  private:
    CorePtr core_;
    std::shared_ptr<ICudaEngine> engine_;
};

class RuntimeImpl final : public Runtime {
  public:
    RuntimeImpl(CorePtr core, IRuntime* runtime) : core_(std::move(core)), runtime_(runtime)
    {
        runtime_->setErrorRecorder(&core_->recorder);
    }

    std::unique_ptr<Engine> deserialize(rust::Slice<uint8_t const> engine) const override
    {
        auto* made = need(runtime_->deserializeCudaEngine(engine.data(), engine.size()), "deserializeCudaEngine");
        return std::make_unique<EngineImpl>(core_, runtime_, made);
    }

  private:
    CorePtr core_;
    std::shared_ptr<IRuntime> runtime_;
};

} // namespace
} // namespace trtc
