#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "devices/cpu/cpu_device.hpp"
#include "devices/cpu/kernels/kernels.hpp"
#include "devices/cpu/operations.hpp"
#include "devices/cpu/recording.hpp"
#include "devices/cpu/stream_meter.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::cpu {

/// A queue with its own thread. See make_cpu_device for its limits.
class CpuStream final : public Stream {
 public:
  CpuStream(AddressSpace& space, const CpuDeviceOptions& options);
  /// Accepts no more work, completes what is queued, joins.
  ~CpuStream();
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;
  /// Allocated as whole pages: its rings take 2 MB, which would leave holes in the heap, as streams are created and
  /// destroyed with views.
  static void* operator new(std::size_t size_bytes);
  static void operator delete(void* stream, std::size_t size_bytes) noexcept;
  /// Pins the thread to `cpus`. Throws Error{environment} if the system refuses.
  void pin(const std::vector<std::uint32_t>& cpus);

  void wait(Point point) override;
  Point mark() override;
  void signal(Point point) override;
  void copy(Memory to, Memory from) override;
  void sum_up(Memory total, std::span<const Memory> parts) override;
  void reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) override;
  void weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) override;
  void clear(Memory memory) override;
  void convert(const NumberConversion& what) override;
  void digest(Memory to, Memory of) override;
  void add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) override;
  void update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
              std::span<const Memory> contributions, Memory total) override;
  void enqueue(Programs& programs, const std::function<void()>& work) override;
  void trace(TraceRow& row) override { row_ = &row; }
  void about(const WorkLabel& label) override { label_ = label; }
  StreamTimes times() const noexcept override { return meter_.times(); }
  /// Enqueues a part of a replica's program. `bucket`: the bucket whose gradients it computes, for the trace.
  void run(const RunProgram& part, std::uint32_t bucket = WorkLabel::kNoBucket);
  AddressSpace& space() const noexcept { return space_; }

 private:
  UpdateAddresses addresses_of(const RuleStep& rule, const StripeMemory& stripe) const;
  Operands resolve(std::span<const Memory> parts, std::uint64_t size_bytes, const char* what);
  void push(const Operation& operation);
  void push_to_ring(const Operation& operation, const WorkLabel& label);
  std::span<const void*> room_for(std::size_t count, Operands& taken, const char* what);
  void push_captured();
  void work();
  void do_operation(const Operation& operation, const WorkLabel& label);
  void replay(const Replay& replay);
  bool wait_for_work();
  bool waits_next() const noexcept;
  void end(const Status& why) noexcept;
  void note(const Operation& operation, const WorkLabel& label, Clock::time_point begun) const noexcept;
  Status execute(const Operation& operation);
  Status await(const AwaitPoint& operation);
  Status wait_until(const AwaitPoint& operation, Deadline deadline);
  Status overdue(const AwaitPoint& operation) const;
  void raise(const SignalPoint& operation);

  AddressSpace& space_;
  const std::uint32_t threads_;
  const std::chrono::milliseconds wait_deadline_;
  const bool may_spin_;
  ActiveWait* const waits_;
  const Kernels& kernels_;
  const PrivateTimeline own_line_;
  Timeline& line_;
  TraceRow* row_ = nullptr;           // set before the first work
  WorkLabel label_;                   // used by the enqueuing thread
  std::uint64_t marks_ = 0;           // used by the enqueuing thread
  Capture capture_;                   // used by the enqueuing thread
  bool captures_ = false;             // used by the enqueuing thread: work is recorded, not run
  std::vector<std::uint64_t> words_;  // used by the enqueuing thread; memory that is reused
  const Operation* next_ = nullptr;   // used by the stream's thread: the operation after the present one
  bool ended_ = false;                // used by the stream's thread: it has met a failure
  bool announced_ = false;            // used by the stream's thread: waits_ knows that a wait follows
  alignas(64) std::atomic<std::uint32_t> wake_count_{0};  // counts pushes and the stop; the thread sleeps on it
  std::atomic<bool> stop_{false};
  StreamMeter meter_;
  OperationRing ring_;
  std::thread thread_;
};

}  // namespace troupe::cpu
