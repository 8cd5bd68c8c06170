// The Vulkan functions that dmlvk calls, found at run time. libvulkan is opened, never linked, so that the module can be
// imported where no Vulkan is installed. Each device has a table of its own: its calls then skip the loader's dispatch,
// and several devices in one process cannot overwrite each other's pointers.
#pragma once

#include "vk_compat.h"

namespace dmlvk {

#define DMLVK_GLOBAL_FUNCTIONS(X)              \
    X(vkCreateInstance)                        \
    X(vkEnumerateInstanceVersion)              \
    X(vkEnumerateInstanceLayerProperties)      \
    X(vkEnumerateInstanceExtensionProperties)

#define DMLVK_INSTANCE_FUNCTIONS(X)            \
    X(vkCreateDevice)                          \
    X(vkEnumerateDeviceExtensionProperties)    \
    X(vkEnumeratePhysicalDevices)              \
    X(vkGetDeviceProcAddr)                     \
    X(vkGetPhysicalDeviceExternalBufferProperties)    \
    X(vkGetPhysicalDeviceExternalSemaphoreProperties) \
    X(vkGetPhysicalDeviceFeatures2)            \
    X(vkGetPhysicalDeviceMemoryProperties)     \
    X(vkGetPhysicalDeviceProperties)           \
    X(vkGetPhysicalDeviceProperties2)          \
    X(vkGetPhysicalDeviceQueueFamilyProperties)

#define DMLVK_DEVICE_FUNCTIONS(X)              \
    X(vkAllocateCommandBuffers)                \
    X(vkAllocateDescriptorSets)                \
    X(vkBeginCommandBuffer)                    \
    X(vkCmdBindDescriptorSets)                 \
    X(vkCmdBindPipeline)                       \
    X(vkCmdCopyBuffer)                         \
    X(vkCmdDispatch)                           \
    X(vkCmdFillBuffer)                         \
    X(vkCmdPipelineBarrier)                    \
    X(vkCmdPushConstants)                      \
    X(vkCmdResetQueryPool)                     \
    X(vkCmdWriteTimestamp)                     \
    X(vkCreateCommandPool)                     \
    X(vkCreateComputePipelines)                \
    X(vkCreateDescriptorPool)                  \
    X(vkCreateDescriptorSetLayout)             \
    X(vkCreatePipelineCache)                   \
    X(vkCreatePipelineLayout)                  \
    X(vkCreateQueryPool)                       \
    X(vkCreateSemaphore)                       \
    X(vkCreateShaderModule)                    \
    X(vkDestroyCommandPool)                    \
    X(vkDestroyDescriptorPool)                 \
    X(vkDestroyDescriptorSetLayout)            \
    X(vkDestroyDevice)                         \
    X(vkDestroyPipeline)                       \
    X(vkDestroyPipelineCache)                  \
    X(vkDestroyPipelineLayout)                 \
    X(vkDestroyQueryPool)                      \
    X(vkDestroySemaphore)                      \
    X(vkDestroyShaderModule)                   \
    X(vkDeviceWaitIdle)                        \
    X(vkEndCommandBuffer)                      \
    X(vkGetDeviceQueue)                        \
    X(vkGetPipelineCacheData)                  \
    X(vkGetQueryPoolResults)                   \
    X(vkGetSemaphoreCounterValue)              \
    X(vkQueueSubmit)                           \
    X(vkQueueWaitIdle)                         \
    X(vkResetCommandBuffer)                    \
    X(vkUpdateDescriptorSets)                  \
    X(vkWaitSemaphores)

#define DMLVK_POINTER(name) PFN_##name name = nullptr;

struct GlobalTable {
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
    DMLVK_GLOBAL_FUNCTIONS(DMLVK_POINTER)
};

struct InstanceTable {
    DMLVK_INSTANCE_FUNCTIONS(DMLVK_POINTER)
    // Extension functions: null where the extension is absent.
    PFN_vkCreateDebugUtilsMessengerEXT vkCreateDebugUtilsMessengerEXT = nullptr;
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = nullptr;
};

struct DeviceTable {
    DMLVK_DEVICE_FUNCTIONS(DMLVK_POINTER)
    // Of VK_KHR_pipeline_executable_properties: null where the extension is not enabled.
    PFN_vkGetPipelineExecutablePropertiesKHR vkGetPipelineExecutablePropertiesKHR = nullptr;
    PFN_vkGetPipelineExecutableStatisticsKHR vkGetPipelineExecutableStatisticsKHR = nullptr;
    PFN_vkGetPipelineExecutableInternalRepresentationsKHR vkGetPipelineExecutableInternalRepresentationsKHR = nullptr;
    // Of VK_KHR_external_memory_fd and VK_KHR_external_semaphore_fd, likewise.
    PFN_vkGetMemoryFdKHR vkGetMemoryFdKHR = nullptr;
    PFN_vkGetSemaphoreFdKHR vkGetSemaphoreFdKHR = nullptr;
};

#undef DMLVK_POINTER

/// Opens the Vulkan loader, once for the process. Throws NoDevice when none is installed.
GlobalTable open_loader();
InstanceTable load_instance(const GlobalTable& global, VkInstance instance);
DeviceTable load_device(const InstanceTable& table, VkDevice device);

}  // namespace dmlvk
