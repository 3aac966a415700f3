//! The shim, compiled once for each product: `nvinfer1` is renamed and `TRTC_OPEN` names the way in.
#include "network.h"
#include "runtime.h"
#include <dlfcn.h>

namespace trtc {
namespace {

class LibraryImpl final : public Library {
  public:
    explicit LibraryImpl(CorePtr core) : core_(std::move(core)) {}

    int32_t version() const override
    {
        auto read = symbol<int32_t (*)()>("getInferLibVersion");
        return read ? read() : 0;
    }

    bool has_builder() const override
    {
        return symbol<void*>("createInferBuilder_INTERNAL") != nullptr;
    }

    std::unique_ptr<NetworkBuilder> network(rust::Str name) const override
    {
        auto create = need(symbol<void* (*) (void*, int32_t)>("createInferBuilder_INTERNAL"), "a library without a builder");
        auto* builder = static_cast<IBuilder*>(create(&core_->logger, NV_TENSORRT_VERSION));
        return std::make_unique<NetworkImpl>(core_, need(builder, "createInferBuilder"), name);
    }

    std::unique_ptr<Runtime> runtime() const override
    {
        auto create = need(symbol<void* (*) (void*, int32_t)>("createInferRuntime_INTERNAL"), "a library without a runtime");
        auto* runtime = static_cast<IRuntime*>(create(&core_->logger, NV_TENSORRT_VERSION));
        return std::make_unique<RuntimeImpl>(core_, need(runtime, "createInferRuntime"));
    }

  private:
    template <typename F>
    F symbol(char const* name) const
    {
        return reinterpret_cast<F>(dlsym(core_->handle, name));
    }

    CorePtr core_;
};

} // namespace

std::unique_ptr<Library> TRTC_OPEN(rust::Str path, rust::Box<Sink> sink)
{
    // Never closed: TensorRT leaves threads and registered destructors behind.
    void* handle = dlopen(text(path).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        char const* why = dlerror();
        throw std::runtime_error(why ? why : "dlopen failed");
    }
    return std::make_unique<LibraryImpl>(std::make_shared<Core>(handle, std::move(sink)));
}

} // namespace trtc
