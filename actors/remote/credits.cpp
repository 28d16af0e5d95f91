#include "actors/remote/detail/credits.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace troupe::remote {
namespace {

/// So many counters of actors are not looked through for those that have ended.
constexpr std::size_t kFewEdges = 64;

}  // namespace

void Credits::add_peer(PeerState& peer) {
  peer.intake = std::make_shared<PeerIntake>(context_.lane_access, context_.incoming,
                                             std::max<std::uint64_t>(context_.offers() / wire::kChargeBytes, 1),
                                             [this, &peer] { report(peer); });
}

std::shared_ptr<EdgeIntake>& Credits::intake_of(PeerState& from, caf::actor_id actor, Edge& edge) {
  if (!edge.intake) {
    if (from.edges.size() >= from.edges_swept_at) sweep(from);
    edge.intake = std::make_shared<EdgeIntake>(actor, from.intake);
    from.edges.push_back(edge.intake);
  }
  return edge.intake;
}

/// Removes those of actors that have ended, when none of their messages is in a mailbox. Their counts are of no use any
/// more, and the next report may be far away: without this, many actors with a few messages each would take memory.
void Credits::sweep(PeerState& from) {
  std::erase_if(from.edges, [](const auto& edge) { return edge.use_count() == 1; });
  from.edges_swept_at = 2 * from.edges.size() + kFewEdges;
}

void Credits::count_handled(PeerState& from, const wire::Header& header) {
  if ((header.flags & wire::kFree) == 0) from.intake->handled(wire::charge_in(header.charge), /*on_lane=*/true);
}

void Credits::take_in_window(PeerState& from, const wire::Header& header) {
  if (KnownActor* const to = actors_.find(header.target))
    intake_of(from, header.target, to->edges[from.number])->limit({header.message_id, header.source});
}

bool Credits::look_for_skipped() {
  bool found = false;
  for (auto& [number, of] : context_.peers) {
    if (of->dead) continue;
    const bool much = 8 * of->intake->unreported() >= context_.offers() / wire::kChargeBytes / context_.peers.size();
    bool any = false;
    for (const auto& edge : of->edges) {
      if (!(much || edge->bounded()) || !edge->may_have_skipped()) continue;
      const KnownActor* const known = actors_.find_known(edge->actor);
      if (known == nullptr || known->at_rest == nullptr || !known->at_rest(*known->actor->get())) continue;
      edge->all_seen();
      any = true;
    }
    if (any) report(*of);
    found |= any;
  }
  return found;
}

/// Reports how much of a peer's messages has been handled, in all and for each actor where that changed.
void Credits::report(PeerState& to) {
  if (to.dead || context_.ended) return;
  constexpr std::size_t kMost = (Transport::kMaxHeadBytes - wire::kHeaderBytes) / sizeof(wire::EdgeCredit);
  Amount skipped;
  for (const auto& edge : to.edges) {
    const Amount more = edge->skipped();
    skipped.messages += more.messages;
    skipped.charge += more.charge;
  }
  const Amount all = to.intake->begin_report(skipped);
  std::vector<wire::EdgeCredit> edges;
  const auto send = [&] {
    std::vector<std::byte> head(wire::kHeaderBytes + edges.size() * sizeof(wire::EdgeCredit));
    const wire::Header header{.kind = wire::Kind::credit, .message_id = all.messages, .source = all.charge};
    wire::store(header, std::span(head).first<wire::kHeaderBytes>());
    if (!edges.empty())
      std::memcpy(head.data() + wire::kHeaderBytes, edges.data(), edges.size() * sizeof(wire::EdgeCredit));
    edges.clear();
    frames_.send(to, head);
  };
  for (const auto& edge : to.edges) {
    if (!edge->has_unreported()) continue;
    const Amount amount = edge->report();
    edges.push_back({edge->actor, amount.messages, amount.charge});
    if (edges.size() == kMost) send();
  }
  send();
  sweep(to);
}

}  // namespace troupe::remote
