#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "devices/cpu/step_program.hpp"

namespace troupe::cpu {

/// A replica's programs, one for each number of rows that it computes. They share the memory they compute in, so only
/// one of them runs at a time.
class ProgramSet {
 public:
  /// How many programs for fewer rows than a full batch are kept: those that were used last.
  static constexpr std::size_t kKept = 8;

  /// Makes the program for all rows of `batch`. Throws Error{unsupported} naming the graph if oneDNN cannot run it.
  ProgramSet(const Graph& graph, const Layout& layout, const BatchLayout& batch, const std::vector<Bucket>& buckets,
             const ProgramMemory& memory, const ProgramOptions& options);

  /// The program for all rows of a batch. All other programs have the same pieces. Threads: any.
  const StepProgram& full() const noexcept { return full_; }
  /// The program for 1 to all rows of a batch; it is made, in some milliseconds, if it is not kept. Valid until the
  /// next call. Threads: the stream's. Throws as the constructor does.
  StepProgram& for_rows(std::uint32_t rows);

 private:
  struct Kept {
    std::uint32_t rows;
    StepProgram program;
  };
  StepProgram make(std::uint32_t rows, const StepProgram* room) const;

  const Graph graph_;
  const Layout layout_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  const ProgramMemory memory_;
  const ProgramOptions options_;
  StepProgram full_;
  std::list<Kept> with_fewer_;  // the last used one first
};

}  // namespace troupe::cpu
