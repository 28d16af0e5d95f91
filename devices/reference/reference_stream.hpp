#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "devices/reference/loop_stream.hpp"

namespace troupe::reference {

/// A queue of pieces and a thread that runs them. The destructor first runs the pieces that are queued.
class ReferenceStream final : public LoopStream {
 public:
  ReferenceStream(AddressSpace& space, std::chrono::milliseconds wait_deadline);
  ~ReferenceStream();
  ReferenceStream(const ReferenceStream&) = delete;
  ReferenceStream& operator=(const ReferenceStream&) = delete;

  void wait(Point point) override;
  Point mark() override;

 private:
  void push(Piece piece) override;
  std::byte* address(const Memory& memory) const override;
  void work();

  const std::chrono::milliseconds wait_deadline_;
  const PrivateTimeline own_line_;
  Timeline& line_;
  std::uint64_t marks_ = 0;
  std::mutex mutex_;  // guards queue_ and stop_
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace troupe::reference
