#include "actors/remote/detail/window_watcher.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/sec.hpp>
#include <caf/send.hpp>
#include <map>
#include <utility>
#include <vector>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/proxy.hpp"

namespace troupe::remote {
namespace {

using HasSpace = caf::atom_constant<caf::atom("has_space")>;

class WindowWatcher final : public caf::event_based_actor {
 public:
  explicit WindowWatcher(caf::actor_config& config) : event_based_actor(config) { set_default_handler(caf::drop); }
  const char* name() const override { return "window watcher"; }
  void on_exit() override {
    for (auto& [to, waiting] : waiting_) {
      for (auto& request : waiting) request.deliver(to_caf(Status{Code::aborted, "its process is ending"}));
    }
    waiting_.clear();
  }

 private:
  caf::behavior make_behavior() override {
    return {[this](RemoteActors::WantSpace, const caf::actor& to) { return wait(to); },
            [this](HasSpace, const caf::actor& to) {
              auto waiting = waiting_.extract(to);
              if (waiting.empty()) return;
              for (auto& request : waiting.mapped()) answer(request, to);
            }};
  }

  caf::result<void> wait(const caf::actor& to) {
    auto promise = make_response_promise();
    SendWindow* const send_window = send_window_of(to);
    if (send_window == nullptr) {
      answer(promise, to);
      return caf::delegated<void>{};
    }
    auto& waiting = waiting_[to];
    waiting.push_back(std::move(promise));
    if (waiting.size() == 1) {
      // Called by the thread that makes the space; the address does not keep this actor alive.
      send_window->when_there_is_space([self = caf::actor_cast<caf::actor_addr>(this), to] {
        if (const auto keeper = caf::actor_cast<caf::actor>(self)) caf::anon_send(keeper, HasSpace::value, to);
      });
    }
    return caf::delegated<void>{};
  }

  static SendWindow* send_window_of(const caf::actor& to) {
    auto* const proxy = dynamic_cast<Proxy*>(caf::actor_cast<caf::abstract_actor*>(to));
    return proxy == nullptr ? nullptr : proxy->send_window();
  }

  static void answer(caf::response_promise& request, const caf::actor& to) {
    const auto* const proxy = dynamic_cast<const Proxy*>(caf::actor_cast<caf::abstract_actor*>(to));
    if (proxy != nullptr && !proxy->alive()) {
      request.deliver(caf::make_error(caf::sec::request_receiver_down));
    } else {
      request.deliver(caf::unit);
    }
  }

  std::map<caf::actor, std::vector<caf::response_promise>> waiting_;
};

}  // namespace

caf::actor spawn_window_watcher(caf::actor_system& system) { return system.spawn<WindowWatcher, caf::hidden>(); }

}  // namespace troupe::remote
