#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/remote/wire.hpp"
#include "runtime/base/ids.hpp"

namespace troupe::remote {

/// Payloads that arrive in pieces. The first piece of a payload takes memory for all of it, and each piece is stored in
/// its place there. Pieces arrive in any order, before or after the message that they belong to. One thread: the bulk
/// lane's.
class PayloadAssembler {
 public:
  /// Memory for a payload; `keeper` gives it back when its last copy is destroyed. Without a keeper there is none.
  struct Store {
    Memory memory;
    std::shared_ptr<const void> keeper;
  };
  using FindStore = std::function<Store(SinkKey key, std::uint64_t size_bytes)>;
  explicit PayloadAssembler(FindStore find_store) : find_store_(std::move(find_store)) {}

  /// A message with its complete payload; without a store: there was no memory for it.
  struct Whole {
    std::vector<std::byte> head;
    Store payload;
  };
  /// Where to store a piece, until end_landing(); empty: nowhere. In these functions `wrong` is set, and nothing is
  /// done, if the call does not fit what the peer sent before.
  Memory land(Peer from, const wire::Header& piece, std::uint64_t size_bytes, bool& wrong);
  /// Memory that land() returned is not written any more: the piece has arrived (returns true), or will not. False, and
  /// does nothing, for other memory.
  bool end_landing(Memory memory, bool has_arrived);
  void add_message(Peer from, const wire::Header& header, std::vector<std::byte> head, bool& wrong);
  /// Only the pieces that were sent before will come, and no message.
  void cut_short(Peer from, const wire::Header& piece, bool& wrong);
  /// The message with this order number, if it is complete now.
  std::optional<Whole> take_whole(Peer from, std::uint32_t order);
  /// Forgets what has arrived from `peer`; memory in which pieces may land is kept until end_landing().
  void forget(Peer peer);

 private:
  struct Payload {
    std::uint64_t size_bytes = 0;  // 0: only the message has arrived
    std::uint32_t pieces = 0;
    std::uint32_t announced = 0;
    std::uint32_t ended = 0;  // have arrived, were refused, or will not come
    bool failed = false;
    Store store;
    std::optional<std::vector<std::byte>> head;
  };
  using Place = std::pair<Peer, std::uint32_t>;  // the peer, and the message's order number
  struct Landing {
    Place place;
    std::shared_ptr<const void> keeper;
  };
  Payload& payload_of(Peer from, const wire::Header& piece, bool& wrong);

  const FindStore find_store_;
  std::map<Place, Payload> open_;
  std::map<std::pair<ArenaId, std::uint64_t>, Landing> landings_;  // by arena and offset
};

}  // namespace troupe::remote
