// Which byte ranges have been read and written since the last barrier, and which barrier a command needs.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "memory.h"

namespace dmlvk {

struct Access {
    const DeviceBuffer* buffer;
    uint64_t begin;
    uint64_t end;
    bool write;
};

/// Disjoint byte ranges in ascending order; adjacent ones are merged, so that a sweep over a buffer stays one range.
class RangeSet {
  public:
    bool overlaps(uint64_t begin, uint64_t end) const;
    void add(uint64_t begin, uint64_t end);
    void clear() { ranges_.clear(); }

  private:
    struct Range {
        uint64_t begin;
        uint64_t end;
    };
    std::vector<Range> ranges_;
};

class HazardTracker {
  public:
    /// True when one of the accesses reads what was written (RAW), or writes what was read (WAR) or written (WAW).
    /// Accesses of the same call never conflict with each other: they belong to one command.
    bool conflicts(const std::vector<Access>& accesses) const;
    void add(const std::vector<Access>& accesses);
    void clear();

  private:
    struct Ranges {
        RangeSet reads;
        RangeSet writes;
    };
    std::unordered_map<const DeviceBuffer*, Ranges> buffers_;
};

enum class Barrier { none, storage, work };

/// The accesses of a command list, and the barriers that they need. A barrier between dispatches that orders storage
/// buffers alone is cheaper (see barriers.h), so shaders' accesses to them are kept apart from those of copies and of
/// parameter blocks.
class AccessOrder {
  public:
    /// The barrier that a command needs. Both count as recorded from then on. A command beside the previous one does not
    /// wait for it, nor for those that this one is beside.
    Barrier next(const std::vector<Access>& storage, const std::vector<Access>& others, bool beside_previous);

  private:
    std::vector<Access> last_storage_;  // Of the last command and those beside it: not in the trackers yet.
    std::vector<Access> last_others_;
    HazardTracker storage_;             // Since the last barrier.
    HazardTracker storage_since_work_;  // Since the last barrier that orders all work.
    HazardTracker others_;              // Since the last barrier that orders all work.
};

}  // namespace dmlvk
