// Releases Python's lock around blocking calls, also while the interpreter ends.
#pragma once

#include <nanobind/nanobind.h>

namespace dmlvk {

/// Releases the GIL for its lifetime.
///
/// A daemon thread that takes the GIL while the interpreter ends is stopped inside that call by unwinding its stack
/// (until Python 3.14), which C++ frames answer by aborting the process. So a thread that comes back after the end has
/// begun sleeps here until the process is gone.
class WithoutGil {
  public:
    WithoutGil();
    ~WithoutGil();
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

  private:
    PyThreadState* state_;
};

/// Announces the interpreter's end to WithoutGil. To be called once, when the module is imported.
void watch_interpreter_end();

}  // namespace dmlvk
