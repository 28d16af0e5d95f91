#include "actors/remote/detail/proxies.hpp"

#include <algorithm>
#include <caf/actor_cast.hpp>
#include <caf/exit_reason.hpp>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/outbound.hpp"

namespace troupe::remote {

Proxies::Proxies(Context& context, FrameSender& frames, Outbound& outbound)
    : context_(context), frames_(frames), outbound_(outbound), registry_(context.system, *this) {
  context_.unit.proxy_registry_ptr(&registry_);
}

void Proxies::clear() {
  for (Proxy* next = new_.take_all(); next != nullptr;) {
    const caf::strong_actor_ptr proxy(std::exchange(next, next->next_new)->ctrl(), false);
  }
  registry_.clear();
}

caf::actor Proxies::handle(Peer number, caf::actor_id actor) {
  PeerState* const of = context_.peer(number);
  TROUPE_CHECK(of != nullptr, Code::invalid, "peer ", number.value, " is not known here; add_peer comes first");
  return caf::actor_cast<caf::actor>(registry_.get_or_put(of->node, actor));
}

caf::strong_actor_ptr Proxies::make_proxy(caf::node_id node, caf::actor_id actor) {
  PeerState* const of = context_.peer(node);
  if (of == nullptr || actor == caf::invalid_actor_id) return nullptr;
  caf::actor_config config;
  auto made = caf::make_actor<Proxy, caf::strong_actor_ptr>(actor, node, &context_.system, config, outbound_, *of);
  auto* const proxy = static_cast<Proxy*>(made->get());
  intrusive_ptr_add_ref(proxy->ctrl());
  new_.push(*proxy);
  proxy->wake();
  const std::uint32_t most = context_.options.max_actors;
  const std::uint32_t every = std::max(most / 8, 1u);
  if (of->proxies_made.fetch_add(1, std::memory_order_relaxed) % every == every - 1) {
    context_.lane_access->run([this, of, most] {
      if (!of->dead && count(*of) > most)
        context_.lose_later(*of, "too many of its actors are known here (RemoteOptions::max_actors)");
    });
  }
  return made;
}

void Proxies::serve_all_new() {
  Proxy* next = new_.take_all();
  while (next != nullptr) {
    const caf::strong_actor_ptr proxy(next->ctrl(), false);
    serve(*std::exchange(next, next->next_new));
  }
}

void Proxies::serve(Proxy& proxy) {
  if (std::exchange(proxy.watched, true)) return;
  PeerState& to = proxy.peer();
  if (to.dead || context_.ended) {
    end(to, proxy.id(), to.dead ? unreachable(to.why) : to_caf(Status{Code::aborted, "this process is ending"}));
    return;
  }
  frames_.send(to, {.kind = wire::Kind::monitor, .target = proxy.id()});
}

void Proxies::end_all(const PeerState& of, const caf::error& reason) {
  for (const auto& proxy : registry_.get_all(of.node)) {
    if (proxy) end(of, proxy->id(), reason);
  }
}

/// The reason that CAF's own networking gives, with our text.
caf::error Proxies::unreachable(const Status& why) {
  return {static_cast<std::uint8_t>(caf::exit_reason::remote_link_unreachable), caf::atom("exit"),
          caf::make_message(std::string{why.text()})};
}

}  // namespace troupe::remote
