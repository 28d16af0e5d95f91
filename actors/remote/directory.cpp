#include "actors/remote/detail/directory.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/caf_error.hpp"

namespace troupe::remote {
namespace {

/// A class, because CAF 0.17 reads a null pointer when it spawns a function with no argument but `self`.
class Directory final : public caf::event_based_actor {
 public:
  explicit Directory(caf::actor_config& config) : event_based_actor(config) {
    set_default_handler(caf::drop);  // peers may send anything: the answer is an error, and nothing is printed
    set_down_handler([this](const caf::down_msg& down) {
      std::erase_if(actors_, [&](const auto& entry) { return entry.second.address() == down.source; });
    });
  }
  const char* name() const override { return "directory"; }
  void on_exit() override {  // a promise keeps this actor alive
    for (auto& [name, waiting] : waiting_) {
      for (auto& each : waiting) each.request.deliver(to_caf(Status{Code::aborted, "its process is ending"}));
    }
    waiting_.clear();
    actors_.clear();
  }

 private:
  using Takes = std::set<std::string>;  // the messages of a handle, in CAF's notation; empty for a caf::actor
  struct Waiting {
    caf::response_promise request;
    std::optional<Takes> takes;
  };

  caf::behavior make_behavior() override {
    return {[this](Publish, const std::string& name, const caf::actor& actor) { publish(name, actor); },
            [this](Find, const std::string& name) { return find(name, std::nullopt); },
            [this](Find, const std::string& name, const Takes& takes) { return find(name, takes); }};
  }

  void publish(const std::string& name, const caf::actor& actor) {
    if (has_ended(actor)) return;  // or is empty: any process can send this message
    forget_ended(name);
    if (!actors_.emplace(name, actor).second) return;  // the first one stays
    monitor(actor);
    auto waiting = waiting_.extract(name);
    if (waiting.empty()) return;
    for (auto& [request, takes] : waiting.mapped()) {
      if (const Status status = fits(actor, takes); status.ok()) {
        request.deliver(actor);
      } else {
        request.deliver(to_caf(status));
      }
    }
  }

  caf::result<caf::actor> find(const std::string& name, const std::optional<Takes>& takes) {
    forget_ended(name);
    if (const auto found = actors_.find(name); found != actors_.end()) {
      if (const Status status = fits(found->second, takes); !status.ok()) return to_caf(status);
      return found->second;
    }
    auto& waiting = waiting_[name];
    std::erase_if(waiting, [](const Waiting& each) { return has_ended(each.request.source()); });  // who gave up
    waiting.push_back({make_response_promise(), takes});
    return caf::delegated<caf::actor>{};
  }

  /// Also true of an empty handle.
  template <class Handle>
  static bool has_ended(const Handle& actor) {
    return !actor || caf::actor_cast<caf::abstract_actor*>(actor)->getf(caf::abstract_actor::is_terminated_flag);
  }
  /// A name is free as soon as its actor has ended, and whoever learns that may publish it again: the DOWN message may
  /// come later.
  void forget_ended(const std::string& name) {
    if (const auto found = actors_.find(name); found != actors_.end() && has_ended(found->second)) actors_.erase(found);
  }

  /// Whether a handle with the messages `takes` may refer to this actor. For an actor of another process this cannot be
  /// checked here.
  Status fits(const caf::actor& actor, const std::optional<Takes>& takes) {
    if (!takes || actor.node() != system().node()) return {};
    const Takes its = caf::actor_cast<caf::abstract_actor*>(actor)->message_types();
    if (system().assignable(its, *takes)) return {};
    return {Code::unsupported,
            text("its actor ", describe(its), "; the handle is of an actor that ", describe(*takes))};
  }

  static std::string describe(const Takes& takes) {
    if (takes.empty()) return "is not typed (caf::actor)";
    std::string all;
    for (const std::string& one : takes) all += (all.empty() ? "takes " : ", ") + one;
    return all;
  }

  std::map<std::string, caf::actor> actors_;
  std::map<std::string, std::vector<Waiting>> waiting_;
};

}  // namespace

caf::actor spawn_directory(caf::actor_system& system) { return system.spawn<Directory, caf::hidden>(); }

}  // namespace troupe::remote
