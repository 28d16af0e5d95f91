#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/compute/stream.hpp"
#include "runtime/compute/update_pass.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::reference {

/// A queue of functions and a thread that runs them. The destructor first runs the functions that are queued.
class ReferenceStream final : public Stream {
 public:
  ReferenceStream(AddressSpace& space, std::chrono::milliseconds wait_deadline);
  ~ReferenceStream();
  ReferenceStream(const ReferenceStream&) = delete;
  ReferenceStream& operator=(const ReferenceStream&) = delete;

  void wait(Point point) override;
  Point mark() override;
  void signal(Point point) override;
  void copy(Memory to, Memory from) override;
  void sum_up(Memory total, std::span<const Memory> parts) override;
  void reduce(Memory to, std::span<const Memory> parts) override;
  void reduce_with_norm(Memory to, std::span<const Memory> parts, const NormCheck& what) override;
  void weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) override;
  void clear(Memory memory) override;
  void convert(Memory to, DType to_type, Memory from, DType from_type) override;
  void convert_with_residual(Memory to, DType to_type, Memory from, Memory residual) override;
  void add_converted(Memory to, Memory from, DType from_type) override;
  void digest(Memory to, Memory of) override;
  void add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) override;
  void update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
              std::span<const Memory> contributions, Memory total) override;
  /// Enqueues `work`; if it throws Error, the stream ends with that.
  void call(std::function<void()> work);

 private:
  UpdateAddresses addresses_of(const RuleStep& rule, const StripeMemory& stripe) const;
  template <class T>
  std::vector<const T*> resolve(std::span<const Memory> parts, std::uint64_t size_bytes) const;
  void work();

  AddressSpace& space_;
  const std::chrono::milliseconds wait_deadline_;
  const PrivateTimeline own_line_;
  Timeline& line_;
  std::uint64_t marks_ = 0;
  std::mutex mutex_;  // guards queue_ and stop_
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace troupe::reference
