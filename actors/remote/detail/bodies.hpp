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

/// A body that came in pieces, whole.
struct ArrivedBody {
  std::unique_ptr<std::byte[]> bytes;  // null: there was no memory for it
  std::uint64_t size_bytes = 0;
  Charge charge;
};

/// Puts bodies together whose pieces arrive in any order, before or after the message that they belong to. One thread:
/// the bulk lane's.
class Bodies {
 public:
  explicit Bodies(std::shared_ptr<Budget> budget) noexcept : budget_(std::move(budget)) {}

  /// A message whose body comes in pieces, kept until these are here.
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
  /// Each returns the message when that was what it lacked. Bytes that fit no body are left out, and `wrong` says so.
  std::optional<Whole> add_piece(Peer from, const wire::Header& piece, std::span<const std::byte> bytes, bool& wrong);
  /// One for which there was no memory: its message is refused.
  std::optional<Whole> skip_piece(Peer from, const wire::Header& piece, std::uint64_t size_bytes, bool& wrong);
  std::optional<Whole> add_message(Peer from, const wire::Pieces& pieces, Message message, bool& wrong);
  /// Forgets what came from `peer`.
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
