#include "gil.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace dmlvk {
namespace {

std::atomic<bool> ending{false};
std::thread::id ending_thread;  // Written before `ending`.
std::atomic<int> taking_the_gil{0};

/// Python calls this before it starts to take itself down. Threads that are about to take the GIL get it first; those
/// that come later see `ending`.
void on_interpreter_end() {
    ending_thread = std::this_thread::get_id();
    ending = true;
    PyThreadState* state = PyEval_SaveThread();
    while (taking_the_gil > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    PyEval_RestoreThread(state);
}

}  // namespace

WithoutGil::WithoutGil() : state_(PyEval_SaveThread()) {}

WithoutGil::~WithoutGil() {
    taking_the_gil++;
    if (ending && std::this_thread::get_id() != ending_thread) {
        taking_the_gil--;
        for (;;) {
            std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }
    PyEval_RestoreThread(state_);
    taking_the_gil--;
}

WithGil::WithGil() {
    taking_the_gil++;
    is_held_ = Py_IsInitialized() && (!ending || std::this_thread::get_id() == ending_thread);
    if (is_held_) {
        state_ = PyGILState_Ensure();
    }
    taking_the_gil--;
}

WithGil::~WithGil() {
    if (is_held_) {
        PyGILState_Release(state_);
    }
}

void watch_interpreter_end() {
    nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&on_interpreter_end));
}

}  // namespace dmlvk
