#include "actors/remote/detail/silence_watch.hpp"

#include <algorithm>
#include <utility>

namespace troupe::remote {

Clock::time_point SilenceWatch::look(Clock::time_point now) {
  const RemoteOptions& options = context_.options;
  if (!options.heartbeats) return Clock::time_point::max();
  if (!detector_) {
    const std::size_t capacity = context_.peers.empty() ? 0 : context_.peers.rbegin()->first.value + 1;
    detector_.emplace(capacity, *options.heartbeats, now);
  }
  for (auto& [number, of] : context_.peers) {
    if (of->dead) continue;
    if (std::exchange(of->received_since_check, false)) {
      if (!detector_->watched(number)) detector_->watch(number, now);
      detector_->heard(number, now);
    }
    if (std::exchange(of->sent_since_check, false)) detector_->sent(number, now);
  }
  const auto findings = detector_->look(now);
  for (const Peer number : findings.heartbeat) frames_.send(*context_.peer(number), {.kind = wire::Kind::heartbeat});
  if (options.suspected) {
    for (const Peer number : findings.suspect) options.suspected(number, true);
    for (const Peer number : findings.recovered) options.suspected(number, false);
  }
  const std::string setting = options.heartbeats_setting.empty() ? "" : text(" (", options.heartbeats_setting, ")");
  for (const Peer number : findings.dead) {
    context_.lose(*context_.peer(number), {Code::peer_lost, text("peer ", number.value, " has been silent for ",
                                                                 options.heartbeats->dead.count(), " ms", setting)});
  }
  return std::min(findings.next, now + options.heartbeats->heartbeat);
}

}  // namespace troupe::remote
