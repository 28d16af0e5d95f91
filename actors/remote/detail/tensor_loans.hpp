#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/tensor.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

/// How a message's tensors travel.
struct TensorPlan {
  std::vector<wire::TensorRecord> records;
  std::vector<Tensor> copied;  // by value
  std::vector<Point> awaited;  // before the message may leave
  std::uint64_t copied_bytes = 0;

  /// Keeps its memory for the next message.
  void clear() noexcept {
    records.clear();
    copied.clear();
    awaited.clear();
    copied_bytes = 0;
  }
};

/// The tensors of messages: by reference to processes that have mapped their arena, by value to others. A tensor that
/// goes by reference is lent: this process keeps it until the other one has given its token back, which that does once
/// for every record that it was sent, whatever became of the message. Threads: the control lane's.
class TensorLoans {
 public:
  TensorLoans(Context& context, FrameSender& frames) : context_(context), frames_(frames) {}

  /// Decides for each tensor how it travels, and lends out those that go by reference. On failure none is lent.
  Status plan(PeerState& to, std::span<const Tensor> tensors, TensorPlan& plan);
  /// Its message is not sent: those that were lent for it are not.
  void take_back(std::span<const wire::TensorRecord> records);
  /// A peer gives tokens back.
  void take_in_release(PeerState& from, const wire::Header& header, std::span<const std::byte> more);

  /// A tensor of a message from `from`, as it lies here. Its last handle gives back what was lent.
  Status land(PeerState& from, const wire::TensorRecord& record, const Arrival& arrival,
              detail::TensorSlots::Landed& tensor);
  /// Gives back what was lent for a message that nobody will read.
  void abandon(PeerState& from, const wire::Header& header, std::span<const std::byte> head);
  /// Ends a round. Tokens can wait for one in which nothing more urgent is sent, so that messages to and fro are not
  /// slowed down. Whether any wait.
  bool flush();
  /// Nothing is lent to `peer` any more; nor to anybody.
  void forget(Peer peer);
  void forget_all() { lent_.clear(); }

 private:
  class Borrowed;
  struct Loan {
    Peer peer;
    Tensor tensor;
  };

  Status check_kind(const Tensor& tensor, bool by_reference) const;
  bool reached(Point point) const;
  void give_back(PeerState& from, std::uint64_t token);
  void send_given_back(PeerState& to);

  Context& context_;
  FrameSender& frames_;
  std::unordered_map<std::uint64_t, Loan> lent_;  // by token
  std::uint64_t next_token_ = 1;
  std::vector<PeerState*> creditors_;  // have tokens to be given back
};

}  // namespace troupe::remote
