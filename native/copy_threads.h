// Copies of host memory by several threads: one alone is slower than the bus to a device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace dmlvk {

class CopyThreads {
  public:
    CopyThreads() = default;
    ~CopyThreads();
    CopyThreads(const CopyThreads&) = delete;
    CopyThreads& operator=(const CopyThreads&) = delete;

    /// Copies as memcpy does. Up to four threads share a large copy. Callers do not wait for each other: one has the
    /// threads, the others copy by themselves.
    void copy(unsigned char* target, const unsigned char* source, uint64_t bytes);

  private:
    struct Job {
        unsigned char* target;
        const unsigned char* source;
        uint64_t bytes;
        std::atomic<uint64_t> next{0};
    };
    static void take_pieces(Job& job);
    void start();
    void serve();

    std::mutex caller_;  // Held by the caller that has the threads; taken before mutex_. Guards started_ and threads_.
    bool started_ = false;
    std::vector<std::thread> threads_;
    std::mutex mutex_;  // Guards what follows.
    std::condition_variable wake_;
    std::condition_variable done_;
    Job* job_ = nullptr;
    uint64_t count_ = 0;
    uint32_t busy_ = 0;
    bool ending_ = false;
};

}  // namespace dmlvk
