#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/exchange/communicator.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/call_order.hpp"
#include "transports/collectives/detail/direct_call.hpp"
#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/outbox.hpp"
#include "transports/collectives/detail/ownership.hpp"
#include "transports/collectives/detail/round_window.hpp"
#include "transports/collectives/detail/staging.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe::collectives {

inline constexpr std::uint64_t kBf16Bytes = size_bytes(DType::bf16);

StagingNeeds staging_needs(const DirectGroup& group) noexcept;
/// Whether contributions to the round come with the sender's sums. While gradients are measured they are being written.
bool carries_sums(const RoundShape& shape) noexcept;

/// One rank's end of a group's rounds. The caller's side only enqueues on its stream and is given a point of a line of
/// this process, one for each bucket. The lane's side sends, lets land and counts. Once all that this rank adds up of a
/// chunk is there it enqueues that work on the exchange's stream, and sends the result when that stream has done it; so
/// chunks are worked on in the order in which they become complete, whatever the order of the calls.
///
/// A step with a verdict needs its calls in order: what is measured over the buckets is added up in their order, sums
/// are exchanged after that, and updates follow those. The lane keeps these calls in a queue.
class DirectRounds final : public Receiver {
 public:
  DirectRounds(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group);

  Point update(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine);
  /// `parts` by owner; of what reduces, each at most most_reduced().
  Point plain(Stream& stream, PlainOperation operation, std::span<const Memory> parts);
  [[nodiscard]] Point gather(Stream& stream, const BucketWork& work, const StripeMemory& mine);
  void agree(Stream& stream, const BucketWork& work);
  Point publish(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine);
  /// Ends every wait of this rank with `why`; the first reason stays.
  void fail(const Status& why) noexcept;
  /// The same for what went wrong at this rank, which the others hear, too.
  void fail_everywhere(const Status& why) noexcept;
  /// Whether all calls are over, and what they sent is out. Any thread.
  bool is_idle() const noexcept;
  std::uint32_t ranks() const noexcept { return ownership_.ranks(); }
  std::uint32_t self() const noexcept { return self_; }
  /// The most bytes of each part that are reduced at once.
  std::uint64_t most_reduced() const noexcept { return ownership_.largest_part() * sizeof(float); }
  /// Whether what travels is copied to staging memory and from there.
  bool stages() const noexcept { return group_.device_memory; }
  /// Staging memory for rank `owner`'s piece of a plain operation.
  Memory staged_piece(std::uint32_t owner, std::uint64_t size_bytes) const noexcept {
    return staging_.plain(owner, size_bytes);
  }

  Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept override;
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override;
  void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept override;
  void lost(Peer peer, const Status& why) noexcept override;

  // For calls and what they consist of.
  bool post(LaneTask& task) noexcept { return loop_.post(task); }
  bool try_tell(AbortNotices& notices, std::uint32_t rank);
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  void arrived_at(Call& call) noexcept;
  void own_work_done(Round& round) noexcept;
  void unstaged(const StagedResult& result) noexcept;
  void sent(Delivery& delivery, const Status& status) noexcept;

 private:
  /// The calls of one bucket, of plain operations, or of sums alone.
  struct Line {
    std::optional<PrivateTimeline> own;
    Timeline* over;             // how many calls are over
    std::size_t first_channel;  // of the rounds of each call
    std::size_t count_channels;
    std::uint64_t enqueued = 0;  // the caller's
    std::uint64_t ended = 0;     // the lane's: calls that are over
    std::deque<Call> calls;      // as many as were ever under way at once; guarded by mutex_, as is free
    std::vector<Call*> free;
  };
  /// What goes to one rank, for the trace.
  struct Link {
    TraceRow* row;
    Clock::time_point sent;  // the last message, wholly
  };
  /// A chunk's, plain operations' or the sums' rounds. The lane's.
  struct ChunkRounds {
    ChunkRounds(std::uint32_t self, std::span<const Rank> names) : window(self, names) {}
    RoundWindow window;
    std::deque<StagedResult> staged;       // of other ranks, by sequence, rank and cargo; of device memory
    std::array<Round*, 2> rounds{};        // begun, by sequence
    std::array<std::uint64_t, 2> begun{};  // their sequences
    std::uint64_t gathered = 0;
    std::uint64_t over = 0;
  };

