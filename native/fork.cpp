#include "fork.h"

#include <atomic>

#include "errors.h"

#ifndef _WIN32
#include <pthread.h>
#endif

namespace dmlvk {
namespace {

constexpr uint64_t kNever = UINT64_MAX;

std::atomic<uint64_t> fork_count{0};
std::atomic<uint64_t> opened_after{kNever};

}  // namespace

const char* const kForked = "Vulkan does not survive a fork: start processes with multiprocessing's method 'spawn'";

uint64_t forks() {
#ifndef _WIN32
    static const bool counting = [] { return pthread_atfork(nullptr, nullptr, [] { fork_count++; }) == 0; }();
    static_cast<void>(counting);
#endif
    return fork_count.load(std::memory_order_relaxed);
}

void require_no_fork() {
    const uint64_t now = forks();
    uint64_t first = kNever;
    if (!opened_after.compare_exchange_strong(first, now) && first != now) {
        throw WrongState(kForked);
    }
}

}  // namespace dmlvk
