// The only file that knows Kompute: a command list is a kp::Sequence of dmlvk's operations.
#include "command_list.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include <kompute/Sequence.hpp>

#include "errors.h"
#include "hazards.h"
#include "operations.h"

VULKAN_HPP_DEFAULT_DISPATCH_LOADER_DYNAMIC_STORAGE

namespace dmlvk {
namespace {

constexpr uint32_t kSetsPerPool = 128;
constexpr uint32_t kTimedDispatchesPerPool = 256;
constexpr uint32_t kTimestampsPerPool = 16;

/// Kompute calls Vulkan through vulkan.hpp's one dispatcher for the process. It gets functions that serve every device;
/// those of one device would be wrong for the next.
void load_kompute_functions() {
    static const bool loaded = [] {
        VULKAN_HPP_DEFAULT_DISPATCHER.init(instance().global.vkGetInstanceProcAddr);
        VULKAN_HPP_DEFAULT_DISPATCHER.init(vk::Instance(instance().handle));
        return true;
    }();
    static_cast<void>(loaded);
}

/// Runs a call into Kompute; what vulkan.hpp throws there becomes the failure that the rest of dmlvk knows.
template <typename Call>
void through_kompute(LogicalDevice& device, const char* name, Call&& call) {
    try {
        call();
    } catch (const vk::SystemError& error) {
        device.check(static_cast<VkResult>(error.code().value()), name);
    }
}

[[noreturn]] void refuse(const Kernel& kernel, const std::string& reason) {
    throw std::invalid_argument("kernel " + kernel.name + ": " + reason);
}

/// `index` is the binding's number.
void require_binding(const Kernel& kernel, size_t index, const BoundRange& range, uint64_t alignment, uint64_t most) {
    const auto what = [&] {
        return index == kernel.storage_buffers ? std::string("params") : "storage buffer " + std::to_string(index);
    };
    if (range.bytes == 0 || range.offset > range.buffer->size || range.bytes > range.buffer->size - range.offset) {
        refuse(kernel, what() + ": bytes " + std::to_string(range.offset) + " + " + std::to_string(range.bytes) +
                           " are no part of a buffer of " + std::to_string(range.buffer->size));
    }
    if (range.offset % alignment != 0) {
        refuse(kernel, what() + ": offset " + std::to_string(range.offset) + " is no multiple of " +
                           std::to_string(alignment));
    }
    if (range.bytes > most) {
        refuse(kernel, what() + ": " + std::to_string(range.bytes) + " bytes exceed the device's largest range " +
                           std::to_string(most));
    }
}

void require_valid(const LogicalDevice& device, const DispatchArguments& arguments) {
    const Kernel& kernel = *arguments.kernel;
    const VkPhysicalDeviceLimits& limits = device.physical.limits;
    if (arguments.buffers.size() != kernel.storage_buffers) {
        refuse(kernel, "takes " + std::to_string(kernel.storage_buffers) + " storage buffers, got " +
                           std::to_string(arguments.buffers.size()));
    }
    if (arguments.params.has_value() != kernel.has_params) {
        refuse(kernel, kernel.has_params ? "needs params" : "takes no params");
    }
    if (arguments.push.size() != kernel.push_bytes) {
        refuse(kernel, "takes " + std::to_string(kernel.push_bytes) + " push bytes, got " +
                           std::to_string(arguments.push.size()));
    }
    if (kernel.storage_buffers < 64 && arguments.writes >> kernel.storage_buffers != 0) {
        refuse(kernel, "writes names a storage buffer that it lacks");
    }
    for (size_t i = 0; i < arguments.buffers.size(); i++) {
        require_binding(kernel, i, arguments.buffers[i], limits.minStorageBufferOffsetAlignment,
                        limits.maxStorageBufferRange);
    }
    if (arguments.params.has_value()) {
        require_binding(kernel, kernel.storage_buffers, *arguments.params, limits.minUniformBufferOffsetAlignment,
                        limits.maxUniformBufferRange);
    }
    for (size_t axis = 0; axis < 3; axis++) {
        if (arguments.grid[axis] == 0 || arguments.grid[axis] > limits.maxComputeWorkGroupCount[axis]) {
            refuse(kernel, "grid[" + std::to_string(axis) + "] " + std::to_string(arguments.grid[axis]) +
                               " is not within 1.." + std::to_string(limits.maxComputeWorkGroupCount[axis]));
        }
    }
}

/// The bytes of a range that a shader may touch: whole words of a storage buffer.
uint64_t visible_bytes(const LogicalDevice& device, const BoundRange& range, bool is_params) {
    const uint64_t most = device.physical.limits.maxStorageBufferRange;
    return is_params ? range.bytes : std::min(DeviceBuffer::whole_words(range.bytes), most);
}

/// A kernel and what it works on, params last.
using Bindings = std::pair<std::shared_ptr<Kernel>, std::vector<BoundRange>>;

/// The queue as one list's sequence sees it.
class ListQueue final : public SubmitQueue {
  public:
    explicit ListQueue(Queue& queue) : queue_(queue) {}
    uint64_t submit(VkCommandBuffer commands) override {
        return defer ? queue_.defer(commands) : queue_.submit(commands);
    }
    bool wait(uint64_t value, uint64_t timeout) override { return queue_.wait(value, timeout); }

