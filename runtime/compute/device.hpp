#pragma once

// The room compute: the interfaces of a device: Device and Replica (device.hpp), Stream (stream.hpp), programs that are
// replayed, and the arithmetic of optimizers as values (rules/). devices/ implements it. It knows nothing of other
// ranks: what is exchanged, and when, belongs to the room exchange.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/compute/rank_gather.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// Called in the middle of a step with the buckets that the step uses. May enqueue more on `stream`; must not throw:
/// errors appear on the stream, or when the step is committed.
class BucketSink {
 public:
  /// Called once per step for each bucket, before the first work is enqueued that reads the bucket's weights or writes
  /// its gradients. `stream` waits until both may be used; so a later call lets it do more before that.
  virtual void acquire(const Bucket& /*bucket*/, Stream& /*stream*/) noexcept {}
  /// At this position of `stream` the gradients of `bucket` are written, and this step's remaining work no longer reads
  /// the bucket's weights.
  virtual void ready(const Bucket& bucket, Stream& stream) noexcept = 0;

 protected:
  ~BucketSink() = default;
};

/// How many announced batches a replica may have in its device's memory at once, and a plan counts on.
inline constexpr std::size_t kMostAnnounced = 3;

/// A copy of a model on a device. It knows no policy: it computes gradients of batches. Threads: one caller at a time.
class Replica {
 public:
  virtual ~Replica() = default;
  /// The next step's batch, which may be read from `valid_from` on, whatever its stream still does: a replica may bring
  /// it to its device's memory meanwhile. The stream is marked behind each step whose batch was announced.
  virtual void announce(Memory /*batch*/, Point /*valid_from*/) {}
  /// Enqueues forward and backward over the first `rows` rows of `batch`, 0 to the BatchLayout's, with the same results
  /// as a batch that has only these rows; the other rows are not read. Gradients are sums over the samples, not means;
  /// they overwrite the previous ones, with zeros if there are no rows. Loss, correct and samples are written to the
  /// StepSums at `sums` before the first bucket is ready; its other fields are not changed. Each bucket is acquired
  /// before it is used; buckets become ready in the order of their index. A new number of rows may cost the stream some
  /// milliseconds, but not this call.
  virtual void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) = 0;
  /// Enqueues a forward pass over the first `rows` rows that adds loss, correct and samples to the StepSums at `sums`.
  virtual void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) = 0;
};

/// The memory that a replica reads and writes; all of it outlives the replica.
struct ReplicaMemory {
  Memory parameters;  // [layout] f32, read
  Memory half;        // [layout] half precision, bf16 or f16; a graph in such a type reads its weights here instead;
                      // otherwise empty
  Memory gradients;   // [layout] f32, written
  /// For layers that need numbers of all ranks in a step. Each rank's replica calls it in each step, also in a step
  /// without rows, but in no evaluation. Null: there is one rank.
  RankGather* gather = nullptr;
  Memory loss_scale{};  // a LossScaleState, read; of f16 graphs, otherwise empty
  /// Only work on the replica's stream reads the gradients, so a stream that has failed may still write them. False:
  /// other ranks or streams read them, too; after a failure, which ends the waits for these, they stay as they are.
  bool owns_gradients = false;
};

struct DeviceTraits {
  std::string kind;         // cpu, reference, fake, cuda
  std::string description;  // for people: the instruction set, the library and its version, the cores
  std::uint32_t cores = 0;
  bool bf16 = false;  // computes bf16 with its own instructions, not by conversion
  /// The kind of memory in which its replicas access parameters, gradients and the optimizer's state fastest. They also
  /// take any host memory that is mapped into the device's address space.
  MemoryKind memory = MemoryKind::host;
  bool f16 = false;  // computes f16 graphs, and moves a loss scale
};

/// The data with which another process of the node can import memory: plain data that only devices interpret.
struct RegionTicket {
  std::array<std::byte, 120> bytes{};
  MemoryKind kind = MemoryKind::host;
  std::array<std::uint8_t, 7> reserved{};
};
static_assert(sizeof(RegionTicket) == 128);

/// One accelerator or set of cores. It outlives its streams, its replicas and the memory that it allocated.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceTraits& traits() const = 0;
  /// Allocates `size_bytes` zero bytes with the arena id `id`, in the device's address space. Its streams and replicas
  /// can access them, and those of devices that import them. The host can also access host and pinned memory, but
  /// device memory only by a stream's copies. Throws Error{out_of_memory} with the exceeded limit, Error{unsupported}
  /// for a kind that the device does not have. Threads: one caller at a time, ticket and import included.
  virtual Memory allocate(ArenaId id, MemoryKind kind, std::uint64_t size_bytes) = 0;
  /// For memory that this device allocated. Throws Error{invalid} for any other id.
  virtual RegionTicket ticket(ArenaId id) const = 0;
  /// Makes memory that another process's device of the same kind has allocated accessible to this device, under the
  /// same id: the whole memory, as long as that process lives. Throws Error{environment} if it is not accessible,
  /// Error{corrupt} if it does not match the ticket.
  virtual Memory import(const RegionTicket& ticket) = 0;
  /// Ends the access to all memory that it imported, which nothing uses any more: a process that shares memory may free
  /// it when the others have ended theirs.
  virtual void end_imports() noexcept {}
  /// Makes memory of the host that streams and replicas will use known to the device: all of these arenas. Call it
  /// before the first work is enqueued. Otherwise that happens when the memory is first used; then it may have to wait
  /// for streams that wait for other ranks. Threads: like allocate.
  virtual void prepare(std::span<const ArenaId> /*arenas*/) {}
  virtual std::unique_ptr<Stream> stream() = 0;
  /// Builds everything that a step needs, once. Throws Error{unsupported}, which names the unsupported layer.
  virtual std::unique_ptr<Replica> compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                           const std::vector<Bucket>& buckets, const ReplicaMemory& memory) = 0;
};

}  // namespace troupe
