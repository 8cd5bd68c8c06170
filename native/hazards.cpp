#include "hazards.h"

#include <algorithm>

namespace dmlvk {

bool RangeSet::overlaps(uint64_t begin, uint64_t end) const {
    const auto first = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                        [](uint64_t value, const Range& range) { return value < range.end; });
    return first != ranges_.end() && first->begin < end;
}

void RangeSet::add(uint64_t begin, uint64_t end) {
    // [first, last) are the ranges that touch the new one; they become one range with it.
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                        [](const Range& range, uint64_t value) { return range.end < value; });
    auto last = first;
    while (last != ranges_.end() && last->begin <= end) {
        begin = std::min(begin, last->begin);
        end = std::max(end, last->end);
        ++last;
    }
    if (first == last) {
        ranges_.insert(first, Range{begin, end});
        return;
    }
    *first = Range{begin, end};
    ranges_.erase(first + 1, last);
}

bool HazardTracker::conflicts(const std::vector<Access>& accesses) const {
    for (const Access& access : accesses) {
        const auto found = buffers_.find(access.buffer);
        if (found == buffers_.end()) {
            continue;
        }
        const Ranges& ranges = found->second;
        if (ranges.writes.overlaps(access.begin, access.end) ||
            (access.write && ranges.reads.overlaps(access.begin, access.end))) {
            return true;
        }
    }
    return false;
}

void HazardTracker::add(const std::vector<Access>& accesses) {
    for (const Access& access : accesses) {
        Ranges& ranges = buffers_[access.buffer];
        (access.write ? ranges.writes : ranges.reads).add(access.begin, access.end);
    }
}

void HazardTracker::clear() {
    // The entries stay: the next commands mostly use the same buffers, and then nothing is allocated anew.
    for (auto& [buffer, ranges] : buffers_) {
        ranges.reads.clear();
        ranges.writes.clear();
    }
}

Barrier AccessOrder::next(const std::vector<Access>& storage, const std::vector<Access>& others, bool beside_previous) {
    if (!beside_previous) {
        storage_.add(last_storage_);
        storage_since_work_.add(last_storage_);
        others_.add(last_others_);
        last_storage_.clear();
        last_others_.clear();
    }
    Barrier needed = Barrier::none;
    if (others_.conflicts(storage) || others_.conflicts(others) || storage_since_work_.conflicts(others)) {
        needed = Barrier::work;
        storage_.clear();
        storage_since_work_.clear();
        others_.clear();
    } else if (storage_.conflicts(storage)) {
        needed = Barrier::storage;
        storage_.clear();
    }
    last_storage_.insert(last_storage_.end(), storage.begin(), storage.end());
    last_others_.insert(last_others_.end(), others.begin(), others.end());
    return needed;
}

}  // namespace dmlvk
