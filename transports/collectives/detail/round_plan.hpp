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

inline constexpr std::uint64_t kHalfBytes = 2;

StagingNeeds staging_needs(const DirectGroup& group) noexcept;

bool is_plain(const RoundShape& shape) noexcept;
/// Whether a plain operation adds up the ranks' contributions.
bool reduces(const RoundShape& shape) noexcept;
/// Whether the result of a plain operation is sent to the ranks that do not own the part. Otherwise a message without
/// payload tells them that it is done, so that no rank continues before all have come this far.
bool spreads(const RoundShape& shape) noexcept;
bool carries_gradients(const RoundShape& shape) noexcept;
bool carries_parameters(const RoundShape& shape) noexcept;
/// Whether contributions to the round contain the sender's sums. Not while gradients are measured: the sums are still
/// being written then.
bool carries_sums(const RoundShape& shape) noexcept;

/// Which messages a round has, how large they are, and where their memory is at this rank. All of it follows from the
/// group, which is the same at every rank, and from the round's shape. Thus ranks agree without messages, and a message
/// that does not follow from it is an error. It changes nothing. Threads: any.
class RoundPlan {
 public:
  /// Throws Error{invalid} if the group's parts do not match, or if its memory is not mapped.
  RoundPlan(AddressSpace& space, DirectGroup group);

  const DirectGroup& group() const noexcept { return group_; }
  std::uint32_t self() const noexcept { return self_; }
  std::uint32_t ranks() const noexcept { return ownership_.ranks(); }
  const Ownership& ownership() const noexcept { return ownership_; }
  const Staging& staging() const noexcept { return staging_; }
  /// The job's number of one of the group's ranks.
  Rank name(std::uint32_t rank) const { return group_.names[rank]; }
  /// "rank 3"; "peer 7" if it does not belong to the group.
  std::string name_of(Peer peer) const;
  WorkLabel label_of(const RoundShape& shape) const noexcept;
  /// The channel that counts the rounds of that shape.
  std::size_t channel_of(const RoundShape& shape) const noexcept;

  const Chunk& chunk_of(const RoundShape& shape) const noexcept;
  /// The part that `rank` adds up in an update's round, and whose result it sends.
  ElementRange part_of(const RoundShape& shape, std::uint32_t rank) const;
  /// Whether `rank` sends a result to all others, with or without payload.
  bool has_result(const Round& round, std::uint32_t rank) const;
  /// Whether `rank` gets a contribution from all others: it owns a part, or adds up at least the sums. A contribution
  /// without payload says that the sender has come this far.
  bool contributes_to(const Round& round, std::uint32_t rank) const;
  /// Whether this rank has work of its own in the round.
  bool has_own_work(const Round& round) const { return contributes_to(round, self_); }
  /// What must have happened before the round is over.
  RoundWindow::Expected expected(const Round& round) const;
  /// Whether contributions go through the compressor.
  bool is_compressed(const RoundShape& shape) const noexcept;
  /// Whether contributions are sent from the staging memory.
  bool is_staged(const RoundShape& shape) const noexcept;
  /// Whether what is sent passes through the staging memory because the transport does not read the device's.
  bool stages_what_is_sent() const noexcept;
  /// Whether the delivery is sent at all in its round.
  bool is_due(const Flow& flow, const Delivery& delivery) const;

  // Where memory is:
  Memory residual_of(const Bucket& bucket) const noexcept;
  /// The sums that the call sends, the same for all its rounds.
  Memory own_sums(const CollectiveCall& call) const noexcept;
  Memory payload_of(const Delivery& delivery) const;
  /// The packed contribution of `rank` to `own`; empty: this rank's gradients are added up unpacked. With error
  /// feedback this rank's own are packed, too, so that its residual has an effect whichever rank owns the element.
  Memory packed(std::uint32_t bucket, std::uint32_t rank, const ElementRange& own) const noexcept;

  // For arriving messages. `begun`: this rank's round of that shape; null if its call has not begun.
  /// Whether this group has such a round, so that the other functions can be called.
  bool is_known(const RoundShape& shape) const;
  /// If this rank has not reached a plain operation yet, only the others know its parts; that they are the same at all
  /// ranks is checked when this rank reaches it.
  bool is_due(const DirectHead& head, const Round* begun) const;
  /// The expected number of bytes, if `found` have arrived.
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
