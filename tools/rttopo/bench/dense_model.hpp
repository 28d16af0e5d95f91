#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/compute/program.hpp"
#include "runtime/compute/stream.hpp"
#include "tools/rttopo/bench/measures.hpp"

namespace troupe::rttopo {

/// Layers of a model, each with as many inputs as outputs.
struct DenseLayers {
  std::uint32_t layers = 0;
  std::uint32_t units = 0;
};
Graph dense_graph(const DenseLayers& model, DType dtype);

/// A device with an address space of its own, and memory on it, which lives as long as the device.
class MeasuredDevice {
 public:
  using Make = std::function<std::unique_ptr<Device>(AddressSpace&)>;
  explicit MeasuredDevice(const Make& make) : device_(make(space_)) {}

  Device& device() noexcept { return *device_; }
  ArenaId next_arena() noexcept { return arena_id(Peer{self_}, ++arenas_); }
  /// In processes that import each other's memory, each has another number.
  void be(std::uint32_t self) noexcept { self_ = self; }
  Memory take(std::uint64_t size_bytes) { return take(size_bytes, device_->traits().memory); }
  Memory take(std::uint64_t size_bytes, MemoryKind kind) { return device_->allocate(next_arena(), kind, size_bytes); }
  /// `fill` writes the whole content of `to`.
  void write(const Memory& to, const std::function<void(std::span<std::byte>)>& fill);
  /// Throws the Error with which the point's stream ended.
  void wait(Blocking& blocking, Point point);

 private:
  std::uint32_t self_ = 0, arenas_ = 0;
  AddressSpace space_;
  std::unique_ptr<Device> device_;
};

/// A model of dense layers on a device, in a job of one rank.
class DenseModel {
 public:
  /// `records`: its steps are recorded programs, as a job's are. The device outlives the model.
  DenseModel(MeasuredDevice& on, const Graph& graph, std::uint32_t rows, bool records);

  Point enqueue();
  void wait(Blocking& blocking, Point point) { on_.wait(blocking, point); }

 private:
  struct NoExchange final : BucketSink {
    void ready(const Bucket&, Stream&) noexcept override {}
  };
  void fill_weights(const Graph& graph, const ReplicaMemory& memory);
  void fill_batch();

  MeasuredDevice& on_;
  const Layout layout_;
  const BatchLayout batch_layout_;
  const std::uint32_t rows_;
  const bool records_;
  Memory batch_, sums_;
  NoExchange nobody_;
  std::unique_ptr<Replica> replica_;
  Programs programs_;
  std::unique_ptr<Stream> stream_;
};

/// The rate at which each model computes steps of `flops` operations, all at the same time, with at most three steps of
/// each in progress.
topology::Repeats rate_of(const Measuring& how, std::span<const std::unique_ptr<DenseModel>> models, double flops);

}  // namespace troupe::rttopo
