#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/detail/staging.hpp"
#include "actors/remote/tensor.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

/// How the tensors of a message are sent.
struct TensorPlan {
  std::vector<wire::TensorRecord> records;
  std::vector<Tensor> copied;  // by value
  std::vector<Point> awaited;  // points to wait for before the message may be sent
  std::uint64_t copied_bytes = 0;
  bool is_staged = false;  // some of those that are sent by value

  /// Keeps its memory for the next message.
  void clear() noexcept {
    records.clear();
    copied.clear();
    awaited.clear();
    copied_bytes = 0;
    is_staged = false;
  }
};

/// The tensors of messages: by reference to processes that have mapped their arena, by value to others. A tensor that
/// is sent by reference is lent: this process keeps it until the other process has given its token back. The other
/// process does so once for every record that it gets, whatever happens to the message. Threads: the control lane's.
class TensorLoans {
 public:
  TensorLoans(Context& context, FrameSender& frames, const Staging& staging)
      : context_(context), frames_(frames), staging_(staging) {}

  /// Decides for each tensor how it is sent, and lends those that are sent by reference. On failure none is lent.
  Status plan(PeerState& to, std::span<const Tensor> tensors, TensorPlan& plan);
  /// The message will not be sent: tensors that were lent for it are not lent any more.
  void take_back(std::span<const wire::TensorRecord> records);
  /// A peer gives tokens back.
  void take_in_release(PeerState& from, const wire::Header& header, std::span<const std::byte> more);

  /// Makes the tensor of a message from `from` in this process. Its last handle gives a lent tensor back.
  Status land(PeerState& from, const wire::TensorRecord& record, const Arrival& arrival,
              detail::TensorSlots::Landed& tensor);
  /// Gives back the tensors of a message that will not be read.
  void abandon(PeerState& from, const wire::Header& header, std::span<const std::byte> head);
  /// Ends a round. Tokens wait for a round in which nothing more urgent is sent, so that they do not delay messages.
  /// Returns whether any wait.
  bool flush() { return !creditors_.empty() && give_back_tokens(); }
  /// Nothing is lent to `peer` any more; the other function: to no peer.
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
  bool give_back_tokens();
  void send_given_back(PeerState& to);

  Context& context_;
  FrameSender& frames_;
  const Staging& staging_;
  std::unordered_map<std::uint64_t, Loan> lent_;  // by token
  std::uint64_t next_token_ = 1;
  std::vector<PeerState*> creditors_;  // peers to which tokens must be given back
};

}  // namespace troupe::remote
