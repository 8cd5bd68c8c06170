// Releases Python's lock around blocking calls and takes it for calls from outside, also while the interpreter ends.
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

/// Takes the GIL for its lifetime, in whatever thread, which may have it already; not once the interpreter has ended, nor
/// while it ends, but for the thread that ends it.
class WithGil {
  public:
    WithGil();
    ~WithGil();
    WithGil(const WithGil&) = delete;
    WithGil& operator=(const WithGil&) = delete;

    bool is_held() const { return is_held_; }

  private:
    bool is_held_ = false;
    PyGILState_STATE state_{};
};

/// Announces the interpreter's end to WithoutGil and WithGil. To be called once, when the module is imported.
void watch_interpreter_end();

}  // namespace dmlvk
