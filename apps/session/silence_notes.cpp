#include "apps/session/silence_notes.hpp"

#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

constexpr std::chrono::seconds kBetweenNotes{10};

}  // namespace

SilenceNotes::SilenceNotes(std::vector<std::string> hosts, std::chrono::milliseconds suspect, SessionListener* listener)
    : hosts_(std::move(hosts)), suspect_(suspect), listener_(listener) {}

void SilenceNotes::add(Peer peer, bool suspected, Clock::time_point now) {
  if (!suspected || listener_ == nullptr || peer.value >= hosts_.size()) return;
  const auto [last, first] = noted_at_.try_emplace(peer, now);
  if (!first && now - last->second < kBetweenNotes) return;
  last->second = now;
  listener_->note(
      text("rank ", peer.value, " (", hosts_[peer.value], ") has been silent for ", suspect_.count(),
           " ms; after faults.dead_ms it is declared lost; machines with other work may need a higher value"));
}

}  // namespace troupe
