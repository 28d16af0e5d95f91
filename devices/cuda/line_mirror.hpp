#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "devices/cuda/gpu.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::cuda {

/// Words that GPUs read in the place of lines that lie in no memory of theirs: a line of this process alone. A word
/// follows its line as far as somebody has asked for a point. Threads: any.
class LineMirrors {
 public:
  LineMirrors(std::shared_ptr<const Gpu> gpu, AddressSpace& space);
  /// Signals that are still to come are dropped.
  ~LineMirrors();
  LineMirrors(const LineMirrors&) = delete;
  LineMirrors& operator=(const LineMirrors&) = delete;

  /// The word that will be at least `point.value` when the point is reached or its line is poisoned. Throws
  /// Error{out_of_memory} when there are too many lines.
  std::uint64_t* follow(Point point);
  /// A word that a GPU raises where it would signal the line; the host carries that on.
  std::uint64_t* outbox(TimelineId line);

 private:
  class Mirror;
  static constexpr std::size_t kWords = 4096;
  std::uint64_t* take_word();

  AddressSpace& space_;
  PinnedMemory words_;
  std::mutex mutex_;  // guards what follows
  std::size_t used_ = 0;
  std::unordered_map<TimelineId, std::shared_ptr<Mirror>> mirrors_;
  std::unordered_map<TimelineId, std::uint64_t*> outboxes_;
};

}  // namespace troupe::cuda
