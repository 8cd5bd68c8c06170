// dmlvk's Kompute operations: what a kp::Sequence records for a command list. Each keeps what its commands use, but for the
// buffers of a descriptor set, which the list keeps.
#pragma once

#include <memory>
#include <string>

#include <kompute/operations/OpBase.hpp>

#include "barriers.h"
#include "kernel.h"
#include "memory.h"

namespace dmlvk {

/// Kompute's hooks around a submit are for staging copies, which dmlvk leaves to its own ring.
class Operation : public kp::OpBase {
  public:
    explicit Operation(const DeviceTable& vk) : vk_(vk) {}
    void preEval(const vk::CommandBuffer&) final {}
    void postEval(const vk::CommandBuffer&) final {}

  protected:
    const DeviceTable& vk_;
};

class WorkBarrierOperation final : public Operation {
  public:
    using Operation::Operation;
    void record(const vk::CommandBuffer& commands) override { record_work_barrier(vk_, commands); }
};

class StorageBarrierOperation final : public Operation {
  public:
    using Operation::Operation;
    void record(const vk::CommandBuffer& commands) override { record_storage_barrier(vk_, commands); }
};

class DispatchOperation final : public Operation {
  public:
    /// `set` holds the kernel's bindings; VK_NULL_HANDLE for a kernel without any. `last` is the list's dispatch before this one, if
    /// any: what it has bound is not bound again.
    DispatchOperation(const DeviceTable& vk, std::shared_ptr<Kernel> kernel, VkDescriptorSet set, std::string push,
                      const std::array<uint32_t, 3>& grid, const DispatchOperation* last)
        : Operation(vk),
          kernel_(std::move(kernel)),
          set_(set),
          push_(std::move(push)),
          grid_(grid),
          has_pipeline_(last != nullptr && last->kernel_ == kernel_),
          has_set_(has_pipeline_ && last->set_ == set_),
          has_push_(has_pipeline_ && last->push_ == push_) {}

    void record(const vk::CommandBuffer& commands) override {
        const VkCommandBuffer target = commands;
        if (!has_pipeline_) {
            vk_.vkCmdBindPipeline(target, VK_PIPELINE_BIND_POINT_COMPUTE, kernel_->pipeline);
        }
        if (set_ != VK_NULL_HANDLE && !has_set_) {
            vk_.vkCmdBindDescriptorSets(target, VK_PIPELINE_BIND_POINT_COMPUTE, kernel_->layout, 0, 1, &set_, 0,
                                        nullptr);
        }
        if (!push_.empty() && !has_push_) {
            vk_.vkCmdPushConstants(target, kernel_->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                   static_cast<uint32_t>(push_.size()), push_.data());
        }
        vk_.vkCmdDispatch(target, grid_[0], grid_[1], grid_[2]);
    }

  private:
    std::shared_ptr<Kernel> kernel_;
    VkDescriptorSet set_;
    std::string push_;
    std::array<uint32_t, 3> grid_;
    const bool has_pipeline_, has_set_, has_push_;
};

class CopyOperation final : public Operation {
  public:
    CopyOperation(const DeviceTable& vk, std::shared_ptr<DeviceBuffer> source, std::shared_ptr<DeviceBuffer> target,
                  const VkBufferCopy& region)
        : Operation(vk), source_(std::move(source)), target_(std::move(target)), region_(region) {}
    void record(const vk::CommandBuffer& commands) override {
        vk_.vkCmdCopyBuffer(commands, source_->handle, target_->handle, 1, &region_);
    }

  private:
    std::shared_ptr<DeviceBuffer> source_;
    std::shared_ptr<DeviceBuffer> target_;
    VkBufferCopy region_;
};

class FillOperation final : public Operation {
  public:
    FillOperation(const DeviceTable& vk, std::shared_ptr<DeviceBuffer> target, uint64_t offset, uint64_t bytes,
                  uint32_t word)
        : Operation(vk), target_(std::move(target)), offset_(offset), bytes_(bytes), word_(word) {}
    void record(const vk::CommandBuffer& commands) override {
        vk_.vkCmdFillBuffer(commands, target_->handle, offset_, bytes_, word_);
    }

  private:
    std::shared_ptr<DeviceBuffer> target_;
    uint64_t offset_;
    uint64_t bytes_;
    uint32_t word_;
};

/// Makes a query pool's timestamps writable again. Kompute never does, so its own timestamps serve one submit only.
class ResetTimestampsOperation final : public Operation {
  public:
    ResetTimestampsOperation(const DeviceTable& vk, VkQueryPool pool, uint32_t count)
        : Operation(vk), pool_(pool), count_(count) {}
    void record(const vk::CommandBuffer& commands) override {
        vk_.vkCmdResetQueryPool(commands, pool_, 0, count_);
    }

  private:
    VkQueryPool pool_;
    uint32_t count_;
};

class TimestampOperation final : public Operation {
  public:
    TimestampOperation(const DeviceTable& vk, VkPipelineStageFlagBits stage, VkQueryPool pool, uint32_t query)
        : Operation(vk), stage_(stage), pool_(pool), query_(query) {}
    void record(const vk::CommandBuffer& commands) override {
        vk_.vkCmdWriteTimestamp(commands, stage_, pool_, query_);
    }

  private:
    VkPipelineStageFlagBits stage_;
    VkQueryPool pool_;
    uint32_t query_;
};

}  // namespace dmlvk
