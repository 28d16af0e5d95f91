#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/make_type_erased_value.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/sec.hpp>
#include <caf/typed_actor.hpp>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <typeinfo>

// All syntax that depends on the version of CAF (0.17): this file, and those in actors/remote, are the only ones that
// change with it.

/// Marks types as messages that never leave their process. Use it outside of any namespace.
#define TROUPE_LOCAL_MESSAGE(...)            \
  template <class T>                         \
  requires troupe::is_one_of<T, __VA_ARGS__> \
  struct caf::allowed_unsafe_message_type<T> : std::true_type {};

/// Defines how CAF reads and writes a message that may be sent to other processes, and shows it: by these fields of the
/// message `x`. Use it in the message's namespace.
#define TROUPE_MESSAGE_FIELDS(Type, ...)                                        \
  template <class Inspector>                                                    \
  auto inspect(Inspector& f, [[maybe_unused]] Type& x) {                        \
    return f(caf::meta::type_name("troupe." #Type) __VA_OPT__(, ) __VA_ARGS__); \
  }

/// The same for a message that is refused where `valid`, a condition on `x`, is false.
#define TROUPE_CHECKED_MESSAGE_FIELDS(Type, valid, ...)                                                          \
  template <class Inspector>                                                                                     \
  auto inspect(Inspector& f, Type& x) {                                                                          \
    auto loaded = [&]() -> caf::error { return valid ? caf::error{} : caf::error{caf::sec::invalid_argument}; }; \
    return f(caf::meta::type_name("troupe." #Type), __VA_ARGS__, caf::meta::load_callback(loaded));              \
  }

namespace troupe {

template <class T, class... Ts>
concept is_one_of = (std::same_as<T, Ts> || ...);

/// A handle to an actor that accepts the listed messages.
template <class... Signatures>
using ActorOf = caf::typed_actor<Signatures...>;
/// One message, without an answer.
template <class... Parts>
using Takes = caf::reacts_to<Parts...>;

/// A message type that may be sent to other processes, with its name, which is the same in all of them.
template <class T>
struct MessageName {
  const char* name;
};
template <class... Ts>
void add_messages(caf::actor_system_config& config, const MessageName<Ts>&... messages) {
  (config.template add_message_type<Ts>(messages.name), ...);
}

/// As add_messages, for types that are only sent as they are: CAF would also have a std::vector and a stream of each
/// compiled, which is a third of what a message costs the compiler.
template <class... Ts>
void add_messages_without_lists(caf::actor_system_config& config, const MessageName<Ts>&... messages) {
  const auto add = [&](const char* name, const std::type_info& type, caf::type_erased_value_ptr (*make)()) {
    config.type_names_by_rtti.emplace(type, name);
    config.value_factories_by_name.emplace(name, make);
    config.value_factories_by_rtti.emplace(type, make);
  };
  (add(messages.name, typeid(Ts), &caf::make_type_erased_value<Ts>), ...);
}

/// A hash of the names of all messages that `config` knows, including CAF's own. Processes with different hashes would
/// not understand each other, so it is compared in the hello. It does not depend on the order of registration.
std::uint64_t message_table_hash(const caf::actor_system_config& config);

}  // namespace troupe
