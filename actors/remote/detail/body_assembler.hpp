#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/remote/detail/budget.hpp"
#include "actors/remote/wire.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::remote {

/// A body that arrived in pieces, complete.
struct ArrivedBody {
  std::unique_ptr<std::byte[]> bytes;  // null: there was no memory for it
  std::uint64_t size_bytes = 0;
  Charge charge;
};

/// Joins the pieces of bodies. Pieces arrive in any order, before or after the message that they belong to. One thread:
/// the bulk lane's.
class BodyAssembler {
 public:
  explicit BodyAssembler(std::shared_ptr<Budget> budget) noexcept : budget_(std::move(budget)) {}

  /// A message with a body in pieces; kept until they have arrived.
  struct Message {
    std::vector<std::byte> head;
    Memory payload;
    std::shared_ptr<const void> payload_owner;
    bool refused = false;
  };
  struct Whole {
    Message message;
    ArrivedBody body;
  };
  /// Each function returns the message if it is complete now. Bytes that belong to no body are ignored, and `wrong` is
  /// set.
  std::optional<Whole> add_piece(Peer from, const wire::Header& piece, std::span<const std::byte> bytes, bool& wrong);
  /// For a piece for which there was no memory: its message is refused.
  std::optional<Whole> skip_piece(Peer from, const wire::Header& piece, std::uint64_t size_bytes, bool& wrong);
  std::optional<Whole> add_message(Peer from, const wire::Pieces& pieces, Message message, bool& wrong);
  /// Forgets what has arrived from `peer`.
  void forget(Peer peer);

 private:
  struct Place {
    Peer from;
    std::uint64_t number;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Body {
    std::uint64_t missing_bytes = 0;
    ArrivedBody arrived;
    std::optional<Message> message;
  };
  using Open = std::map<Place, Body>;
  Open::iterator find_or_open(Peer from, std::uint64_t number, std::uint64_t size_bytes, bool& wrong);
  std::optional<Whole> finish_if_whole(Open::iterator place);

  const std::shared_ptr<Budget> budget_;
  Open open_;
};

}  // namespace troupe::remote
