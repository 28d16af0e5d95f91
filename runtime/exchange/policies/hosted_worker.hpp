#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exchange/policies/hosted.hpp"

namespace troupe {

/// What a worker has read from all shards.
struct PulledVersions {
  std::uint64_t clock = 0;
  std::vector<std::uint64_t> versions;  // by shard
  /// Whether all parts contain the same contributions. Otherwise the parts of different shards have different versions;
  /// each part is one version.
  bool one_version = true;
};

/// The worker's side of hosted policies, as a pure state machine: numbers its pushes, says which clock to read, waits
/// for all shards. The sequence is one read, then for each contribution a push and a read of the next clock. Threads:
/// one caller at a time.
class HostedWorker {
 public:
  /// For rank `self`, with `shards` shards at which it starts at `clock`; before, `sequence` pushes were taken from it
  /// and it took part in `barriers` barriers.
  HostedWorker(Rank self, std::size_t shards, std::uint64_t clock = 0, std::uint64_t sequence = 0,
               std::uint64_t barriers = 0);

  /// The read for every shard before the first contribution. Call once.
  HostedRead begin();
  struct Round {
    std::vector<HostedPush> pushes;  // by shard
    HostedRead read;                 // for every shard, after the push
  };
  /// A contribution computed from the parameters last read is ready; `is_barrier`: the next read is a barrier of all
  /// workers. Throws Error{invalid} while a read is outstanding, or before the first one.
  Round contribute(bool is_barrier = false);
  /// A barrier without a contribution: the worker only looks, and computes its next contribution from the parameters
  /// that it read before. Throws likewise.
  HostedRead read_at_barrier();
  /// A shard's answer; true if it was the last of this round. A duplicate, or one of an earlier round, is
  /// ignored.
  bool answered(std::size_t shard, const AnswerRead& answer);

  bool waiting() const noexcept { return left_ > 0; }
  /// Shards that have not answered, for messages about an overdue read.
  std::vector<std::size_t> missing() const;
  const PulledVersions& pulled() const noexcept { return pulled_; }
  std::uint64_t clock() const noexcept { return pulled_.clock; }
  std::uint64_t pushes() const noexcept { return sequence_; }

 private:
  HostedRead await(std::uint64_t clock, bool is_barrier);
  void check_idle(const char* what) const;

  Rank self_;
  std::uint64_t sequence_;
  std::uint64_t barriers_;
  bool begun_ = false;
  bool looks_ = false;
  std::uint64_t barrier_ = 0;           // number of the barrier that it waits for; 0: an ordinary read
  std::size_t left_ = 0;                // shards that have not answered
  std::vector<bool> answered_;          // by shard, in this round
  std::vector<std::uint64_t> content_;  // by shard
  PulledVersions pulled_;               // incomplete while left_ > 0
};

}  // namespace troupe
