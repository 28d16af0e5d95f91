#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/planning/cost_model.hpp"

namespace troupe::detail {

/// Looks up the figures of a prediction, and records which ones were used and which of these were not measured.
class CostLookup {
 public:
  /// `figures` outlives this object.
  explicit CostLookup(const CostFigures& figures);

  /// Operations per second of a CPU device with `threads`, while `others` threads of other ranks on its host also
  /// compute, for products with `rows` in a model with so many `weights`.
  double flops(const std::string& dtype, std::uint32_t rows, double weights, std::uint32_t threads,
               std::uint32_t others);
  /// Bytes per second that one of `cores` busy cores of a host moves in passes over `bytes` of its own.
  double copy(std::uint32_t cores, double bytes);
  /// The figures of messages within a node.
  topology::MessageFigure near(const std::string& means);
  /// The figures of messages between nodes: the slowest path.
  topology::MessageFigure far(bool one_host);
  /// Whether convolutions that gain by Winograd's algorithm are computed with it. Asked only for such a convolution.
  bool has_winograd();

  /// The figures of a GPU: of measured ones of its model the slowest in copies.
  topology::GpuFigure gpu(const GpuUse& gpu);
  /// Operations per second of a GPU for products: by a library where it has one and `by_library`, otherwise by own
  /// kernels.
  double gpu_flops(const topology::GpuFigure& gpu, const std::string& dtype, bool by_library, std::uint32_t rows,
                   double weights);
  /// Copies from one place to another one: PCI bus ids, or GpuLinkFigure::kHost. Measured ones only where the GPUs at
  /// both ends are `measured`.
  topology::GpuLinkFigure gpu_link(const std::string& from, const std::string& to, bool measured);
  /// Whether products in f32 on GPUs round their operands to TF32.
  bool uses_tf32() const noexcept { return figures_.tf32; }

  void note(const std::string& sentence) { notes_.insert(sentence); }
  /// Records a figure of a GPU that is used; each `what` once.
  void use(UsedFigure figure);
  /// Whether a figure since the last call was not measured.
  bool take_guess() noexcept { return std::exchange(guessed_, false); }
  void mark_guess() noexcept { guessed_ = true; }
  std::vector<std::string> basis() const;
  const std::vector<UsedFigure>& used() const noexcept { return used_; }

 private:
  struct ComputeSource {
    const topology::Measurements* of;
    std::string dtype;
  };
  ComputeSource compute_source(const std::string& dtype);
  const topology::Measurements& assume(const std::string& what);

  /// The first figure of each path between GPUs, by its ends: a node of n GPUs has n (n - 1).
  using GpuLinks = std::map<std::pair<std::string_view, std::string_view>, const topology::GpuLinkFigure*>;
  static GpuLinks gpu_links_in(const topology::Measurements& of);

  const CostFigures& figures_;
  const GpuLinks measured_links_;
  const GpuLinks assumed_links_;
  std::set<std::string> notes_;
  std::vector<UsedFigure> used_;
  bool guessed_ = false;
};

}  // namespace troupe::detail
