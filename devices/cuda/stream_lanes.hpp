#pragma once

#include <cstdint>
#include <memory>

#include "devices/cuda/gpu.hpp"

namespace troupe::cuda {

/// A stream's queues. What is enqueued beside or aside runs at the same time as what is enqueued on the main lane,
/// within what forks and joins order. Beside: the exchange. Aside: what a replica's layer need not wait for.
enum class Lane : std::uint8_t { main, beside, aside };
inline constexpr std::size_t kLanes =
    2;  // that note times and have scratch for squares: not aside, where only libraries compute

/// A stream of the driver. Whoever ends it knows that its work is done.
class DriverStream {
 public:
  /// `priority`: smaller numbers come first; the driver limits them to what the GPU has.
  DriverStream(std::shared_ptr<const Gpu> gpu, int priority);
  ~DriverStream();
  DriverStream(const DriverStream&) = delete;
  DriverStream& operator=(const DriverStream&) = delete;
  StreamHandle handle() const noexcept { return handle_; }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  StreamHandle handle_ = nullptr;
};

/// The lanes as streams of the driver. The one beside has a high priority: its work comes from, and goes to, other
/// ranks, which wait for it. Threads: one caller at a time.
class StreamLanes {
 public:
  explicit StreamLanes(const std::shared_ptr<const Gpu>& gpu);
  ~StreamLanes();
  StreamLanes(const StreamLanes&) = delete;
  StreamLanes& operator=(const StreamLanes&) = delete;

  StreamHandle of(Lane lane) const noexcept {
    return lane == Lane::main ? main_.handle() : lane == Lane::beside ? beside_.handle() : aside_.handle();
  }
  // Both also within a capture that the main lane began, where they become dependencies between nodes.
  /// What is enqueued on `lane` from here on begins when the main lane's work so far is done.
  void fork(Lane lane) const { order(Lane::main, lane); }
  /// The other way round.
  void join(Lane lane) const { order(lane, Lane::main); }

 private:
  void order(Lane before, Lane after) const;

  const std::shared_ptr<const Gpu> gpu_;
  const DriverStream main_;
  const DriverStream beside_;
  const DriverStream aside_;
  EventHandle border_ = nullptr;
};

}  // namespace troupe::cuda
