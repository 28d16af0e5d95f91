#pragma once

#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <cstddef>
#include <span>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "actors/plain_messages.hpp"
#include "actors/remote/detail/ended_actors.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/base/error.hpp"

namespace troupe::remote {

/// Converts messages to bytes and back. Errors, also those in a user's inspect, are a Status and never an exception.
/// One thread.
class Codec {
 public:
  /// `unit` belongs to the actor system with the proxies, and outlives the codec.
  explicit Codec(caf::execution_unit& unit) : unit_(unit), own_node_(EndedActors::bytes_of(unit.system())) {}

  /// Appends a message with one plain value: its id and its bytes. Returns false, and writes nothing, for any other
  /// message.
  bool encode_plain(const caf::mailbox_element& message, std::vector<char>& bytes);
  /// Appends a message with one tensor: its data type and extents. Returns null, and writes nothing, for any other
  /// message.
  const Tensor* encode_lone(const caf::mailbox_element& message, std::vector<char>& bytes);
  /// Appends the message to `bytes`: the forwarding stack, if there is one, and the content; tensors go to the current
  /// slots. A type that is not registered, or must not leave its process, is `unsupported`, and then nothing is
  /// written.
  Status encode(caf::mailbox_element& message, std::vector<char>& bytes);
  /// Appends an error; if its context cannot be written, it is left out.
  void encode(const caf::error& error, std::vector<char>& bytes);

  struct Decoded {
    caf::mailbox_element::forwarding_stack stages;
    caf::message content;
  };
  Status decode(std::span<const std::byte> bytes, bool has_stages, Decoded& to);
  /// Reads what encode_lone wrote, with the tensor's memory in `landed`.
  static Status decode_lone(std::span<const std::byte> bytes, detail::TensorSlots::Landed&& landed, Tensor& to);
  /// Reads what encode_plain wrote, as a whole element from `sender`.
  Status decode_plain(std::span<const std::byte> bytes, caf::strong_actor_ptr sender, caf::message_id id,
                      troupe::detail::Receipt&& receipt, caf::mailbox_element_ptr& to);
  Status decode(std::span<const std::byte> bytes, caf::error& to);

 private:
  Status check(const caf::type_erased_tuple& content);

  caf::execution_unit& unit_;
  const std::vector<std::byte> own_node_;
  std::unordered_map<const std::type_info*, bool> known_;
  // Caches of the last results of the next two members, since most messages have the type of the previous one.
  std::uintptr_t last_type_ = 0;
  const PlainMessage* last_sent_ = nullptr;
  const PlainMessage* last_arrived_ = nullptr;  // null: none yet
  // Results of the registry by type; null: not plain. Builtin types have small numbers, others the address of their
  // type_info.
  std::unordered_map<std::uintptr_t, const PlainMessage*> plain_types_;
  std::unordered_map<std::uint32_t, const PlainMessage*> plain_ids_;
};

}  // namespace troupe::remote