  std::size_t line_of_plain() const noexcept { return ownership_.count_buckets(); }
  std::size_t line_of_sums() const noexcept { return line_of_plain() + 1; }
  // The caller's side.
  void check(const BucketWork& work, const StripeMemory& mine) const;
  Memory residual_of(const Bucket& bucket) const noexcept;
  Call& take(std::size_t line, const RoundShape& common);
  Call& take(RoundPart part, const BucketWork& work, const StripeMemory& mine);
  void count_uses(Call& call, const Round& round) const;
  Point enqueue(Stream& stream, Call& call);
  Point enqueue_next(Stream& stream, Call& call);
  // What rounds are about. The lane's side, as all that follows.
  const Chunk& chunk_of(const RoundShape& shape) const noexcept;
  bool owns(const Round& round, std::uint32_t rank) const;
  Part part_of(const RoundShape& shape, std::uint32_t rank) const;
  bool has_result(const Round& round, std::uint32_t rank) const;
  bool contributes_to(const Round& round, std::uint32_t rank) const;
  bool is_filtered(const RoundShape& shape) const noexcept;
  bool is_staged(const RoundShape& shape) const noexcept;
  Memory own_sums(const Call& call) const noexcept;
  bool has_own_work(const Round& round) const;
  RoundWindow::Expected expected(const Round& round) const;
  const Round* begun(const RoundShape& shape) const noexcept;
  std::size_t channel_of(const RoundShape& shape) const noexcept;
  // From call to call.
  void begin(Call& call);
  void advance(std::size_t channel);
  void gathered(Round& round);
  void over(Round& round);
  void advance_verdict();
  void release(Call& call) noexcept;
  // This rank's own work, on the exchange's stream.
  void add_up_and_update(Round& round);
  void do_plain(Round& round);
  void reduce_with_norm(Call& call);
  void add_up_sums(Round& round);
  void update_own_part(Round& round);
  void stage_results(const Part& own);
  void unstage(const DirectHead& head);
  void watch_own_work(Round& round);
  WorkLabel label_of(const RoundShape& shape) const noexcept;
  void note(const Delivery& delivery) noexcept;
  std::span<const Memory> sums_of(const Round& round);
  std::span<const Memory> gradients_of(const RoundShape& shape, const Memory& gradients, const Part& own);
  Memory add_up_packed(std::uint32_t bucket, const Memory& mine, const Part& own);
  void add_up_packed_with_norm(std::uint32_t bucket, const Memory& mine, const Part& own, const Memory& sums);
  Memory packed(std::uint32_t bucket, std::uint32_t rank, const Part& own) const noexcept;
  template <class OfRank>
  std::span<const Memory> in_rank_order(Memory own, OfRank&& of_rank);
  // Messages.
  Urgency urgency_of(const Flow& flow) const noexcept;
  Memory payload_of(const Delivery& delivery) const;
  void send(Flow& flow);
  bool try_send(Delivery& delivery);
  void finished(Flow& flow);
  std::optional<DirectHead> accept(Peer from, std::span<const std::byte> head, std::uint64_t size_bytes);
  bool is_known(const RoundShape& shape) const;
  std::uint64_t expected_bytes(const DirectHead& head, std::uint64_t found) const;
  bool is_due(const DirectHead& head) const;
  bool hear_abort(Peer from, std::span<const std::byte> head);
  Memory landing_of(const DirectHead& head, std::uint64_t size_bytes) const;
  std::string name_of(Peer peer) const;
  /// What the job calls one of the group's ranks.
  Rank name(std::uint32_t rank) const { return group_.names[rank]; }
  /// `what` on the lane's thread; an Error in it ends the communicator.
  template <class What>
  void guarded(What&& what) noexcept;

  AddressSpace& space_;
  LaneLoop& loop_;
  Stream& exchange_;  // the lane's side enqueues on it
  const DirectGroup group_;
  const std::uint32_t self_;
  const Ownership ownership_;
  Staging staging_;
  std::deque<Line> lines_;  // by bucket, then plain operations' and the sums'
  std::atomic<bool> failed_{false};
  std::atomic<bool> others_told_{false};
  AbortNotices notices_{*this};

  std::uint64_t calls_ = 0;          // the caller's
  std::uint64_t verdict_calls_ = 0;  // the caller's
  mutable std::mutex mutex_;         // guards lines_'s calls

  // The lane's thread only.
  std::deque<ChunkRounds> channels_;
  std::vector<Link> links_;  // by rank; empty: nothing is noted
  CallOrder order_;
  Outbox outbox_;
  std::deque<Call*> verdict_;        // calls of steps with a verdict, in their order; some may be missing yet
  std::uint64_t verdict_ended_ = 0;  // of them
  std::uint64_t agreed_ = 0;         // the last of the sums' calls that was in the queue
  std::vector<Memory> parts_;        // reused
  /// By rank: to whom a fault is laid that is there once this rank's part is added to what those before it add up to.
  std::vector<std::array<Rank, 2>> blamed_so_far_;
};

}  // namespace troupe::collectives
