#pragma once

#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <cstddef>
#include <span>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "actors/plain_messages.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/base/error.hpp"

namespace troupe::remote {

/// Messages to bytes and back. What goes wrong, in a user's inspect too, is a Status and never an exception. One
/// thread.
class Codec {
 public:
  /// `unit` names the actor system and its proxies, and outlives the codec.
  explicit Codec(caf::execution_unit& unit) noexcept : unit_(unit) {}

  /// Appends a message of one plain value, its id and its bytes; false, and nothing was written, when it is another
  /// one.
  bool encode_plain(const caf::mailbox_element& message, std::vector<char>& bytes);
  /// Appends a message of one tensor, its data type and extents; null, and nothing was written, when it is another one.
  const Tensor* encode_lone(const caf::mailbox_element& message, std::vector<char>& bytes);
  /// Appends the message to `bytes`: the forwarding stack, if there is one, and the content; tensors go to the current
  /// slots. A type that is not registered, or stays in its process, is `unsupported`, and nothing was written.
  Status encode(caf::mailbox_element& message, std::vector<char>& bytes);
  /// Appends an error; one whose context cannot be written loses it.
  void encode(const caf::error& error, std::vector<char>& bytes);

  struct Decoded {
    caf::mailbox_element::forwarding_stack stages;
    caf::message content;
  };
  Status decode(std::span<const std::byte> bytes, bool has_stages, Decoded& to);
  /// What encode_lone wrote, with what landed of it.
  static Status decode_lone(std::span<const std::byte> bytes, detail::TensorSlots::Landed&& landed, Tensor& to);
  /// What encode_plain wrote, as a whole element from `sender`.
  Status decode_plain(std::span<const std::byte> bytes, caf::strong_actor_ptr sender, caf::message_id id,
                      troupe::detail::Receipt receipt, caf::mailbox_element_ptr& to);
  Status decode(std::span<const std::byte> bytes, caf::error& to);

 private:
  Status check(const caf::type_erased_tuple& content);

  caf::execution_unit& unit_;
  std::unordered_map<const std::type_info*, bool> known_;
  // The last answers of the next two, since most messages are like the one before.
  std::uintptr_t last_type_ = 0;
  const PlainMessage* last_sent_ = nullptr;
  const PlainMessage* last_arrived_ = nullptr;  // null: none yet
  // What the registry answered before; null: not plain. Builtin types have small numbers, others their type_info's
  // address.
  std::unordered_map<std::uintptr_t, const PlainMessage*> plain_types_;
  std::unordered_map<std::uint32_t, const PlainMessage*> plain_ids_;
};

}  // namespace troupe::remote
