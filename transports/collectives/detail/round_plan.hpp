#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/direct_call.hpp"
#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/ownership.hpp"
#include "transports/collectives/detail/round_window.hpp"
#include "transports/collectives/detail/staging.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe::collectives {

inline constexpr std::uint64_t kBf16Bytes = size_bytes(DType::bf16);

StagingNeeds staging_needs(const DirectGroup& group) noexcept;

bool is_plain(const RoundShape& shape) noexcept;
/// Whether a plain operation adds up what ranks contribute.
bool reduces(const RoundShape& shape) noexcept;
/// Whether what a plain operation makes of a part goes to the ranks that do not own it; otherwise they only hear that
/// it is made, so that none goes on before all have come so far.
bool spreads(const RoundShape& shape) noexcept;
bool carries_gradients(const RoundShape& shape) noexcept;
bool carries_parameters(const RoundShape& shape) noexcept;
/// Whether contributions to the round come with the sender's sums. While gradients are measured they are being written.
bool carries_sums(const RoundShape& shape) noexcept;

/// Who owes whom what in a round, how large it is, and where it lies at this rank. All of it follows from the group,
/// which is the same at every rank, and from the round's shape; so ranks agree without a word, and a message that is
/// not what follows is a fault. It changes nothing. Threads: any.
class RoundPlan {
 public:
  /// Throws Error{invalid} when the group does not fit together, or its memory is not mapped.
  RoundPlan(AddressSpace& space, DirectGroup group);

  const DirectGroup& group() const noexcept { return group_; }
  std::uint32_t self() const noexcept { return self_; }
  std::uint32_t ranks() const noexcept { return ownership_.ranks(); }
  const Ownership& ownership() const noexcept { return ownership_; }
  const Staging& staging() const noexcept { return staging_; }
  /// What the job calls one of the group's ranks.
  Rank name(std::uint32_t rank) const { return group_.names[rank]; }
  /// "rank 3"; "peer 7" where that is none of the group's.
  std::string name_of(Peer peer) const;
  WorkLabel label_of(const RoundShape& shape) const noexcept;
  /// Where the rounds of that shape are counted.
  std::size_t channel_of(const RoundShape& shape) const noexcept;

  const Chunk& chunk_of(const RoundShape& shape) const noexcept;
  /// What of an update's round `rank` adds up and sends the result of.
  Part part_of(const RoundShape& shape, std::uint32_t rank) const;
  /// Whether `rank` tells everybody else of a result, with payload or without.
  bool has_result(const Round& round, std::uint32_t rank) const;
  /// Whether `rank` gets a contribution from everybody else: it owns something, or adds up at least the sums. Without
  /// payload it says that the sender has come so far.
  bool contributes_to(const Round& round, std::uint32_t rank) const;
  /// Whether this rank has something to compute.
  bool has_own_work(const Round& round) const { return contributes_to(round, self_); }
  /// What must have happened until the round is over.
  RoundWindow::Expected expected(const Round& round) const;
  /// Whether contributions go through the filter.
  bool is_filtered(const RoundShape& shape) const noexcept;
  /// Whether contributions leave from the staging memory.
  bool is_staged(const RoundShape& shape) const noexcept;
  /// Whether a message is one that is sent at all in its round.
  bool is_due(const Flow& flow, const Delivery& delivery) const;

  // Where things lie.
  Memory residual_of(const Bucket& bucket) const noexcept;
  /// Where the call's sums are read from when they leave: of all its rounds in one place.
  Memory own_sums(const CollectiveCall& call) const noexcept;
  Memory payload_of(const Delivery& delivery) const;
  /// What `rank` has packed of `own`; empty: this rank's gradients are added up as they are. With error feedback its
  /// own are packed like all others, so that what stands in its residual counts, whoever owns the element.
  Memory packed(std::uint32_t bucket, std::uint32_t rank, const Part& own) const noexcept;

  // Of a message that arrives. `begun`: this rank's round of that shape; null while its call has not come so far.
  /// Whether this group has such a round, so that the rest can be looked up.
  bool is_known(const RoundShape& shape) const;
  /// Of a plain operation that this rank has not come to, only others know the parts; that they are the same everywhere
  /// is seen when it comes there.
  bool is_due(const DirectHead& head, const Round* begun) const;
  /// How many bytes there must be where `found` came.
  std::uint64_t expected_bytes(const DirectHead& head, std::uint64_t found, const Round* begun) const;
  Memory landing_of(const DirectHead& head, std::uint64_t size_bytes, const Round* begun) const;

  /// The most bytes of each part that are reduced at once.
  std::uint64_t most_reduced() const noexcept { return ownership_.largest_part() * sizeof(float); }

 private:
  bool owns(const Round& round, std::uint32_t rank) const;
  void check(AddressSpace& space) const;

  const DirectGroup group_;
  const std::uint32_t self_;
  const Ownership ownership_;
  Staging staging_;
};

}  // namespace troupe::collectives
