#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devices/cpu/cpu_device.hpp"
#include "devices/cpu/program_set.hpp"
#include "runtime/compute/device.hpp"

namespace troupe::cpu {

/// A ProgramSet as a Replica: divides a step into pieces for the stream's queue.
class CpuReplica final : public Replica {
 public:
  CpuReplica(AddressSpace& space, const Graph& graph, const Layout& layout, const BatchLayout& batch,
             const std::vector<Bucket>& buckets, const ReplicaMemory& memory, const ProgramOptions& options);
  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override;
  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override;
  /// Enqueues only the matrix products of a step over `batch`.
  void products(Stream& stream, Memory batch, Memory sums);
  const std::string& description() const noexcept { return programs_.full().description(); }
  CpuReplicaMemory memory() const {
    const TensorMemory& places = programs_.full().places();
    return {places.size_bytes(), places.size_bytes_apart(), places.least_bytes()};
  }

 private:
  void gather(Stream& stream, std::uint64_t size_bytes, std::uint32_t rows);
  RunProgram resolve(Memory batch, std::uint32_t rows, Memory sums, ProgramPart part);

  AddressSpace& space_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  RankGather* const gather_;  // null: the rank is alone
  ProgramSet programs_;
};

}  // namespace troupe::cpu
