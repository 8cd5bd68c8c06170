#include "pipeline_cache.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

namespace dmlvk {
namespace {

// The file is this header, then the driver's bytes. Drivers check their own header but trust what follows it, so a
// truncated or damaged file has to be found here.
struct FileHeader {
    char magic[8];
    uint64_t size;
    uint64_t checksum;
};
constexpr int kMostTries = 8;
constexpr char kMagic[8] = {'d', 'm', 'l', 'v', 'k', 'p', 'c', '2'};

/// Is removed when this goes, if it is still there then.
struct UnfinishedFile {
    ~UnfinishedFile() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
    const std::filesystem::path path;
};

/// FNV-1a of 64 bits over eight bytes at a time, because a start waits for it. The last bytes are filled up with zeros.
uint64_t checksum(const std::string& bytes) {
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
        hash = (hash ^ word) * 0x100000001b3U;
        hash ^= hash >> 32;
    }
    return hash;
}

bool made_by(const PhysicalDevice& physical, const std::string& bytes) {
    VkPipelineCacheHeaderVersionOne header;
    if (bytes.size() < sizeof header) {
        return false;
    }
    std::memcpy(&header, bytes.data(), sizeof header);
    return header.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE && header.vendorID == physical.vendor_id &&
           header.deviceID == physical.device_id &&
           std::memcmp(header.pipelineCacheUUID, physical.pipeline_cache_uuid, VK_UUID_SIZE) == 0;
}

std::string read_cache(const std::string& path, const PhysicalDevice& physical) {
    const std::filesystem::path where = std::filesystem::u8path(path);  // A plain string is no UTF-8 on Windows.
    std::ifstream file(where, std::ios::binary);
    FileHeader header;
    if (path.empty() || !file.read(reinterpret_cast<char*>(&header), sizeof header) ||
        std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
        return "";
    }
    std::error_code error;
    const uintmax_t length = std::filesystem::file_size(where, error);
    if (error || length - sizeof header != header.size) {
        return "";
    }
    std::string bytes(static_cast<size_t>(header.size), '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const bool intact = file && checksum(bytes) == header.checksum;
    return intact && made_by(physical, bytes) ? bytes : "";
}

}  // namespace

PipelineCache::PipelineCache(LogicalDevice& device, std::string path) : device_(device), path_(std::move(path)) {
    const std::string bytes = read_cache(path_, device.physical);
    VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    info.initialDataSize = bytes.size();
    info.pInitialData = bytes.data();
    device_.check(device_.vk.vkCreatePipelineCache(device_.handle, &info, nullptr, &handle), "vkCreatePipelineCache");
    saved_bytes_ = bytes.size();
}

PipelineCache::~PipelineCache() {
    device_.vk.vkDestroyPipelineCache(device_.handle, handle, nullptr);
}

void PipelineCache::save() {
    if (path_.empty()) {
        return;
    }
    device_.require_alive();
    std::string bytes;
    VkResult result = VK_INCOMPLETE;
    // Another thread may add a pipeline between the two calls; then the second one says so.
    for (int tries = 0; result == VK_INCOMPLETE; tries++) {
        if (tries == kMostTries) {
            return;  // There are new ones all the time: they are saved another time.
        }
        size_t size = 0;
        device_.check(device_.vk.vkGetPipelineCacheData(device_.handle, handle, &size, nullptr),
                      "vkGetPipelineCacheData");
        if (size == saved_bytes_) {
            return;
        }
        bytes.resize(size);
        result = device_.vk.vkGetPipelineCacheData(device_.handle, handle, &size, bytes.data());
        device_.check(result, "vkGetPipelineCacheData");
        bytes.resize(size);
    }
    FileHeader header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.size = bytes.size();
    header.checksum = checksum(bytes);

    const std::filesystem::path finished = std::filesystem::u8path(path_);
    const UnfinishedFile unfinished{std::filesystem::path(finished) +=
                                    "." + std::to_string(std::random_device{}()) + ".tmp"};
    std::ofstream file(unfinished.path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    std::error_code error;
    if (!file) {
        error = std::error_code(errno != 0 ? errno : EIO, std::generic_category());  // C++ promises no errno
    } else {
        std::filesystem::rename(unfinished.path, finished, error);
    }
    if (error) {
        throw std::system_error(error, "pipeline cache " + path_);
    }
    saved_bytes_ = bytes.size();
}

}  // namespace dmlvk
