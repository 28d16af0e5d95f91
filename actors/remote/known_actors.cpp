#include "actors/remote/detail/known_actors.hpp"

#include <caf/actor_registry.hpp>
#include <caf/blocking_actor.hpp>
#include <caf/scheduled_actor.hpp>
#include <utility>

namespace troupe::remote {
namespace {

auto rest_test(caf::abstract_actor& actor) -> bool (*)(caf::abstract_actor&) {
  if (dynamic_cast<caf::scheduled_actor*>(&actor) != nullptr)
    return [](caf::abstract_actor& of) { return dynamic_cast<caf::scheduled_actor&>(of).mailbox().blocked(); };
  if (dynamic_cast<caf::blocking_actor*>(&actor) != nullptr)
    return [](caf::abstract_actor& of) { return dynamic_cast<caf::blocking_actor&>(of).mailbox().blocked(); };
  return nullptr;
}

}  // namespace

KnownActor& KnownActors::make_known(const caf::strong_actor_ptr& actor) {
  const auto [entry, fresh] = actors_.try_emplace(actor->id());
  if (fresh) {
    entry->second.actor = actor;
    entry->second.inline_handler = dynamic_cast<troupe::detail::InlineHandler*>(actor->get());
    entry->second.at_rest = rest_test(*actor->get());
    context_.system.registry().put(actor->id(), actor);
    // Called on the thread on which the actor ends, perhaps after this object was destroyed: the lane access still
    // exists and is closed then.
    actor->get()->attach_functor(
        [this, lane_access = context_.lane_access, id = actor->id()](const caf::error& reason) {
          lane_access->run([this, id, reason] { end(id, reason); });
        });
  }
  return entry->second;
}

KnownActor* KnownActors::find_known(caf::actor_id actor) {
  const auto found = actors_.find(actor);
  return found == actors_.end() ? nullptr : &found->second;
}

/// Sets last_found_: null if there is no such actor.
void KnownActors::look_up(caf::actor_id actor) {
  auto found = actors_.find(actor);
  if (found == actors_.end()) {
    if (const caf::strong_actor_ptr registered = context_.system.registry().get(actor)) {
      make_known(registered);
      found = actors_.find(actor);
    }
  }
  last_found_ = found == actors_.end() ? nullptr : &*found;
}

void KnownActors::end(caf::actor_id actor, const caf::error& reason) {
  last_sender_ = nullptr;
  last_found_ = nullptr;
  auto entry = actors_.extract(actor);
  if (!entry.empty() && !context_.ended) ended_(std::move(entry.mapped()), actor, reason);
}

void KnownActors::forget_all() {
  for (const auto& [id, known] : actors_) {
    if (id != kDirectory) context_.system.registry().erase(id);
  }
  last_sender_ = nullptr;
  last_found_ = nullptr;
  actors_.clear();
}

}  // namespace troupe::remote
