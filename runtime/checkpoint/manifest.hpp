#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/compute/rules/loss_scale.hpp"

namespace troupe {

/// What a piece of a checkpoint holds of its tensor: the weights, one of the optimizer's states, the momentum of the
/// policy's outer update, what compression took away of what a rank sent, or the moving average of the weights.
enum class CheckpointPart : std::uint8_t { parameters, state0, state1, outer, residual, average };
std::string_view name_of(CheckpointPart part) noexcept;

/// Elements [first, first + count) of one tensor, stored as a tensor of a file: with the tensor's name and shape if it
/// is whole, otherwise with the range appended to the name and one dimension.
struct CheckpointPiece {
  std::string key;  // in the file
  GroupId group;
  std::string tensor;  // layer.weight
  CheckpointPart part = CheckpointPart::parameters;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint32_t sender = 0;  // of a residual: index of its rank among those that send the same elements
  std::uint64_t hash = 0;    // xxh3 of its bytes
  friend bool operator==(const CheckpointPiece&, const CheckpointPiece&) = default;
};

/// One file of a checkpoint, written by one rank.
struct CheckpointFile {
  std::string name;  // in the checkpoint's folder
  std::uint64_t size_bytes = 0;
  std::uint64_t header_hash = 0;  // xxh3 of the safetensors header
  std::vector<CheckpointPiece> pieces;
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

/// Sums over the samples of the present epoch so far, so that the epoch's line will be complete.
struct EpochSoFar {
  double loss = 0;  // sum over the samples
  std::uint64_t correct = 0;
  std::uint64_t samples = 0;
  friend bool operator==(const EpochSoFar&, const EpochSoFar&) = default;
};

/// Parameters that are updated in the same way.
struct CheckpointGroup {
  std::string name = "default";
  std::string rule;                           // name_of(RuleKind)
  std::string policy;                         // name_of(PolicyKind) of the last step; empty: not known
  std::optional<std::uint64_t> policy_steps;  // PolicyProgress::steps
  std::uint64_t updates = 0;                  // number of updates by the rule since its state was zero
  std::vector<std::string> parameters;        // empty for the first group, which has all remaining parameters
  friend bool operator==(const CheckpointGroup&, const CheckpointGroup&) = default;
};

/// The content of a checkpoint: the state of a training job after `steps` steps, independent of the ranks it ran on.
struct CheckpointManifest {
  std::uint64_t steps = 0;    // committed
  std::uint64_t samples = 0;  // taken from the global order by these steps: the next step starts there
  std::uint64_t seed = 0;     // of the order and of the initial weights
  std::string model;          // Graph::to_string()
  std::vector<CheckpointGroup> groups = std::vector<CheckpointGroup>(1);  // at least one
  std::string plan;                   // Plan::to_string() of the job that wrote it, for people
  std::vector<std::string> settings;  // "key = value  # origin", for people
  std::uint32_t roll_backs = 0;       // how often the run had returned to a checkpoint
  std::string run;                    // the job that wrote it, which removes old checkpoints of its own only
  std::string first_run;              // the run that began at step 0, if `run` continued one of its checkpoints
  EpochSoFar epoch;
  std::optional<LossScale> loss_scale;  // of jobs that scale the loss
  /// The same for all runs that continued from one another's checkpoints.
  const std::string& lineage() const noexcept { return first_run.empty() ? run : first_run; }
  std::map<std::string, std::vector<std::uint64_t>> shapes;  // of every tensor, row-major
  std::optional<double> test_accuracy;                       // of these weights, when they were evaluated
  std::vector<CheckpointFile> files;
  /// Whether it contains the momentum of the outer update of a parameter.
  bool has_outer(std::string_view tensor) const noexcept;
  /// Whether it has the moving average of a parameter.
  bool has_average(std::string_view tensor) const noexcept;
  /// How many ranks' residuals of a parameter it has.
  std::uint32_t count_residuals(std::string_view tensor) const noexcept;
  /// The group of a parameter.
  const CheckpointGroup& group_of(std::string_view tensor) const noexcept;
  friend bool operator==(const CheckpointManifest&, const CheckpointManifest&) = default;
};

/// Longer manifests are refused.
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{16} << 20;

/// A line with format, version and the xxh3 of the rest; then JSON.
std::string format_manifest(const CheckpointManifest& manifest);
/// Throws Error{corrupt}, whose text starts with `path`, if the text was changed, and Error{unsupported} for a version
/// that this build does not know.
CheckpointManifest parse_manifest(std::string_view text, const std::string& path);

/// The entry of one file by itself, as it is sent to rank 0.
std::string format_checkpoint_file(const CheckpointFile& file);
/// Throws Error{corrupt}.
CheckpointFile parse_checkpoint_file(std::string_view text);

}  // namespace troupe
