//! What exists once for both products.
#include "shim.h"
#include "trtc-tensorrt-sys/src/bridge.rs.h"
#include <dlfcn.h>

namespace trtc {

std::unique_ptr<Library> open(bool rtx, rust::Str path, rust::Box<Sink> sink)
{
    return rtx ? open_rtx(path, std::move(sink)) : open_enterprise(path, std::move(sink));
}

int32_t cuda_devices()
{
    // Stays loaded: whoever asks is about to use it, and unloading a driver is not safe.
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return 0;
    auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
    int devices = 0;
    if (!init || !count || init(0) != 0 || count(&devices) != 0)
        return 0;
    return devices;
}

} // namespace trtc
