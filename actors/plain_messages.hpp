#pragma once

#include <caf/mailbox_element.hpp>
#include <caf/rtti_pair.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "actors/dialect.hpp"

namespace troupe {

/// How a message of one value travels as its bytes. Fixed once registered.
struct PlainMessage {
  /// A mailbox element with the value whose bytes lie there.
  using Make = caf::mailbox_element_ptr (*)(caf::strong_actor_ptr sender, caf::message_id id, const std::byte* bytes);
  std::uint32_t id = 0;  // of the name, the same in every process
  std::uint32_t size_bytes = 0;
  Make make = nullptr;
};

namespace detail {

template <class T>
caf::mailbox_element_ptr make_plain(caf::strong_actor_ptr sender, caf::message_id id, const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return caf::make_mailbox_element(std::move(sender), id, {}, value);
}

void add_plain(std::string_view name, const caf::rtti_pair& type, std::uint32_t size_bytes, PlainMessage::Make make);

}  // namespace detail

/// Registers messages that cross processes as their bytes, without a serializer: fast, for what hot paths send. Only
/// messages of one such value travel so; inside others they are written by their inspect. All processes of a job are
/// of one build, so layouts agree. Throws Error{invalid} when two names have one id, or a type gets two names.
template <class... Ts>
void add_plain_messages(caf::actor_system_config& config, const MessageName<Ts>&... messages) {
  static_assert((std::is_trivially_copyable_v<Ts> && ...), "bytes are copied as they lie in memory");
  static_assert((std::is_default_constructible_v<Ts> && ...), "a value is made, then filled");
  static_assert(((sizeof(Ts) <= 4096) && ...), "larger ones go as tensors");
  add_messages(config, messages...);
  (detail::add_plain(messages.name, caf::make_rtti_pair<Ts>(), sizeof(Ts), &detail::make_plain<Ts>), ...);
}

/// Null: the type (the id) is not plain. Whole numbers of 32 and 64 bits, float and double always are. Any thread.
const PlainMessage* find_plain(const caf::rtti_pair& type);
const PlainMessage* find_plain(std::uint32_t id);

}  // namespace troupe
