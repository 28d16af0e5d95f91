#include <algorithm>
#include <future>

#include <caf/local_actor.hpp>

#include "actors/remote/detail/engine.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"

// Information about the remote actors for counters and reports.
namespace troupe::remote {
namespace {

constexpr std::size_t kMostActors = 100;

/// Returns "server 17".
std::string name_of(const caf::strong_actor_ptr& actor) {
  const auto* const local = dynamic_cast<const caf::local_actor*>(actor->get());
  return text(local != nullptr ? local->name() : "actor", ' ', actor->id());
}

}  // namespace

RemoteCounters Engine::counters() const noexcept {
  const auto& counts = context_.counts;
  return {counts.sent.get(), counts.delivered.get(), counts.reordered.get(), counts.dropped.get()};
}

PeerCounters Engine::counters(Peer number) {
  const PeerState* const of = context_.peer(number);
  TROUPE_CHECK(of != nullptr, Code::invalid, "peer ", number.value, " is not known here");
  const auto& from = of->counts;
  PeerCounters counters{.messages_sent = from.messages_sent.get(),
                        .bytes_sent = from.bytes_sent.get(),
                        .messages_received = from.messages_received.get(),
                        .bytes_received = from.bytes_received.get(),
                        .batches_sent = from.batches_sent.get(),
                        .batched_sent = from.batched_sent.get(),
                        .unhandled = from.unhandled.get(),
                        .waiting = of->outgoing->messages.load(std::memory_order_relaxed),
                        .sends_refused = of->outgoing->sends_refused.load(std::memory_order_relaxed)};
  std::ranges::transform(from.answer_ns_log2, counters.answer_ns_log2.begin(), &Tally::get);
  return counters;
}

std::string Engine::describe(Deadline deadline) {
  const auto answer = std::make_shared<std::promise<std::string>>();
  TROUPE_CHECK(context_.lane_access->run([this, answer] { answer->set_value(report()); }), Code::aborted,
               "this process has ended its connection to other processes");
  auto report = answer->get_future();
  TROUPE_CHECK(report.wait_until(deadline.at()) == std::future_status::ready, Code::timeout,
               "the control lane did not answer in time: an inline actor may hold it up");
  return report.get();
}

/// On the control lane.
std::string Engine::report() {
  TextStream out;
  for (const auto& [number, of] : context_.peers) {
    const PeerCounters c = counters(number);
    out << "peer " << number.value << (of->dead ? " (lost)" : "") << ": sent " << c.messages_sent << " messages, "
        << c.bytes_sent << " bytes, " << c.batches_sent << " batches; received " << c.messages_received << ", "
        << c.bytes_received << " bytes; unhandled there " << c.unhandled << " messages, waiting here " << c.waiting
        << ", refused " << c.sends_refused << '\n';
  }
  out << "messages here take " << context_.outgoing->used() << " bytes on their way out and "
      << context_.incoming->used() << " in mailboxes, of " << context_.outgoing->limit() << " each\n";
  std::size_t listed = 0;
  for (const auto& [id, local] : actors_.all()) {
    if (id == kDirectory) continue;
    if (++listed > kMostActors) {
      out << "and " << actors_.all().size() - kMostActors << " more actors\n";
      break;
    }
    out << name_of(local.actor);
    std::uint64_t waiting = 0;
    std::size_t early = 0;
    for (const auto& [from, edge] : local.edges) {
      if (edge.intake) waiting += edge.intake->in_mailbox();
      early += edge.held.size();
    }
    out << ": " << waiting << " messages of peers in its mailbox";
    if (early > 0) out << ", " << early << " before their turn";
    out << '\n';
  }
  requests_.each([&](const OpenRequest& request) {
    out << "actor " << request.requester << " waits for an answer of actor " << request.target << " at peer "
        << request.peer.value << '\n';
  });
  return out.str();
}

}  // namespace troupe::remote
