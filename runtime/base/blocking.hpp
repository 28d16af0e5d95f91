#pragma once

namespace troupe {

/// The permission to block. A function that can block takes a `Blocking&`, so an actor's handler, which has none,
/// cannot call it. Only main, tests, lane threads, a device's stream thread and the threads of docs/threads.md that are
/// said to block make one.
class Blocking {
 public:
  /// Names the program's thread that may block; the name appears in messages about waits that pass their deadline.
  static Blocking on_thread(const char* name) noexcept { return Blocking{name}; }
  const char* thread() const noexcept { return thread_; }

 private:
  explicit Blocking(const char* name) noexcept : thread_(name) {}
  const char* thread_;
};

}  // namespace troupe
