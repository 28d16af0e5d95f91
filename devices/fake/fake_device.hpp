#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "devices/fake/detail/recorded_pieces.hpp"
#include "devices/fake/fake_timeline.hpp"
#include "devices/fake/simulated_memory.hpp"
#include "devices/reference/loop_stream.hpp"
#include "runtime/compute/host_memory_device.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

class FakeDevice;

struct FakeOptions {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t seed = 1;          // for the order of streams, delays and failures
  std::uint64_t fail_at = kNever;  // the piece of work with this number, counted from 0, fails with device_fault
  std::uint32_t fail_one_in = 0;   // each piece of work fails with a probability of 1 in this number; 0: none does
  std::uint32_t delay_one_in = 0;  // the chosen stream is delayed, with a probability of 1 in this number; 0: never
  bool simulated_memory =
      false;  // the device has its own memory, which the host cannot access; see SimulatedDeviceMemory
  bool computes_graph =
      false;  // its replicas compute their graph, like the reference device, instead of the fake's own model
  bool runs_itself = false;  // on a thread; otherwise tests run it, or threads that wait for one of its streams
};

/// A queue whose work is done when the device is run. Waits have no deadline, because there is no time. Work on memory
/// that the address space does not know is refused with Error{invalid} when it is enqueued.
class FakeStream final : public reference::LoopStream {
 public:
  ~FakeStream();
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  void wait(Point point) override;
  Point mark() override;
  void enqueue(Programs& programs, const std::function<void()>& work) override;

  /// Enqueues a test's own work, which is never recorded in a program. If it throws Error, the stream ends with that.
  void call(std::function<void()> work);
  /// The next update ends at that moment of its pass, as if the process were killed there: nothing later on this stream
  /// is done, signalled or poisoned.
  void die_in_update(PassMoment moment, std::uint64_t block);
  /// Number of pieces of work that are waiting.
  std::size_t count_queued() const;
  /// Why the stream ended, or ok.
  Status status() const { return line_.status(); }

 private:
  friend class FakeDevice;
  struct PassEnd {
    PassMoment moment;
    std::uint64_t block;
  };
  struct Work {
    const Timeline* awaits = nullptr;
    std::uint64_t until = 0;
    std::function<void()> run;
  };
  FakeStream(FakeDevice& device, TimelineId line);
  void push(reference::Piece piece) override;
  std::byte* address(const Memory& memory) const override;
  std::function<bool(PassMoment, std::uint64_t)> pass_probe() override;
  void push_now(Work work);
  void push_now(const reference::Piece& piece);
  void push_replay(fake::RecordedPieces& recorded);
  void end(const Status& why);
  bool may_run() const;

  FakeDevice& device_;
  FakeTimeline line_;
  // All below: guarded by the device's queue mutex.
  std::deque<Work> queue_;
  std::uint64_t marks_ = 0;
  std::uint64_t turns_to_skip_ = 0;  // number of other streams' turns until it may run again
  std::optional<PassEnd> dies_at_;
  bool ended_ = false;
  // Used by the thread that enqueues.
  std::vector<reference::Piece> captured_;
  bool captures_ = false;
  std::uint64_t calls_ = 0;
};

/// A device without hardware. Work is done one piece at a time when a test runs it (or on a thread, with runs_itself),
/// and the order of streams follows a seed as far as waits permit. Unless it computes_graph, its replicas compute a
/// model of their own: each parameter is pulled toward a target that depends on each row's bytes, so gradients depend
/// on batch and weights, and training converges. A wait for a fake stream's point runs the device. Threads: any may run
/// it, one piece of work at a time.
class FakeDevice final : public HostMemoryDevice {
 public:
  explicit FakeDevice(AddressSpace& space, FakeOptions options = {});
  ~FakeDevice() override;
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  const DeviceTraits& traits() const override { return traits_; }
  Memory allocate(ArenaId id, MemoryKind kind, std::uint64_t size_bytes) override;
  RegionTicket ticket(ArenaId id) const override;
  Memory import(const RegionTicket& ticket) override;
  std::unique_ptr<Stream> stream() override { return fake_stream(); }
  std::unique_ptr<Replica> compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                   const std::vector<Bucket>& buckets, const ReplicaMemory& memory) override;

  /// Like stream(), with the functions for tests.
  std::unique_ptr<FakeStream> fake_stream();
  /// Does one piece of work of some stream; false if no stream can continue.
  bool run_one();
  /// Runs until no stream can continue, and returns how many pieces were done.
  std::size_t run_until_idle();
  /// Number of pieces done so far, including one that failed.
  std::uint64_t count_done() const;
  /// The address of `memory` for the device's own work. Throws like AddressSpace::address.
  std::byte* address(const Memory& memory) const;
  template <class T>
  T* address_of(const Memory& memory) const {
    return reinterpret_cast<T*>(address(memory));
  }

 private:
  friend class FakeStream;
  struct Turn {
    FakeStream* stream = nullptr;
    FakeStream::Work work;
    bool fails = false;
    std::uint64_t number = 0;
  };
  std::optional<Turn> take_turn();
  FakeStream* choose();
  void keep_running();

  AddressSpace& space_;
  const FakeOptions options_;
  DeviceTraits traits_;
  std::unique_ptr<SimulatedDeviceMemory> simulated_;  // null: it works in host memory
  std::mutex running_;                                // held while a piece of work is done; taken before queues_
  mutable std::mutex queues_;                         // guards all below and the streams' queues
  std::vector<FakeStream*> streams_;
  std::uint64_t done_ = 0;
  std::uint64_t draws_ = 0;
  bool stop_ = false;
  std::condition_variable changed_;
  std::thread thread_;  // if it runs itself
};

}  // namespace troupe
