#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "devices/cpu/step_program.hpp"
#include "runtime/device.hpp"

namespace troupe::cpu {

/// A StepProgram as a Replica: cuts a step into pieces for the stream's queue.
class CpuReplica final : public Replica {
 public:
  CpuReplica(AddressSpace& space, const Graph& graph, const Layout& layout, const BatchLayout& batch,
             const std::vector<Bucket>& buckets, const ReplicaMemory& memory, std::uint32_t threads);
  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override;
  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override;
  /// Enqueues the matrix products of a step over `batch` and nothing else.
  void products(Stream& stream, Memory batch, Memory sums);
  const std::string& description() const noexcept { return full_.description(); }

 private:
  RunProgram resolve(StepProgram& program, Memory batch, std::uint32_t rows, Memory sums, ProgramPart part);
  StepProgram make_program(std::uint32_t rows, const StepProgram* room);
  /// The program for so many rows, 1 to batch_.rows; made when it is asked for the first time.
  StepProgram& program_for(std::uint32_t rows);

  AddressSpace& space_;
  const Graph graph_;
  const Layout layout_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  const ProgramMemory memory_;
  const std::uint32_t threads_;
  StepProgram full_;                                 // of all the rows that a batch has room for
  std::map<std::uint32_t, StepProgram> with_fewer_;  // by rows; entries stay, the stream refers to them
};

}  // namespace troupe::cpu
