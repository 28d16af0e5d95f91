#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/sec.hpp>
#include <caf/typed_actor.hpp>
#include <cstdint>

// All syntax that depends on the version of CAF (0.17): this file, and those in actors/remote, are the only ones that
// change with it.

/// Marks a type as a message that never leaves its process. Use it outside of any namespace.
#define TROUPE_LOCAL_MESSAGE(Type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(Type)

/// Defines how CAF reads and writes a message that may be sent to other processes, and shows it: by these fields of the
/// message `x`. Use it in the message's namespace.
#define TROUPE_MESSAGE_FIELDS(Type, ...)                                        \
  template <class Inspector>                                                    \
  auto inspect(Inspector& f, [[maybe_unused]] Type& x) {                        \
    return f(caf::meta::type_name("troupe." #Type) __VA_OPT__(, ) __VA_ARGS__); \
  }

namespace troupe {

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

/// A hash of the names of all messages that `config` knows, including CAF's own. Processes with different hashes would
/// not understand each other, so it is compared in the hello. It does not depend on the order of registration.
std::uint64_t message_table_hash(const caf::actor_system_config& config);

}  // namespace troupe
