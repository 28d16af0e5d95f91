#include "tests/support/cuda_host/entry.hpp"

#include <chrono>

namespace troupe::cuda::host {
namespace {

constexpr std::uintptr_t kContexts = 0xcdc000000000;  // looks like no address that there is
constexpr std::chrono::milliseconds kDraining{100};

}  // namespace

thread_local int current_device = -1;
thread_local CaptureMode interaction_mode = CaptureMode::global;

Process& process() {
  static auto& all = *std::make_unique<Process>().release();  // streams' threads use it until the process ends
  return all;
}

Context context_of(int device) noexcept {
  return reinterpret_cast<Context>(kContexts + static_cast<std::uintptr_t>(device) * 64);
}

int device_of(Context context) noexcept {
  const std::uintptr_t distance = reinterpret_cast<std::uintptr_t>(context) - kContexts;
  return distance % 64 == 0 && distance / 64 < process().devices.size() ? static_cast<int>(distance / 64) : -1;
}

Entry::Entry(const char* name, const void* caller, Needs needs) : name_(name), caller_(caller) {
  all_.words.seen_by_cpu(all_.cpu);
  refused_ = all_.calls.next(all_.settings, name);
  if (refused_ != Result::success) return;
  if (needs != Needs::nothing && !all_.initialized) refused_ = Result::not_initialized;
  if (needs != Needs::context || refused_ != Result::success) return;
  if (current_device < 0 || device().retained == 0)
    refused_ = Result::invalid_context;
  else
    refuse_after_fault();
}

/// The answer of an ended context tells the CPU that what ran there has ended. Its streams' threads come to that in a
/// moment, unless one waits for other processes.
void Entry::refuse_after_fault() {
  refused_ = device().fault;
  if (refused_ == Result::success) return;
  const auto end = std::chrono::steady_clock::now() + kDraining;
  const auto is_busy = [&] {
    bool busy = false;
    all_.streams.for_each(
        [&](const StreamThread& stream) { busy = busy || (&stream.device == &device() && !stream.idle()); });
    return busy;
  };
  while (is_busy() && std::chrono::steady_clock::now() < end) wait_a_moment();
  all_.streams.for_each([&](const StreamThread& stream) {
    if (&stream.device == &device() && stream.idle()) all_.cpu.join(stream.clock);
  });
}

DeviceState& Entry::device() { return all_.devices[static_cast<std::size_t>(current_device)]; }

PlacePtr Entry::place_on(int stream, const std::string& detail) const {
  return std::make_shared<Place>(Place{detail.empty() ? name_ : detail, stream, caller_});
}

std::shared_ptr<StreamThread> Entry::stream(StreamHandle handle) {
  std::shared_ptr<StreamThread> found;
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2)
    reports().add("default stream", place()->text() + " uses the stream that waits for all others");
  else
    found = all_.streams.find(handle, place());
  if (found == nullptr) refused_ = Result::invalid_handle;
  return found;
}

Result Entry::report_endless_wait() {
  std::string text = place()->text() + " waits in vain";
  all_.streams.for_each([&](const StreamThread& stream) {
    if (stream.busy) text += "; stream " + std::to_string(stream.number) + " has come to " + stream.current->text();
  });
  reports().add("endless wait", text);
  return Result::launch_timeout;
}

Result Entry::outside_capture() {
  for (const auto& capture : all_.captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbids = own ? capture->mode != CaptureMode::relaxed && interaction_mode != CaptureMode::relaxed
                             : capture->mode == CaptureMode::global && interaction_mode == CaptureMode::global;
    if (forbids) return invalidate(*capture, place(), "is called", Result::stream_capture_unsupported);
  }
  return Result::success;
}

Result Entry::not_capturing(StreamThread& stream) {
  if (stream.capture == nullptr) return outside_capture();
  return invalidate(*stream.capture, place_on(stream.number), "is called", Result::stream_capture_unsupported);
}

}  // namespace troupe::cuda::host
