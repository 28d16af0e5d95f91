#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "devices/cuda/dnn_library.hpp"
#include "devices/cuda/gpu.hpp"
#include "devices/cuda/line_mirror.hpp"
#include "devices/cuda/memory_map.hpp"
#include "devices/cuda/product_library.hpp"
#include "devices/cuda/recorded_work.hpp"
#include "devices/cuda/stream_lanes.hpp"
#include "devices/cuda/stream_watch.hpp"
#include "runtime/memory/futex_timeline.hpp"

namespace troupe::cuda {

/// The line of one stream, and what the GPU reports of it; in pinned memory, so that CPUs and GPUs read the same word.
class StreamLine {
 public:
  StreamLine(std::shared_ptr<const Gpu> gpu, AddressSpace& space, const std::atomic<std::chrono::nanoseconds>& spin);
  ~StreamLine();
  StreamLine(const StreamLine&) = delete;
  StreamLine& operator=(const StreamLine&) = delete;

  FutexTimeline& line() noexcept { return line_; }
  std::uint64_t* word() const noexcept { return memory_.as<std::uint64_t>(); }
  StreamReport& report() const noexcept { return *memory_.as<StreamReport>(sizeof(TimelineWord)); }

 private:
  AddressSpace& space_;
  const PinnedMemory memory_;
  FutexTimeline line_;
};

/// Where a GPU finds a line.
struct LinePlace {
  std::uint64_t* word = nullptr;
  Timeline* line = nullptr;
  bool carried = false;  // the host raises the line when the GPU has raised the word
};

/// Lanes on which work is recorded, of one caller at a time.
class Recorder {
 public:
  explicit Recorder(const std::shared_ptr<const Gpu>& gpu) : lanes_(gpu) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  class Use {
   public:
    explicit Use(Recorder& recorder) : recorder_(recorder), lock_(recorder.mutex_) {}
    const StreamLanes& lanes() const noexcept { return recorder_.lanes_; }

   private:
    Recorder& recorder_;
    const std::lock_guard<std::mutex> lock_;
  };

 private:
  const StreamLanes lanes_;
  std::mutex mutex_;  // guards what is recorded
};

/// The libraries that a device uses; null: kernels of ours compute this.
struct Libraries {
  std::unique_ptr<ProductLibrary> products;
  std::unique_ptr<DnnLibrary> dnn;
};

/// What the streams and replicas of a device share. All memory is allocated here and when streams and replicas are
/// made: an allocation may wait for all work of the GPU, and later some of that work waits for other ranks. Threads:
/// any.
class DeviceState {
 public:
  DeviceState(std::shared_ptr<const Gpu> gpu, AddressSpace& space, std::chrono::milliseconds wait_deadline,
              Libraries libraries);
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  const std::shared_ptr<const Gpu>& gpu() const noexcept { return gpu_; }
  AddressSpace& space() const noexcept { return space_; }
  MemoryMap& memory() noexcept { return memory_; }
  Notifier& notifier() noexcept { return notifier_; }
  const std::shared_ptr<StepBlocks>& step_blocks() const noexcept { return step_blocks_; }
  Recorder& recorder() noexcept { return recorder_; }
  StreamMemory& stream_memory() noexcept { return stream_memory_; }
  const Libraries& libraries() const noexcept { return libraries_; }
  std::chrono::milliseconds wait_deadline() const noexcept { return wait_deadline_; }
  /// A new one, which lives as long as the device: others may still look its points up when the stream has ended.
  StreamLine& make_line();
  LinePlace place_to_wait(Point point);
  LinePlace place_to_signal(TimelineId line);

 private:
  std::uint64_t* own_word(TimelineId line);

  const std::shared_ptr<const Gpu> gpu_;
  AddressSpace& space_;
  const std::chrono::milliseconds wait_deadline_;
  const Libraries libraries_;
  const std::atomic<std::chrono::nanoseconds> spin_{std::chrono::nanoseconds::zero()};
  MemoryMap memory_;
  LineMirrors mirrors_;
  const std::shared_ptr<StepBlocks> step_blocks_;
  Recorder recorder_;
  StreamMemory stream_memory_;
  std::mutex mutex_;  // guards what follows
  std::deque<StreamLine> lines_;
  std::unordered_map<TimelineId, std::uint64_t*> words_;  // of them
  Notifier notifier_;                                     // ends before the lines it looks at
};

}  // namespace troupe::cuda
