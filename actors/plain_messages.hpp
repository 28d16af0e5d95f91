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

#include "actors/detail/receipt.hpp"
#include "actors/dialect.hpp"

namespace troupe {

/// How a message of one value travels as its bytes. Fixed once registered.
struct PlainMessage {
  /// A mailbox element with the value whose bytes these are.
  using Make = caf::mailbox_element_ptr (*)(caf::strong_actor_ptr sender, caf::message_id id,
                                            std::span<const std::byte> bytes, detail::Receipt receipt);
  /// The bytes of a value, which lies there.
  using View = std::span<const std::byte> (*)(const void* value);
  static constexpr std::uint32_t kAnySize = ~std::uint32_t{0};  // a string, a vector of bytes
  std::uint32_t id = 0;                                         // of the name, the same in every process
  std::uint32_t size_bytes = 0;
  Make make = nullptr;
  View view = nullptr;
};

namespace detail {

/// A message of one value from another process.
template <class T>
class PlainElement final : public caf::mailbox_element, public caf::detail::tuple_vals_impl<caf::type_erased_tuple, T> {
 public:
  template <class Value>
  PlainElement(caf::strong_actor_ptr sender, caf::message_id id, Value&& value, Receipt receipt)
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

template <class T>
caf::mailbox_element_ptr make_plain(caf::strong_actor_ptr sender, caf::message_id id, std::span<const std::byte> bytes,
                                    Receipt receipt) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return caf::mailbox_element_ptr{new PlainElement<T>(std::move(sender), id, value, std::move(receipt))};
}

template <class T>
std::span<const std::byte> view_plain(const void* value) {
  return {static_cast<const std::byte*>(value), sizeof(T)};
}

void add_plain(std::string_view name, const caf::rtti_pair& type, std::uint32_t size_bytes, PlainMessage::Make make,
               PlainMessage::View view);

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
  (detail::add_plain(messages.name, caf::make_rtti_pair<Ts>(), sizeof(Ts), &detail::make_plain<Ts>,
                     &detail::view_plain<Ts>),
   ...);
}

/// Null: the type (the id) is not plain. Whole numbers of 32 and 64 bits, float, double, std::string and
/// std::vector<char> always are. Any thread.
const PlainMessage* find_plain(const caf::rtti_pair& type);
const PlainMessage* find_plain(std::uint32_t id);

}  // namespace troupe
