// Which byte ranges have been read and written since the last barrier, and whether a command conflicts with them.
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

}  // namespace dmlvk
