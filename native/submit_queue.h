// What the patched kp::Sequence submits through and waits on (see kompute/patch.cmake), in place of a vk::Queue and a
// fence of its own for every submit.
#pragma once

#include <cstdint>

#include "vk_compat.h"

namespace dmlvk {

class SubmitQueue {
  public:
    virtual ~SubmitQueue() = default;
    /// Submits one recorded command buffer. Returns the timeline value that the queue reaches when it has finished.
    virtual uint64_t submit(VkCommandBuffer commands) = 0;
    /// True once the timeline has reached `value`, false when `timeout` nanoseconds ran out first (UINT64_MAX: never).
    virtual bool wait(uint64_t value, uint64_t timeout) = 0;
};

}  // namespace dmlvk
