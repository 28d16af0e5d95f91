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

#include "runtime/arena.hpp"
#include "runtime/communicator.hpp"
#include "runtime/lane_loop.hpp"
#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/round_window.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe::collectives {

/// Elements [first, first + count) of a bucket's group, or of an all_reduce's data.
struct Part {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

inline constexpr std::uint64_t kHalfBytes = size_bytes(DType::bf16);

/// The most elements any rank adds up in one round of updates; a multiple of Layout::kAlignElements.
std::uint64_t capacity_of(std::span<const Stripe> stripes, std::span<const Bucket> buckets);

class DirectRounds;
struct Call;

struct Sending;

/// One message of a sending on its way.
struct Delivery final : SendDone {
  Delivery(Sending& its_sending, std::uint32_t rank) : sending(its_sending), to(rank) {}
  void sent(Status status) noexcept override;

  Sending& sending;
  const std::uint32_t to;
};

/// One of a call's two sendings: waits for its mark on the stream, then sends on the lane's thread, as fast as there is
/// room.
struct Sending final : Waker, LaneTask {
  /// To `ranks` ranks but `self`, whose neighbour comes first, so that not all begin with the same; `each` messages.
  Sending(Call& its_call, bool sends_results, std::uint32_t self, std::uint32_t ranks, std::uint32_t each);
  void reached(Point point, Status status) noexcept override;
  void run() noexcept override;
  void told(std::uint32_t rank, const Status& status) noexcept;

  Call& call;
  const bool results;
  std::deque<Delivery> deliveries;
  bool begun = false;
  std::uint32_t next = 0;    // message to send
  std::uint32_t count = 0;   // of messages
  std::uint32_t on_way = 0;  // sent, and not told yet
};

/// One round of this rank, from the call until everything it sent is out.
struct Call {
  Call(DirectRounds& its_rounds, std::uint32_t self, std::uint32_t ranks)
      : rounds(its_rounds), contribute(*this, false, self, ranks, 1), publish(*this, true, self, ranks, 2) {}
  DirectRounds& rounds;
  RoundShape shape;
  Memory contributions;  // of the whole bucket or chunk
  Memory sums;
  Memory result;  // this rank's part
  Memory half;
  std::atomic<int> uses{0};  // sendings that are not finished
  Sending contribute;
  Sending publish;  // the stripe's parameters and, where there is one, their bf16 image
};

/// The last thing a rank sends: why its exchange has ended.
struct Farewell final : LaneTask, SendDone {
  explicit Farewell(DirectRounds& its_rounds) : rounds(its_rounds) {}
  void run() noexcept override;
  void sent(Status) noexcept override {}

  DirectRounds& rounds;
  Status why;              // written before it is posted
  std::uint32_t told = 0;  // ranks, this one included
};

/// One rank's end of a group's rounds. The caller's side only enqueues on the stream; the lane's side sends, lets land
/// and counts, and tells the stream by two lines of this process how far the rounds have come.
class DirectRounds final : public Receiver {
 public:
  DirectRounds(AddressSpace& space, LaneLoop& loop, DirectGroup group);

  void update(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine);
  void reduce(Stream& stream, Memory data);
  void gather(Stream& stream, const BucketWork& work, const StripeMemory& mine);
  void agree(Stream& stream, const BucketWork& work);
  void publish(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine);
  /// Ends every wait of this rank with `why`; the first reason stays.
  void fail(const Status& why) noexcept;
  /// The same for what went wrong at this rank, which the others hear, too.
  void fail_everywhere(const Status& why) noexcept;
  std::uint32_t ranks() const noexcept { return static_cast<std::uint32_t>(group_.peers.size()); }
  std::uint64_t chunk_elements() const noexcept { return capacity_ * ranks(); }

  Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept override;
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override;
  void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept override;
  void lost(Peer peer, const Status& why) noexcept override;

  // For Sending and Farewell.
  bool post(LaneTask& task) noexcept { return loop_.post(task); }
  bool try_tell(Farewell& farewell, std::uint32_t rank);
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  void begin(Sending& sending);
  bool try_send(Sending& sending, std::uint32_t message);
  void undelivered(std::uint32_t rank, const Status& why) noexcept;
  void finished(Sending& sending);
  void give_back(Call& call) noexcept;

 private:
  Call& take_call(bool reduces, std::uint64_t count, bool owns);
  Call& take_part(RoundPart part, const BucketWork& work, bool owns);
  void check(const BucketWork& work, const StripeMemory& mine) const;
  std::string name_of(Peer peer) const;
  Part part_of(const RoundShape& shape, std::uint32_t rank) const;
  bool has_result(const RoundShape& shape, std::uint32_t rank) const;
  /// Whether contributions to the round are rounded on their way.
  bool is_filtered(const RoundShape& shape) const noexcept;
  void round_contributions(const Call& call);
  void widen(const Memory& landed, std::uint64_t count);
  bool contributes_to(const RoundShape& shape, std::uint32_t rank) const;
  RoundWindow::Expected expected(const RoundShape& shape) const;
  void watch(Sending& sending, Point mark);
  std::optional<DirectHead> accept(Peer from, std::span<const std::byte> head, std::uint64_t size_bytes);
  bool hear_ended(Peer from, std::span<const std::byte> bytes);
  Memory landing_of(const DirectHead& head) const;
  Memory staged_sums(std::uint64_t sequence, std::uint32_t rank) const;
  Memory staged(std::uint32_t rank, std::uint64_t count) const;
  template <class StagedFor>
  std::span<const Memory> in_rank_order(Memory own, StagedFor&& staged_for);
  void show_progress();
  /// `what` on the lane's thread; an Error in it ends the communicator.
  template <class What>
  void guarded(What&& what) noexcept;

  AddressSpace& space_;
  LaneLoop& loop_;
  const DirectGroup group_;
  const std::uint64_t capacity_;
  const std::uint32_t self_;
  Timeline& gathered_;
  Timeline& published_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> farewell_posted_{false};
  Farewell farewell_{*this};

  std::uint64_t sequence_ = 0;  // of the last call; the caller's
  std::vector<Memory> parts_;   // the caller's, reused

  std::mutex mutex_;        // guards calls_ and free_
  std::deque<Call> calls_;  // as many as were ever under way at once
  std::vector<Call*> free_;

  // The lane's thread only.
  RoundWindow window_;
  std::array<Memory, 2> data_{};  // of the all_reduce rounds under way
};

}  // namespace troupe::collectives
