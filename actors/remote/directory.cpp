#include "actors/remote/detail/directory.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/stateful_actor.hpp>
#include <map>
#include <string>
#include <vector>

namespace troupe::remote {
namespace {

struct DirectoryState {
  static constexpr const char* name = "directory";
  std::map<std::string, caf::actor> actors;
  std::map<std::string, std::vector<caf::response_promise>> waiting;
};
using Self = caf::stateful_actor<DirectoryState>*;

void publish(Self self, const std::string& name, const caf::actor& actor) {
  auto& s = self->state;
  if (!s.actors.emplace(name, actor).second) return;  // the first stays
  self->monitor(actor);
  auto waiting = s.waiting.extract(name);
  if (waiting.empty()) return;
  for (auto& request : waiting.mapped()) request.deliver(actor);
}

caf::behavior directory(Self self) {
  self->set_down_handler([self](const caf::down_msg& down) {
    std::erase_if(self->state.actors, [&](const auto& entry) { return entry.second.address() == down.source; });
  });
  return {
      [=](Publish, const std::string& name, const caf::actor& actor) { publish(self, name, actor); },
      [=](Find, const std::string& name) -> caf::result<caf::actor> {
        auto& s = self->state;
        if (const auto found = s.actors.find(name); found != s.actors.end()) return found->second;
        auto later = self->make_response_promise();
        s.waiting[name].push_back(later);
        return caf::delegated<caf::actor>{};
      },
  };
}

}  // namespace

caf::actor spawn_directory(caf::actor_system& system) { return system.spawn<caf::hidden>(directory); }

}  // namespace troupe::remote
