#include "actors/remote/detail/backlog.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/remote/detail/memory_return.hpp"
#include "actors/remote/detail/outbound.hpp"
#include "actors/remote/detail/proxies.hpp"

namespace troupe::remote {

/// An actor may have as much unhandled as remains for all others together. Thus several slow actors get equal parts,
/// and the same amount stays free for those that are not slow. For urgent messages it is twice as much, so ordinary
/// ones leave some for them. Source: Choudhury and Hahne 1998 (dynamic thresholds of shared buffers).
bool Backlog::has_space(const Proxy& proxy, bool is_urgent) const noexcept {
  const auto& of = proxy.peer().backlog;
  const std::uint64_t used = of.credit.in_use().charge;
  return used < of.share && proxy.credit.in_use().charge < (is_urgent ? 2 : 1) * (of.share - used);
}

bool Backlog::may_send(const Proxy& proxy, const caf::mailbox_element& message) const noexcept {
  const bool is_first = proxy.blocked.empty() || (may_overtake(message) && proxy.not_overtaken == 0);
  return is_first && (has_space(proxy, message.mid.is_urgent_message()) || is_free(message));
}

/// Whether it overtakes ordinary messages: as in a mailbox of CAF's, except that answers, exit messages and changes of
/// links keep their places.
bool Backlog::may_overtake(const caf::mailbox_element& message) noexcept {
  return message.mid.is_urgent_message() && !is_free(message);
}

void Backlog::block(Proxy& proxy, caf::mailbox_element_ptr message) {
  PeerState& to = proxy.peer();
  unfinished_.begin();
  to.outgoing->messages.fetch_add(1, std::memory_order_relaxed);
  if (proxy.blocked.empty()) to.backlog.proxies.emplace_back(proxy.ctrl());
  const bool is_link = message->sender.get() == proxy.ctrl();
  Charge charge(context_.outgoing, is_link ? wire::kMessageBytes : cost_of(context_.system, *message));
  auto& blocked = proxy.blocked;
  auto place = blocked.end();
  std::uint64_t ticket = to.backlog.next_ticket++;
  if (may_overtake(*message)) {
    place = blocked.begin() + static_cast<std::ptrdiff_t>(proxy.not_overtaken++);
    if (place != blocked.end()) ticket = place->ticket;  // so that the first ticket is the oldest
  } else if (is_link || is_free(*message)) {
    proxy.not_overtaken = blocked.size() + 1;
  }
  blocked.insert(place, {ticket, std::move(message), std::move(charge)});
  memory_.note(context_.outgoing->used());
}

void Backlog::take_in_credit(PeerState& from, const wire::Header& header, std::span<const std::byte> edges,
                             Proxies& proxies) {
  from.backlog.credit.take_report({header.message_id, header.source});
  from.counts.unhandled.set(from.backlog.credit.in_use().messages);
  for (wire::EdgeCredit edge; edges.size() >= sizeof edge; edges = edges.subspan(sizeof edge)) {
    std::memcpy(&edge, edges.data(), sizeof edge);
    const auto known = proxies.find(from, edge.actor);
    if (!known) continue;
    auto& proxy = static_cast<Proxy&>(*known->get());
    const Amount handled = proxy.credit.take_report({edge.messages, edge.charge});
    if (SendWindow* const send_window = proxy.send_window())
      send_window->leave(handled.messages, handled.charge * wire::kChargeBytes);
  }
  if (!from.backlog.proxies.empty()) send_blocked(from);
}

void Backlog::send_blocked(PeerState& to) {
  auto& turns = to.backlog.proxies;
  for (std::size_t left = turns.size(); left > 0; --left) {
    const caf::strong_actor_ptr next = std::move(turns.front());
    turns.pop_front();
    auto& proxy = static_cast<Proxy&>(*next->get());
    const auto may_go = [&](const caf::mailbox_element& first) {
      return is_free(first) || has_space(proxy, first.mid.is_urgent_message());
    };
    while (!proxy.blocked.empty() && may_go(*proxy.blocked.front().message)) {
      const caf::mailbox_element_ptr message = std::move(proxy.blocked.front().message);
      proxy.blocked.pop_front();
      if (proxy.not_overtaken > 0) --proxy.not_overtaken;
      outbound_.send_now(proxy, *message);
      to.outgoing->messages.fetch_sub(1, std::memory_order_relaxed);
      unfinished_.end();
    }
    if (!proxy.blocked.empty()) turns.push_back(next);
  }
  send_down_notices(to);
}

/// Sends those that no earlier blocked message precedes.
void Backlog::send_down_notices(PeerState& to) {
  auto& notices = to.backlog.down_notices;
  if (notices.empty()) return;
  std::uint64_t oldest = to.backlog.next_ticket;
  for (const auto& proxy : to.backlog.proxies)
    oldest = std::min(oldest, static_cast<Proxy&>(*proxy->get()).blocked.front().ticket);
  while (!notices.empty() && notices.front().first < oldest) {
    const auto [ticket, ended] = std::move(notices.front());
    notices.pop_front();
    outbound_.send_down(to, ended);
    unfinished_.end();
  }
}

void Backlog::report_end(PeerState& to, caf::actor_id actor, const caf::error& reason) {
  if (to.backlog.proxies.empty()) return outbound_.send_down(to, {actor, reason});
  unfinished_.begin();
  to.backlog.down_notices.push_back({to.backlog.next_ticket++, {actor, reason}});
}

void Backlog::drop(Proxy& proxy, const caf::error& why) {
  PeerState& to = proxy.peer();
  if (proxy.blocked.empty()) return;
  std::erase_if(to.backlog.proxies, [&](const auto& other) { return other.get() == proxy.ctrl(); });
  proxy.not_overtaken = 0;
  for (const Proxy::Blocked& entry : std::exchange(proxy.blocked, {})) {
    answer(entry.message->sender, entry.message->mid, why);
    to.outgoing->messages.fetch_sub(1, std::memory_order_relaxed);
    unfinished_.end();
  }
  send_down_notices(to);
}

void Backlog::drop(PeerState& to, const caf::error& why) {
  for (auto& notices = to.backlog.down_notices; !notices.empty(); notices.pop_front()) unfinished_.end();
  while (!to.backlog.proxies.empty()) {
    const caf::strong_actor_ptr next = to.backlog.proxies.front();
    drop(static_cast<Proxy&>(*next->get()), why);
  }
}

}  // namespace troupe::remote