    bool defer = false;

  private:
    Queue& queue_;
};

}  // namespace

/// What the GPU uses while the list runs, in one piece that outlives the list where it must.
struct CommandList::Recording {
    Recording(Device& device, bool timestamps);
    ~Recording();

    /// Puts a barrier first when accesses conflict with earlier ones, then notes them: those of shaders to storage
    /// buffers, and all others. A command beside the previous one does not wait for it.
    void order(const std::vector<Access>& storage, const std::vector<Access>& others, bool beside_previous = false);
    void record(std::shared_ptr<Operation> operation);
    /// Records and counts work whose end shows at a pipeline stage, between two timestamps where the list has them.
    void record_timed(std::shared_ptr<Operation> operation, VkPipelineStageFlagBits end);
    /// The set of these bindings, which the list's dispatches share; VK_NULL_HANDLE where there are none.
    VkDescriptorSet descriptor_set(Bindings bindings);
    VkDescriptorSet allocate_set(const Kernel& kernel);
    void add_timestamp_pool(std::vector<VkQueryPool>& pools, uint32_t queries);
    /// The first `count` results of the pools, in order.
    std::vector<uint64_t> ticks(const std::vector<VkQueryPool>& pools, uint32_t queries_per_pool, size_t count);
    void require_finished(const char* what);
    bool finished();
    void require_whole() const;
    void require_open(const char* what) const;

    Device& device;
    LogicalDevice& logical;
    const bool timestamps;
    std::shared_ptr<ListQueue> queue;
    std::shared_ptr<kp::Sequence> sequence;
    bool is_whole = true;  // False once recording a command has failed half-way.
    AccessOrder accesses;
    std::vector<Access> storage;  // Of the dispatch being recorded; kept, so that it allocates nothing.
    std::vector<Access> others;
    std::shared_ptr<DispatchOperation> last;
    bool closed = false;
    bool submitted = false;
    uint64_t dispatch_count = 0;
    uint64_t barrier_count = 0;

    std::map<Bindings, VkDescriptorSet> descriptor_sets;
    std::vector<VkDescriptorPool> descriptor_pools;
    uint32_t sets_left = 0;
    uint32_t storage_descriptors_left = 0;
    std::vector<VkQueryPool> query_pools;
    std::vector<VkQueryPool> marker_pools;
    uint64_t marker_count = 0;
};

/// A change to a recording. One that does not come to its end leaves the recording of no use.
class CommandList::Change {
  public:
    explicit Change(Recording& recording) : recording_(recording) { recording_.is_whole = false; }
    void done() { recording_.is_whole = true; }

