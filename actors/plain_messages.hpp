#pragma once

#include <caf/detail/tuple_vals.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/message.hpp>
#include <caf/rtti_pair.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "actors/caf_compatibility.hpp"
#include "actors/detail/receipt.hpp"

namespace troupe {

/// How a message with one value is sent as its bytes. Not changed after registration.
struct PlainMessage {
  /// Makes a mailbox element with a value from its bytes.
  using Make = caf::mailbox_element_ptr (*)(caf::strong_actor_ptr sender, caf::message_id id,
                                            std::span<const std::byte> bytes, detail::Receipt&& receipt);
  /// The bytes of the value at this address.
  using View = std::span<const std::byte> (*)(const void* value);
  static constexpr std::uint32_t kAnySize = ~std::uint32_t{0};  // for strings and vectors of bytes
  std::uint32_t id = 0;                                         // of the name, the same in every process
  std::uint32_t size_bytes = 0;
  Make make = nullptr;
  View view = nullptr;
};

namespace detail {

/// A message with one value, from another process.
template <class T>
class PlainElement final : public caf::mailbox_element, public caf::detail::tuple_vals_impl<caf::type_erased_tuple, T> {
 public:
  template <class Value>
  PlainElement(caf::strong_actor_ptr sender, caf::message_id id, Value&& value, Receipt&& receipt)
      : caf::mailbox_element(std::move(sender), id, {}),
        caf::detail::tuple_vals_impl<caf::type_erased_tuple, T>(std::forward<Value>(value)),
        receipt_(std::move(receipt)) {}
  caf::type_erased_tuple& content() override { return *this; }
  const caf::type_erased_tuple& content() const override { return *this; }
  caf::message move_content_to_message() override { return copy_content_to_message(); }
  caf::message copy_content_to_message() const override { return caf::make_message(std::get<0>(this->data())); }

 private:
  const Receipt receipt_;
};

/// Becomes the value in its place, so that it is copied once.
template <class T>
struct PlainBytes {
  const std::byte* bytes;
  operator T() const noexcept {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
};

template <class T>
caf::mailbox_element_ptr make_plain(caf::strong_actor_ptr sender, caf::message_id id, std::span<const std::byte> bytes,
                                    Receipt&& receipt) {
  return caf::mailbox_element_ptr{
      new PlainElement<T>(std::move(sender), id, PlainBytes<T>{bytes.data()}, std::move(receipt))};
}

template <class T>
std::span<const std::byte> view_plain(const void* value) {
  return {static_cast<const std::byte*>(value), sizeof(T)};
}

void add_plain(std::string_view name, const caf::rtti_pair& type, std::uint32_t size_bytes, PlainMessage::Make make,
               PlainMessage::View view);

}  // namespace detail

/// Registers messages that are sent between processes as their bytes, without a serializer; use it for frequent
/// messages. Only messages that consist of one such value are sent this way; within other messages the type's inspect
/// is used. All processes of a job must come from one build, so that layouts agree. Throws Error{invalid} if two names
/// have one id, or if a type gets two names.
template <class... Ts>
void add_plain_messages(caf::actor_system_config& config, const MessageName<Ts>&... messages) {
  static_assert((std::is_trivially_copyable_v<Ts> && ...), "bytes are copied as they lie in memory");
  static_assert((std::is_default_constructible_v<Ts> && ...), "a value is made, then filled");
  static_assert(((sizeof(Ts) <= 4096) && ...), "larger ones go as tensors");
  add_messages(config, messages...);
  (detail::add_plain(messages.name, caf::make_rtti_pair<Ts>(), sizeof(Ts), &detail::make_plain<Ts>,
                     &detail::view_plain<Ts>),
   ...);
}

/// Null: the type (the id) is not plain. Integers of 32 and 64 bits, float, double, std::string and std::vector<char>
/// are always plain. Any thread.
const PlainMessage* find_plain(const caf::rtti_pair& type);
const PlainMessage* find_plain(std::uint32_t id);

}  // namespace troupe
