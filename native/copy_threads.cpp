#include "copy_threads.h"

#include <algorithm>
#include <cstring>
#include <exception>

namespace dmlvk {
namespace {

constexpr uint64_t kPiece = uint64_t{256} << 10;
constexpr uint64_t kLeastShared = 4 * kPiece;
constexpr uint32_t kMostThreads = 4;

}  // namespace

CopyThreads::~CopyThreads() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

void CopyThreads::copy(unsigned char* target, const unsigned char* source, uint64_t bytes) {
    std::unique_lock<std::mutex> caller(caller_, std::defer_lock);
    if (bytes < kLeastShared || !caller.try_lock()) {
        std::memcpy(target, source, bytes);
        return;
    }
    start();
    Job job{target, source, bytes};
    {
        std::lock_guard<std::mutex> lock(mutex_);
        job_ = &job;
        count_++;
    }
    wake_.notify_all();
    take_pieces(job);
    std::unique_lock<std::mutex> lock(mutex_);
    job_ = nullptr;  // A thread that wakes only now finds nothing to do.
    done_.wait(lock, [&] { return busy_ == 0; });
}

void CopyThreads::take_pieces(Job& job) {
    for (;;) {
        const uint64_t at = job.next.fetch_add(kPiece, std::memory_order_relaxed);
        if (at >= job.bytes) {
            return;
        }
        std::memcpy(job.target + at, job.source + at, std::min(kPiece, job.bytes - at));
    }
}

/// Starts the threads at the first large copy. The caller is one of them, and half of the processors stay free.
void CopyThreads::start() {
    if (started_) {
        return;
    }
    started_ = true;
    const uint32_t wanted = std::min(kMostThreads, std::thread::hardware_concurrency() / 2);
    try {
        while (threads_.size() + 1 < wanted) {
            threads_.emplace_back([this] { serve(); });
        }
    } catch (const std::exception&) {
        // The system has no more threads, or no memory for one: those that have started share the copies.
    }
}

void CopyThreads::serve() {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        wake_.wait(lock, [&] { return ending_ || (job_ != nullptr && count_ != seen); });
        if (ending_) {
            return;
        }
        seen = count_;
        Job& job = *job_;
        busy_++;
        lock.unlock();
        take_pieces(job);
        lock.lock();
        if (--busy_ == 0) {
            done_.notify_one();
        }
    }
}

}  // namespace dmlvk
