#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph.hpp"
#include "runtime/stream.hpp"

namespace troupe {

/// A batch as an app sees it; valid until its step is over.
struct BatchView {
  std::uint32_t rows = 0;
  std::uint64_t features = 0;
  std::span<const float> inputs;               // [rows, features]; empty in a bf16 job
  std::span<const std::uint16_t> bf16_inputs;  // [rows, features] bf16; empty in an f32 job
  std::span<const std::int32_t> labels;        // [rows]; below 0: the row does not count
};

/// One trainable tensor of a session, row-major. The parameters are those of the last committed step and change only
/// inside of step(), exchange() and run(); the gradients are this rank's, for exchange(), and sums over samples, not
/// means. Valid as long as the session.
struct SessionTensor {
  std::string name;
  std::vector<std::uint64_t> extents;
  std::span<const float> parameters;
  std::span<float> gradients;
};

/// Arithmetic of the app's own on a batch; throws what it likes, which ends the run.
using OwnStep = std::function<StepSums(const BatchView&, const std::vector<SessionTensor>&)>;

/// A model that the app brings instead of a registered one: always f32, on host memory, computed on the thread that is
/// in run() or step(). All ranks have the same.
struct OwnModel {
  std::string name;
  /// In the order in which the session lists its tensors; the names appear in weights files. `layer` is not used.
  std::vector<Parameter> parameters;
  /// Overwrites every tensor's gradients with their sums over the batch's rows that count; returns these rows' loss (a
  /// sum too), how many were right, and how many there are. Empty: the app calls exchange() itself.
  OwnStep step;
  /// The same without gradients, over test samples. Empty: nothing is evaluated.
  OwnStep evaluate;
};

}  // namespace troupe
