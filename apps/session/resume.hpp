#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "actors/checkpointer_actor.hpp"
#include "actors/device_actor.hpp"
#include "apps/session/checkpoint_start.hpp"
#include "apps/session/joined_job.hpp"
#include "apps/session/rank_memory.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// Throws Error{invalid} if the checkpoint has another model, size of data, rule or order of samples, with the
/// difference and the setting to change; throws Error{corrupt}.
void check_fits(const CheckpointStart& start, const JoinedJob& job);

/// The checkpoint from which a job resumes, at one rank.
class Resumed {
 public:
  /// Throws as check_fits.
  Resumed(const CheckpointStart& start, const JoinedJob& job);

  const CheckpointManifest& manifest() const noexcept { return reader_.manifest(); }
  /// Fills all parameters.
  void load_parameters(const JoinedJob& job, std::span<float> parameters);
  /// Fills the optimizer's state, of the stripe or whole. Fills outer momentum and compression's residuals of a group
  /// only if its next step has the same policy as the step before the checkpoint: a switch of policy begins them at
  /// zero.
  void load_state(const JoinedJob& job, HostCopies& copies, const RankMemory& memory);
  /// How many updates the group's rule has made. If its parameters come from several groups: the largest number of
  /// these.
  std::uint64_t updates_of(const GroupPlan& group) const;
  /// How many steps the group has taken under the policy of its next step; nothing: the checkpoint does not say.
  std::optional<std::uint64_t> policy_steps_of(const JoinedJob& job, const GroupPlan& group) const;
  /// Of all of the group's parameters.
  bool has_average(const GroupPlan& group) const;

 private:
  void load(const JoinedJob& job, HostCopies& copies, CheckpointPart part, const Stripe& stripe, const Memory& to);
  void load_residual(const JoinedJob& job, HostCopies& copies, const GroupPlan& group, const GroupMemory& memory);
  bool follows(std::string_view tensor, PolicyKind next) const;
  PolicyKind next_policy(const JoinedJob& job, const GroupPlan& group) const;
  void load_group(const JoinedJob& job, HostCopies& copies, const GroupPlan& group, const GroupMemory& memory);

  CheckpointReader reader_;
};

/// The parts of a rank's stripes that a checkpoint contains: for each tensor that is in a stripe, wholly or partly, the
/// weights and every state, and for each range that it sends compressed, the residual. The pieces follow each
/// other in the snapshot without the layout's gaps, as in the file.
std::vector<SnapshotPiece> pieces_of(const JoinedJob& job, const RankMemory& memory);
/// The copies that make such a snapshot; adjacent pieces that remain adjacent are one copy.
std::vector<SnapshotPart> copies_of(std::span<const SnapshotPiece> pieces);

}  // namespace troupe
