// Whether this process is the one that opened a device: a forked child lacks the driver's threads, and would wait for them.
#pragma once

#include <cstdint>

namespace dmlvk {

/// Forks that lie between the process in which this was first called and this one.
uint64_t forks();

/// Throws WrongState in a child, made by fork, of a process that has opened a device. To be called before one is opened.
void require_no_fork();

/// What WrongState says there.
extern const char* const kForked;

}  // namespace dmlvk
