#include "api.h"

#include <string>

#include "errors.h"

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace dmlvk {
namespace {

PFN_vkGetInstanceProcAddr loader_entry() {
#ifdef _WIN32
    HMODULE library = LoadLibraryA("vulkan-1.dll");
    if (library != nullptr) {
        return reinterpret_cast<PFN_vkGetInstanceProcAddr>(
            reinterpret_cast<void*>(GetProcAddress(library, "vkGetInstanceProcAddr")));
    }
    throw NoDevice("no Vulkan loader: vulkan-1.dll could not be opened");
#else
#ifdef __APPLE__
    const char* names[] = {"libvulkan.1.dylib", "libMoltenVK.dylib"};
#else
    const char* names[] = {"libvulkan.so.1", "libvulkan.so"};
#endif
    std::string reasons;
    for (const char* name : names) {
        if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
            return reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
        }
        reasons += std::string(reasons.empty() ? "" : "; ") + dlerror();
    }
    throw NoDevice("no Vulkan loader: " + reasons);
#endif
}

void require(const void* function, const char* name) {
    if (function == nullptr) {
        throw NoDevice(std::string("the Vulkan loader has no function ") + name);
    }
}

}  // namespace

GlobalTable open_loader() {
    GlobalTable table;
    table.vkGetInstanceProcAddr = loader_entry();
    require(reinterpret_cast<const void*>(table.vkGetInstanceProcAddr), "vkGetInstanceProcAddr");
#define DMLVK_LOAD(name)                                                                             \
    table.name = reinterpret_cast<PFN_##name>(table.vkGetInstanceProcAddr(VK_NULL_HANDLE, #name)); \
    require(reinterpret_cast<const void*>(table.name), #name);
    DMLVK_GLOBAL_FUNCTIONS(DMLVK_LOAD)
#undef DMLVK_LOAD
    return table;
}

InstanceTable load_instance(const GlobalTable& global, VkInstance instance) {
    InstanceTable table;
#define DMLVK_FIND(name) table.name = reinterpret_cast<PFN_##name>(global.vkGetInstanceProcAddr(instance, #name));
#define DMLVK_LOAD(name) \
    DMLVK_FIND(name)     \
    require(reinterpret_cast<const void*>(table.name), #name);
    DMLVK_INSTANCE_FUNCTIONS(DMLVK_LOAD)
    DMLVK_FIND(vkCreateDebugUtilsMessengerEXT)
    DMLVK_FIND(vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)
#undef DMLVK_LOAD
#undef DMLVK_FIND
    return table;
}

DeviceTable load_device(const InstanceTable& instance, VkDevice device) {
    DeviceTable table;
#define DMLVK_FIND(name) table.name = reinterpret_cast<PFN_##name>(instance.vkGetDeviceProcAddr(device, #name));
#define DMLVK_LOAD(name) \
    DMLVK_FIND(name)     \
    require(reinterpret_cast<const void*>(table.name), #name);
    DMLVK_DEVICE_FUNCTIONS(DMLVK_LOAD)
    DMLVK_FIND(vkGetPipelineExecutablePropertiesKHR)
    DMLVK_FIND(vkGetPipelineExecutableStatisticsKHR)
    DMLVK_FIND(vkGetPipelineExecutableInternalRepresentationsKHR)
    DMLVK_FIND(vkGetMemoryFdKHR)
    DMLVK_FIND(vkGetSemaphoreFdKHR)
#undef DMLVK_LOAD
#undef DMLVK_FIND
    return table;
}

}  // namespace dmlvk
