#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "devices/cuda/dnn_operation.hpp"
#include "devices/cuda/engine_choices.hpp"

namespace troupe::cuda {

class DnnGraph;

/// How a form is computed.
struct DnnPlan {
  std::shared_ptr<const DnnGraph> graph;
  std::unique_ptr<Descriptors> made;  // of the graph
  dnn::Descriptor plan = nullptr;
  EngineChoice choice;
  std::vector<DnnConstant> constants{};
  std::uint64_t workspace_bytes = 0;
};

/// The operations of a form for cuDNN.
class DnnGraph : public std::enable_shared_from_this<DnnGraph> {
 public:
  /// Where ok() is false, the library has no such operations.
  DnnGraph(const dnn::Library& library, dnn::Handle handle, const DnnForm& form);

  bool ok() const noexcept { return made_.ok(); }
  /// What the library proposes, the best one first.
  std::vector<EngineChoice> proposals(dnn::HeuristicsMode mode) const;
  /// Without a value: the engine cannot, or computes otherwise than is wanted: not with the same bits each time, with
  /// operands or sums of less precision, or f32 on tensor cores, which `tf32` allows.
  std::optional<DnnPlan> plan(const EngineChoice& choice, bool tf32) const;

 private:
  bool may_take(dnn::Descriptor engine, Descriptors& made, bool tf32) const;

  const dnn::Library library_;
  const dnn::Handle handle_;
  const DnnForm form_;
  Descriptors made_;
  dnn::Descriptor graph_ = nullptr;
};

/// What cuDNN is given to run a plan.
struct DnnCall {
  const DnnPlan* plan;
  DnnPlaces places;
  std::byte* workspace;  // of the plan's workspace_bytes, which no other stream uses at that time
};
dnn::Status execute(const dnn::Library& library, dnn::Handle handle, const DnnCall& call);

}  // namespace troupe::cuda
