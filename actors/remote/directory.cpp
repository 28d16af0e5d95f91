#include "actors/remote/detail/directory.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <map>
#include <string>
#include <vector>

#include "actors/caf_error.hpp"

namespace troupe::remote {
namespace {

/// A class, because CAF 0.17 reads through a null pointer when it spawns a function that takes nothing but `self`.
class Directory final : public caf::event_based_actor {
 public:
  explicit Directory(caf::actor_config& config) : event_based_actor(config) {
    set_default_handler(caf::drop);  // peers may send anything: an error for them, and no word here
    set_down_handler([this](const caf::down_msg& down) {
      std::erase_if(actors_, [&](const auto& entry) { return entry.second.address() == down.source; });
    });
  }
  const char* name() const override { return "directory"; }
  void on_exit() override {  // a promise holds this actor
    for (auto& [name, waiting] : waiting_) {
      for (auto& request : waiting) request.deliver(to_caf(Status{Code::aborted, "its process is ending"}));
    }
    waiting_.clear();
    actors_.clear();
  }

 private:
  caf::behavior make_behavior() override {
    return {[this](Publish, const std::string& name, const caf::actor& actor) { publish(name, actor); },
            [this](Find, const std::string& name) { return find(name); }};
  }

  void publish(const std::string& name, const caf::actor& actor) {
    if (!actors_.emplace(name, actor).second) return;  // the first stays
    monitor(actor);
    auto waiting = waiting_.extract(name);
    if (waiting.empty()) return;
    for (auto& request : waiting.mapped()) request.deliver(actor);
  }

  caf::result<caf::actor> find(const std::string& name) {
    if (const auto found = actors_.find(name); found != actors_.end()) return found->second;
    waiting_[name].push_back(make_response_promise());
    return caf::delegated<caf::actor>{};
  }

  std::map<std::string, caf::actor> actors_;
  std::map<std::string, std::vector<caf::response_promise>> waiting_;
};

}  // namespace

caf::actor spawn_directory(caf::actor_system& system) { return system.spawn<Directory, caf::hidden>(); }

}  // namespace troupe::remote
