#include "instance.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>

#include "errors.h"

namespace dmlvk {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

// Messages can arrive from any thread, also from the layer's own, and after main() has returned: so this is never freed.
struct MessageLog {
    std::mutex mutex;
    std::vector<std::string> messages;
};

MessageLog& message_log() {
    static MessageLog* log = new MessageLog;
    return *log;
}

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data,
                                          void*) {
    try {
        std::string text = data->pMessageIdName != nullptr ? std::string(data->pMessageIdName) + ": " : std::string();
        text += data->pMessage != nullptr ? data->pMessage : "";
        MessageLog& log = message_log();
        std::lock_guard<std::mutex> lock(log.mutex);
        log.messages.push_back(std::move(text));
    } catch (const std::exception&) {
        // No memory for the message. Nothing may be thrown through the driver, which called this.
    }
    return VK_FALSE;
}

bool validation_requested() {
    const char* value = std::getenv("DMLVK_VALIDATION");
    return value != nullptr && std::string_view(value) == "1";
}

bool has_layer(const GlobalTable& vk) {
    uint32_t count = 0;
    check(vk.vkEnumerateInstanceLayerProperties(&count, nullptr), "vkEnumerateInstanceLayerProperties");
    std::vector<VkLayerProperties> layers(count);
    check(vk.vkEnumerateInstanceLayerProperties(&count, layers.data()), "vkEnumerateInstanceLayerProperties");
    for (const VkLayerProperties& layer : layers) {
        if (std::strcmp(layer.layerName, kValidationLayer) == 0) {
            return true;
        }
    }
    return false;
}

bool has_extension(const GlobalTable& vk, const char* name) {
    uint32_t count = 0;
    check(vk.vkEnumerateInstanceExtensionProperties(nullptr, &count, nullptr),
          "vkEnumerateInstanceExtensionProperties");
    std::vector<VkExtensionProperties> extensions(count);
    check(vk.vkEnumerateInstanceExtensionProperties(nullptr, &count, extensions.data()),
          "vkEnumerateInstanceExtensionProperties");
    for (const VkExtensionProperties& extension : extensions) {
        if (std::strcmp(extension.extensionName, name) == 0) {
            return true;
        }
    }
    return false;
}

std::unique_ptr<const Instance> create_instance() {
    auto made = std::make_unique<Instance>();
    made->global = open_loader();
    uint32_t version = 0;
    check(made->global.vkEnumerateInstanceVersion(&version), "vkEnumerateInstanceVersion");
    if (version < VK_API_VERSION_1_3) {
        throw NoDevice("the Vulkan loader is " + std::to_string(VK_API_VERSION_MAJOR(version)) + "." +
                       std::to_string(VK_API_VERSION_MINOR(version)) + ", dmlvk needs 1.3");
    }

    VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.pApplicationName = "dmlvk";
    application.pEngineName = "Kompute";
    application.apiVersion = VK_API_VERSION_1_3;
    VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    info.pApplicationInfo = &application;
    std::vector<const char*> layers;
    std::vector<const char*> extensions;

    if (has_extension(made->global, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
        extensions.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
        info.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }

    const bool validation = validation_requested();
    const VkValidationFeatureEnableEXT checks[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
    features.enabledValidationFeatureCount = 1;
    features.pEnabledValidationFeatures = checks;
    VkDebugUtilsMessengerCreateInfoEXT messenger{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
    messenger.messageSeverity =
        VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT |
                            VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                            VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
    messenger.pfnUserCallback = on_message;
    if (validation) {
        if (!has_layer(made->global)) {
            throw NoDevice(std::string("DMLVK_VALIDATION=1 asks for ") + kValidationLayer + ", which is not installed");
        }
        layers.push_back(kValidationLayer);
        // Both extensions come with the layer itself.
        extensions.push_back(VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME);
        extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
        info.pNext = &features;
    }
    info.enabledLayerCount = static_cast<uint32_t>(layers.size());
    info.ppEnabledLayerNames = layers.data();
    info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();

    const VkResult result = made->global.vkCreateInstance(&info, nullptr, &made->handle);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
        throw NoDevice("vkCreateInstance: no Vulkan driver is installed, or VK_DRIVER_FILES names none that is; "
                       "Debian has one for the processor, mesa-vulkan-drivers");
    }
    check(result, "vkCreateInstance");
    try {
        made->vk = load_instance(made->global, made->handle);
        if (validation) {
            VkDebugUtilsMessengerEXT listener = VK_NULL_HANDLE;
            check(made->vk.vkCreateDebugUtilsMessengerEXT(made->handle, &messenger, nullptr, &listener),
                  "vkCreateDebugUtilsMessengerEXT");
        }
    } catch (...) {
        const auto destroy = reinterpret_cast<PFN_vkDestroyInstance>(
            made->global.vkGetInstanceProcAddr(made->handle, "vkDestroyInstance"));
        if (destroy != nullptr) {
            destroy(made->handle, nullptr);
        }
        throw;
    }
    return made;
}

}  // namespace

const Instance& instance() {
    // Lives until the process ends: drivers and layers run exit handlers of their own, and destroying an instance after
    // those is a crash in most of them. A function-local static also retries after an exception.
    static const Instance* single = create_instance().release();
    return *single;
}

std::vector<std::string> validation_messages(bool clear) {
    MessageLog& log = message_log();
    std::lock_guard<std::mutex> lock(log.mutex);
    std::vector<std::string> copy = log.messages;
    if (clear) {
        log.messages.clear();
    }
    return copy;
}

}  // namespace dmlvk
