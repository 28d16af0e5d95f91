#include "actors/group/detail/messages.hpp"

#include <caf/actor_system.hpp>
#include <caf/uniform_type_info_map.hpp>

#include "runtime/base/error.hpp"

namespace troupe::group {

void check_travels(caf::actor_system& system, const caf::message& message) {
  const auto& types = system.types();
  for (std::size_t i = 0; i < message.size(); ++i) {
    const caf::rtti_pair type = message.type(i);
    TROUPE_CHECK(types.portable_name(type) != types.default_type_name(), Code::unsupported, "part ", i,
                 " of a message (", type.second != nullptr ? type.second->name() : "?",
                 ") cannot leave this process: its type is not registered under a name, or stays in its process; add "
                 "it to the list given to add_messages in every process");
    if (message.match_element<caf::message>(i)) check_travels(system, message.get_as<caf::message>(i));
  }
}

}  // namespace troupe::group