  private:
    Recording& recording_;
};

CommandList::Recording::Recording(Device& device, bool timestamps)
    : device(device),
      logical(device.logical),
      timestamps(timestamps),
      queue(std::make_shared<ListQueue>(device.queue)) {
    load_kompute_functions();
    through_kompute(logical, "kp::Sequence", [&] {
        sequence = std::make_shared<kp::Sequence>(
            std::make_shared<vk::PhysicalDevice>(logical.physical.handle), std::make_shared<vk::Device>(logical.handle),
            queue, logical.physical.queue_family);
    });
    // Against everything submitted earlier, uploads included.
    record(std::make_shared<WorkBarrierOperation>(logical.vk));
}

CommandList::Recording::~Recording() {
    for (VkDescriptorPool pool : descriptor_pools) {
        logical.vk.vkDestroyDescriptorPool(logical.handle, pool, nullptr);
    }
    for (const auto* pools : {&query_pools, &marker_pools}) {
        for (VkQueryPool pool : *pools) {
            logical.vk.vkDestroyQueryPool(logical.handle, pool, nullptr);
        }
    }
}

void CommandList::Recording::order(const std::vector<Access>& storage, const std::vector<Access>& others,
                                   bool beside_previous) {
    switch (accesses.next(storage, others, beside_previous)) {
        case Barrier::none:
            return;
        case Barrier::storage:
            record(std::make_shared<StorageBarrierOperation>(logical.vk));
            break;
        case Barrier::work:
            record(std::make_shared<WorkBarrierOperation>(logical.vk));
            break;
    }
    barrier_count++;
}

void CommandList::Recording::record(std::shared_ptr<Operation> operation) {
    through_kompute(logical, "kp::Sequence::record", [&] { sequence->record(std::move(operation)); });
}

void CommandList::Recording::record_timed(std::shared_ptr<Operation> operation, VkPipelineStageFlagBits end) {
    const uint32_t query = static_cast<uint32_t>(dispatch_count % kTimedDispatchesPerPool) * 2;
    dispatch_count++;
    if (!timestamps) {
        record(std::move(operation));
        return;
    }
    if (query == 0) {
        add_timestamp_pool(query_pools, 2 * kTimedDispatchesPerPool);
    }
    const VkQueryPool pool = query_pools.back();
    record(std::make_shared<TimestampOperation>(logical.vk, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, pool, query));
    record(std::move(operation));
    record(std::make_shared<TimestampOperation>(logical.vk, end, pool, query + 1));
}

VkDescriptorSet CommandList::Recording::descriptor_set(Bindings bindings) {
    if (bindings.second.empty()) {
        return VK_NULL_HANDLE;
    }
    const auto entry = descriptor_sets.try_emplace(std::move(bindings), VK_NULL_HANDLE).first;
    VkDescriptorSet& set = entry->second;
    if (set != VK_NULL_HANDLE) {
        return set;
    }
    const auto& [kernel, bound] = entry->first;
    // All memory first: a set that is noted is written.
    std::vector<VkDescriptorBufferInfo> ranges(bound.size());
    std::vector<VkWriteDescriptorSet> writes(bound.size());
    set = allocate_set(*kernel);
    for (uint32_t i = 0; i < bound.size(); i++) {
        const bool is_params = i == kernel->storage_buffers;
        ranges[i] = {bound[i].buffer->handle, bound[i].offset, visible_bytes(logical, bound[i], is_params)};
        writes[i] = {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
        writes[i].dstSet = set;
        writes[i].dstBinding = i;
        writes[i].descriptorCount = 1;
        writes[i].descriptorType = is_params ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
        writes[i].pBufferInfo = &ranges[i];
    }
    logical.vk.vkUpdateDescriptorSets(logical.handle, static_cast<uint32_t>(writes.size()), writes.data(), 0, nullptr);
    return set;
}

VkDescriptorSet CommandList::Recording::allocate_set(const Kernel& kernel) {
    if (sets_left == 0 || storage_descriptors_left < kernel.storage_buffers) {
        const uint32_t storage = std::max(kSetsPerPool * 8, kernel.storage_buffers);
        const VkDescriptorPoolSize sizes[] = {{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, storage},
                                              {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, kSetsPerPool}};
        VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
        info.maxSets = kSetsPerPool;
        info.poolSizeCount = 2;
        info.pPoolSizes = sizes;
        descriptor_pools.reserve(descriptor_pools.size() + 1);
        VkDescriptorPool pool = VK_NULL_HANDLE;
        logical.check(logical.vk.vkCreateDescriptorPool(logical.handle, &info, nullptr, &pool),
                      "vkCreateDescriptorPool");
        descriptor_pools.push_back(pool);
        sets_left = kSetsPerPool;
        storage_descriptors_left = storage;
    }
    VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
    info.descriptorPool = descriptor_pools.back();
    info.descriptorSetCount = 1;
    info.pSetLayouts = &kernel.set_layout;
    VkDescriptorSet set = VK_NULL_HANDLE;
    logical.check(logical.vk.vkAllocateDescriptorSets(logical.handle, &info, &set), "vkAllocateDescriptorSets");
    sets_left--;
    storage_descriptors_left -= kernel.storage_buffers;
    return set;
}

void CommandList::Recording::add_timestamp_pool(std::vector<VkQueryPool>& pools, uint32_t queries) {
    VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = queries;
    pools.reserve(pools.size() + 1);
    VkQueryPool pool = VK_NULL_HANDLE;
    logical.check(logical.vk.vkCreateQueryPool(logical.handle, &info, nullptr, &pool), "vkCreateQueryPool");
    pools.push_back(pool);
    record(std::make_shared<ResetTimestampsOperation>(logical.vk, pools.back(), queries));
}

std::vector<uint64_t> CommandList::Recording::ticks(const std::vector<VkQueryPool>& pools, uint32_t queries_per_pool,
                                                    size_t count) {
    std::vector<uint64_t> found(count);
    for (size_t first = 0, pool = 0; first < count; first += queries_per_pool, pool++) {
        const auto part = static_cast<uint32_t>(std::min<size_t>(count - first, queries_per_pool));
        logical.check(logical.vk.vkGetQueryPoolResults(logical.handle, pools[pool], 0, part, part * sizeof(uint64_t),
                                                       &found[first], sizeof(uint64_t),
                                                       VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
                      "vkGetQueryPoolResults");
    }
    return found;
}

void CommandList::Recording::require_finished(const char* what) {
    logical.require_alive();
    if (!submitted || !finished()) {
        throw std::invalid_argument(std::string(what) + ": wait for a submit first");
    }
}

bool CommandList::Recording::finished() {
    return !sequence->isRunning() || device.queue.finished(sequence->submitValue());
}

void CommandList::Recording::require_whole() const {
    if (!is_whole) {
        throw WrongState(
            "recording the command list has failed half-way, so that it cannot be submitted; record another");
    }
}

void CommandList::Recording::require_open(const char* what) const {
    logical.require_alive();
    require_whole();
    if (closed) {
        throw std::invalid_argument(std::string(what) + ": the command list has been submitted and takes no commands");
    }
}

CommandList::CommandList(std::shared_ptr<Device> device, bool timestamps) : device_(std::move(device)) {
    device_->logical.require_alive();
    if (timestamps && device_->logical.physical.timestamp_bits == 0) {
        throw std::invalid_argument("command_list: the device's compute queue writes no timestamps");
    }
    device_->collect();
    recording_ = std::make_shared<Recording>(*device_, timestamps);
    device_->reserve_grave();
}

CommandList::~CommandList() {
    if (device_->logical.is_left_behind()) {
        new std::shared_ptr<Recording>(std::move(recording_));  // For good: freeing it is for the process that made it.
        return;
    }
    bool finished = false;
    try {
        finished = recording_->finished();
    } catch (const std::exception&) {
        // Nobody knows, so it may run.
    }
    if (finished) {
        device_->release_grave();
    } else {
        const uint64_t value = recording_->sequence->submitValue();
        device_->bury(std::move(recording_), value);
    }
}

void CommandList::dispatch(DispatchArguments arguments) {
    std::lock_guard<std::mutex> lock(mutex_);
    Recording& recording = *recording_;
    recording.require_open("dispatch");
    require_valid(recording.logical, arguments);

    std::vector<BoundRange>& bound = arguments.buffers;
    if (arguments.params.has_value()) {
        bound.push_back(std::move(*arguments.params));
    }
    recording.storage.clear();
    recording.others.clear();
    for (uint32_t i = 0; i < bound.size(); i++) {
        const bool is_params = i == arguments.kernel->storage_buffers;
        const bool written = !is_params && (arguments.writes >> i & 1) != 0;
        const uint64_t end = bound[i].offset + visible_bytes(recording.logical, bound[i], is_params);
        (is_params ? recording.others : recording.storage).push_back({bound[i].buffer.get(), bound[i].offset, end, written});
    }
    const VkDescriptorSet set = recording.descriptor_set({arguments.kernel, std::move(bound)});

    Change change(recording);
    recording.order(recording.storage, recording.others, arguments.beside_previous);
    const std::array<uint32_t, 3> grid = {static_cast<uint32_t>(arguments.grid[0]),
                                          static_cast<uint32_t>(arguments.grid[1]),
                                          static_cast<uint32_t>(arguments.grid[2])};
    auto operation = std::make_shared<DispatchOperation>(recording.logical.vk, std::move(arguments.kernel), set,
                                                         std::move(arguments.push), grid, recording.last.get());
    recording.last = operation;
    recording.record_timed(std::move(operation), VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT);
    change.done();
}

void CommandList::copy(const std::shared_ptr<DeviceBuffer>& source, uint64_t source_offset,
                       const std::shared_ptr<DeviceBuffer>& target, uint64_t target_offset, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    Recording& recording = *recording_;
    recording.require_open("copy");
    source->require_range(source_offset, bytes, "copy, source");
    target->require_range(target_offset, bytes, "copy, target");
    if (bytes == 0) {
        return;
    }
    if (source == target && source_offset < target_offset + bytes && target_offset < source_offset + bytes) {
        throw std::invalid_argument("copy: source and target overlap in the same buffer");
    }
    Change change(recording);
    recording.order({}, {{source.get(), source_offset, source_offset + bytes, false},
                     {target.get(), target_offset, target_offset + bytes, true}});
    recording.record_timed(std::make_shared<CopyOperation>(recording.logical.vk, source, target,
                                                           VkBufferCopy{source_offset, target_offset, bytes}),
                           VK_PIPELINE_STAGE_TRANSFER_BIT);
    change.done();
}

void CommandList::fill(const std::shared_ptr<DeviceBuffer>& target, uint64_t offset, uint64_t bytes, uint32_t word) {
    std::lock_guard<std::mutex> lock(mutex_);
    Recording& recording = *recording_;
    recording.require_open("fill");
    target->require_range(offset, bytes, "fill");
    if (offset % 4 != 0 || bytes % 4 != 0) {
        throw std::invalid_argument("fill: offset " + std::to_string(offset) + " and nbytes " + std::to_string(bytes) +
                                    " must be multiples of 4");
    }
    if (bytes == 0) {
        return;
    }
    Change change(recording);
    recording.order({}, {{target.get(), offset, offset + bytes, true}});
    recording.record(std::make_shared<FillOperation>(recording.logical.vk, target, offset, bytes, word));
    change.done();
}

bool CommandList::submit(bool defer, uint64_t timeout) {
    if (!wait(timeout)) {
        return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    Recording& recording = *recording_;
    recording.logical.require_alive();
    recording.require_whole();
    recording.closed = true;
    if (recording.sequence->isRunning()) {
        return false;  // Another thread has submitted it meanwhile.
    }
    through_kompute(recording.logical, "kp::Sequence::evalAsync", [&] {
        recording.queue->defer = defer;
        recording.sequence->evalAsync();
    });
    recording.submitted = true;
    device_->dispatches += recording.dispatch_count;
    return true;
}

bool CommandList::wait(uint64_t timeout) {
    uint64_t value = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!recording_->sequence->isRunning()) {
            return true;
        }
        value = recording_->sequence->submitValue();
    }
    // This waits without the list's mutex, so that another thread may wait too, with a timeout of its own.
    if (!device_->queue.wait(value, timeout)) {
        return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (recording_->sequence->submitValue() == value) {
        recording_->sequence->evalAwait();
    }
    return true;
}

std::vector<std::pair<double, double>> CommandList::timings() {
    device_->logical.require_here();
    std::lock_guard<std::mutex> lock(mutex_);
    Recording& recording = *recording_;
    if (!recording.timestamps) {
        throw std::invalid_argument("timings: the command list was made without timestamps=True");
    }
    recording.require_finished("timings");
    const PhysicalDevice& physical = recording.logical.physical;
    const std::vector<uint64_t> ticks =
        recording.ticks(recording.query_pools, 2 * kTimedDispatchesPerPool, 2 * recording.dispatch_count);
    const uint64_t mask =
        physical.timestamp_bits >= 64 ? UINT64_MAX : (uint64_t{1} << physical.timestamp_bits) - 1;
    std::vector<std::pair<double, double>> spans;
    for (size_t i = 0; i < ticks.size(); i += 2) {
        // The counter may wrap around between the two: the masked difference is right all the same.
        const auto start = static_cast<double>((ticks[i] - ticks[0]) & mask);
        const auto length = static_cast<double>((ticks[i + 1] - ticks[i]) & mask);
        const double period = physical.limits.timestampPeriod;
        spans.emplace_back(start * period, (start + length) * period);
    }
    return spans;
}

void CommandList::timestamp() {
    device_->logical.require_here();
    std::lock_guard<std::mutex> lock(mutex_);
    Recording& recording = *recording_;
    recording.require_open("timestamp");
    if (recording.logical.physical.timestamp_bits == 0) {
        throw std::invalid_argument("timestamp: the device's compute queue writes no timestamps");
    }
    Change change(recording);
    const auto query = static_cast<uint32_t>(recording.marker_count % kTimestampsPerPool);
    if (query == 0) {
        recording.add_timestamp_pool(recording.marker_pools, kTimestampsPerPool);
    }
    recording.record(std::make_shared<TimestampOperation>(recording.logical.vk, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                                                          recording.marker_pools.back(), query));
    recording.marker_count++;
    change.done();
}

std::vector<uint64_t> CommandList::timestamps() {
    device_->logical.require_here();
    std::lock_guard<std::mutex> lock(mutex_);
    Recording& recording = *recording_;
    recording.require_finished("timestamps");
    return recording.ticks(recording.marker_pools, kTimestampsPerPool, recording.marker_count);
}

uint64_t CommandList::dispatch_count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return recording_->dispatch_count;
}

uint64_t CommandList::barrier_count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return recording_->barrier_count;
}

}  // namespace dmlvk
