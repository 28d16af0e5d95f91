#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exchange/policies/hosted.hpp"

namespace troupe {

/// What a worker has read, from all shards.
struct PulledVersions {
  std::uint64_t clock = 0;
  std::vector<std::uint64_t> versions;  // by shard
  /// The parts contain the same contributions. Without it the pull mixes versions of different shards, each of which is
  /// one version by itself.
  bool one_version = true;
};

/// The worker's side of hosted policies as a pure state machine: numbers its pushes, says which clock to read, waits
/// for all shards. It takes part in turns: first a read, then for each contribution a push and a read of the next
/// clock. Threads: one caller at a time.
class HostedWorker {
 public:
  /// Of rank `self`, with `shards` shards that let it start at `clock`; `sequence` pushes were taken from it before,
  /// and it has come to `meetings`.
  HostedWorker(Rank self, std::size_t shards, std::uint64_t clock = 0, std::uint64_t sequence = 0,
               std::uint64_t meetings = 0);

  /// What to read from every shard before the first contribution. Once.
  HostedRead begin();
  struct Round {
    std::vector<HostedPush> pushes;  // by shard
    HostedRead read;                 // from every shard, after the push
  };
  /// A contribution from the parameters last read is ready; `meets`: what is read next, all workers read. Throws
  /// Error{invalid} while a read is outstanding, or before the first.
  Round contribute(bool meets = false);
  /// A meeting without a contribution: it only looks, and its next contribution is computed from what it read before.
  /// Throws likewise.
  HostedRead meet();
  /// A shard's answer; true when it was the last of this round. One that comes twice, or of an earlier round, is
  /// ignored.
  bool answered(std::size_t shard, const AnswerRead& answer);

  bool waiting() const noexcept { return left_ > 0; }
  /// Shards that have not answered, for messages of an overdue read.
  std::vector<std::size_t> missing() const;
  const PulledVersions& pulled() const noexcept { return pulled_; }
  std::uint64_t clock() const noexcept { return pulled_.clock; }
  std::uint64_t pushes() const noexcept { return sequence_; }

 private:
  HostedRead await(std::uint64_t clock, bool meets);
  void check_idle(const char* what) const;

  Rank self_;
  std::uint64_t sequence_;
  std::uint64_t meetings_;
  bool begun_ = false;
  bool looks_ = false;
  std::uint64_t meeting_ = 0;           // that it waits for; 0: a read of its own
  std::size_t left_ = 0;                // shards that have not answered
  std::vector<bool> answered_;          // by shard, in this round
  std::vector<std::uint64_t> content_;  // by shard
  PulledVersions pulled_;               // being filled while left_ > 0
};

}  // namespace troupe
