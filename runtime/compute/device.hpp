#pragma once

// The room compute: what a device must be able to do: Device and Replica (device.hpp), Stream (stream.hpp), programs
// that are replayed, and the arithmetic of optimizers as values (rules/). devices/ implements it. It does not know
// other ranks: what is exchanged, and when, is the next room's.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compute/rank_gather.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// Told in the middle of a step which buckets it works on. May enqueue more on `stream`; must not throw: what goes
/// wrong shows on the stream, or when the step is committed.
class BucketSink {
 public:
  /// Called once a step for each bucket, before the first work is enqueued that reads the bucket's weights or writes
  /// its gradients: `stream` goes on when both are free, so the later the call comes the more is done meanwhile.
  virtual void acquire(const Bucket& /*bucket*/, Stream& /*stream*/) noexcept {}
  /// The gradients of `bucket` are written, and this step's remaining work no longer reads its weights, once `stream`
  /// has come this far.
  virtual void ready(const Bucket& bucket, Stream& stream) noexcept = 0;

 protected:
  ~BucketSink() = default;
};

/// One copy of a model on a device. It knows no policy: it turns batches into gradients. Threads: one caller at a time.
class Replica {
 public:
  virtual ~Replica() = default;
  /// Enqueues forward and backward over the first `rows` rows of `batch`, 0 to the BatchLayout's, as a batch with no
  /// more rows would be; what lies behind them is not read. Gradients are sums over the samples, not means; they
  /// overwrite the ones before, with zeros when there are no rows. Loss, correct and samples are written to the
  /// StepSums at `sums` before the first bucket is ready; its other fields are left alone. Each bucket is acquired
  /// before it is used; buckets become ready in the order of their index. A number of rows that is new may cost the
  /// stream some milliseconds; this call takes no longer for it.
  virtual void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) = 0;
  /// Enqueues a forward pass over the first `rows` rows that adds loss, correct and samples to the StepSums at `sums`.
  virtual void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) = 0;
};

/// What a replica reads and writes; all live longer than the replica.
struct ReplicaMemory {
  Memory parameters;  // [layout] f32, read
  Memory bf16;        // [layout] bf16, read instead of the parameters' weights when the graph is bf16; else empty
  Memory gradients;   // [layout] f32, written
  /// For the layers that need numbers of all ranks in a step; each rank's replica calls it in each step, also in one
  /// without rows, and in no evaluation. Null: the rank is alone.
  RankGather* gather = nullptr;
};

struct DeviceTraits {
  std::string kind;         // cpu, reference, fake, cuda
  std::string description;  // for people: the instruction set, the library and its version, the cores
  std::uint32_t cores = 0;
  bool bf16 = false;  // computes bf16 with its own instructions, not by conversion
  /// Where its replicas work best on parameters, gradients and the optimizer's state. They take all memory of the host,
  /// too, that is mapped into the device's address space.
  MemoryKind memory = MemoryKind::host;
};

/// What another process of the node needs to import memory: plain data, whose meaning is the device's.
struct RegionTicket {
  std::array<std::byte, 120> bytes{};
  MemoryKind kind = MemoryKind::host;
  std::array<std::uint8_t, 7> reserved{};
};
static_assert(sizeof(RegionTicket) == 128);

/// One accelerator or set of cores. Streams, replicas and the memory that it gave do not outlive it.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceTraits& traits() const = 0;
  /// So many zero bytes, whose arena is `id`, in the device's address space from here on. Its streams and replicas
  /// reach them, and so do those of devices that import them. Host and pinned memory the host reads, too; of device
  /// memory only a stream's copies bring anything to the host. Throws Error{out_of_memory} with the limit that was met,
  /// Error{unsupported} for a kind that it has not. Threads: one caller at a time, as ticket and import.
  virtual Memory allocate(ArenaId id, MemoryKind kind, std::uint64_t size_bytes) = 0;
  /// Of memory that this device allocated. Throws Error{invalid} for an id of others.
  virtual RegionTicket ticket(ArenaId id) const = 0;
  /// Makes memory that another process's device of the same kind has allocated reachable for this one, under the same
  /// id: all of it, as long as that process lives. Throws Error{environment} when it cannot be reached, Error{corrupt}
  /// when it is not what the ticket says.
  virtual Memory import(const RegionTicket& ticket) = 0;
  virtual std::unique_ptr<Stream> stream() = 0;
  /// Builds everything a step needs, once. Throws Error{unsupported} naming the layer the device cannot do.
  virtual std::unique_ptr<Replica> compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                           const std::vector<Bucket>& buckets, const ReplicaMemory& memory) = 0;
};

}  // namespace troupe
