#pragma once

#include <mutex>
#include <string>

#include "tests/support/cuda_host/graphs.hpp"

namespace troupe::cuda::host {

/// What a call needs before it may do anything.
enum class Needs { nothing, driver, context };

/// One call of an entry point: holds the mutex, counts the call, and knows what the CPU has seen by now.
class TROUPE_HOST_SHARED Entry {
 public:
  Entry(const char* name, const void* caller, Needs needs);

  /// Other than success: what the call returns at once (an error on command, no context, a context that has failed).
  Result refused() const noexcept { return refused_; }
  Process& all() noexcept { return all_; }
  /// Of the current context.
  DeviceState& device();
  PlacePtr place(const std::string& detail = {}) const { return place_on(0, detail); }
  PlacePtr place_on(int stream, const std::string& detail = {}) const;

  /// Null: a report, and refused() says what to return.
  std::shared_ptr<StreamThread> stream(StreamHandle handle);
  /// The operation as the stream's next one; what the call returns.
  Result submit(StreamThread& stream, OperationPtr operation) { return host::submit(stream, std::move(operation)); }

  /// Waits until condition() holds, without the mutex meanwhile; what has become of the device's context by then. A
  /// wait that nothing ends is a report: later than the streams' own, which tell more.
  template <class Condition>
  Result wait(DeviceState& device, Condition condition) {
    if (!all_.changed.wait_for(lock_, 2 * all_.settings.deadline, condition)) return report_endless_wait();
    return device.fault;
  }
  /// Without the mutex; for what other processes change, who wake nobody here.
  void wait_a_moment() { all_.changed.wait_for(lock_, std::chrono::microseconds{200}); }
  /// Success where this thread may make a call that does not belong in a capture; else the capture is spoilt.
  Result outside_capture();
  /// The same for one that no capture allows, whatever the thread's mode.
  Result not_capturing(StreamThread& stream);

  void unlock() { lock_.unlock(); }
  /// For what gives it up. Nothing else may be called behind that.
  std::unique_lock<std::mutex>& lock() noexcept { return lock_; }

 private:
  Result report_endless_wait();
  void refuse_after_fault();

  Process& all_ = process();
  std::unique_lock<std::mutex> lock_{all_.mutex};
  const char* const name_;
  const void* const caller_;
  Result refused_ = Result::success;
};

/// Of this thread: the device whose context is current (-1: none), and what captures forbid it.
extern thread_local int current_device;
extern thread_local CaptureMode interaction_mode;

Context context_of(int device) noexcept;
/// -1: no context of a device.
int device_of(Context context) noexcept;

}  // namespace troupe::cuda::host

// Begins an entry point: `entry` is the call.
#define TROUPE_ENTER(name, needs)                                                                            \
  ::troupe::cuda::host::Entry entry{#name, __builtin_return_address(0), ::troupe::cuda::host::Needs::needs}; \
  if (entry.refused() != ::troupe::cuda::Result::success) return entry.refused()

// Finds a stream of the call.
#define TROUPE_STREAM(name, handle)       \
  const auto name = entry.stream(handle); \
  if (name == nullptr) return entry.refused()

#define TROUPE_EXPORT extern "C" __attribute__((visibility("default")))
// For a list of entry points: the exported functions have its types.
#define TROUPE_ENTRY_DECLARE(member, symbol, Returned, ...) TROUPE_EXPORT Returned symbol(__VA_ARGS__);

namespace troupe::cuda {
TROUPE_CUDA_ENTRY_POINTS(TROUPE_ENTRY_DECLARE)
}  // namespace troupe::cuda
