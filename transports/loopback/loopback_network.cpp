#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "runtime/base/error.hpp"
#include "transports/loopback/detail/network.hpp"

namespace troupe {

Mailbox::Mailbox() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  TROUPE_CHECK_ERRNO(fd_ >= 0, Code::environment, "loopback: no file descriptor left for a mailbox");
}

Mailbox::~Mailbox() { ::close(fd_); }

bool Mailbox::post(Letter letter) {
  const std::scoped_lock hold(mutex_);
  if (closed_) return false;
  content_.letters.push_back(std::move(letter));
  ring();
  return true;
}

void Mailbox::announce_death(Peer peer) {
  const std::scoped_lock hold(mutex_);
  if (closed_) return;
  content_.deaths.push_back(peer);
  ring();
}

Mailbox::Content Mailbox::take() {
  const std::scoped_lock hold(mutex_);
  return std::exchange(content_, {});
}

bool Mailbox::empty() const {
  const std::scoped_lock hold(mutex_);
  return content_.letters.empty() && content_.deaths.empty();
}

void Mailbox::close() {
  const std::scoped_lock hold(mutex_);
  closed_ = true;
  content_ = {};
}

void Mailbox::reset_fd() noexcept {
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto taken = read(fd_, &rings, sizeof rings);
}

void Mailbox::ring() noexcept {
  const std::uint64_t one = 1;
  // Fails only if the counter is full, and then the fd is readable anyway.
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
}

std::shared_ptr<Station> LoopbackHub::enter(Peer peer) {
  auto station = std::make_shared<Station>();
  const std::scoped_lock hold(mutex_);
  TROUPE_CHECK(stations_.emplace(peer, station).second, Code::invalid, "loopback: peer ", peer.value,
               " has an endpoint already; each peer makes one");
  return station;
}

std::shared_ptr<Station> LoopbackHub::find(Peer peer) const {
  const std::scoped_lock hold(mutex_);
  const auto found = stations_.find(peer);
  return found == stations_.end() ? nullptr : found->second;
}

void LoopbackHub::kill(Peer peer) {
  const std::scoped_lock hold(mutex_);
  const auto found = stations_.find(peer);
  if (found == stations_.end() || found->second->dead.exchange(true)) return;
  for (Mailbox& lane : found->second->lanes) lane.close();
  for (const auto& [other, station] : stations_) {
    for (Mailbox& lane : station->lanes) lane.announce_death(peer);
  }
}

LoopbackNetwork::LoopbackNetwork(LoopbackAdversity adversity) : hub_(std::make_shared<LoopbackHub>(adversity)) {
  TROUPE_CHECK(adversity.refuse_percent < 100, Code::invalid, "loopback: refuse_percent is ", adversity.refuse_percent,
               "; nothing would ever be sent, give less than 100");
}

LoopbackNetwork::~LoopbackNetwork() = default;

std::unique_ptr<Transport> LoopbackNetwork::endpoint(Peer self, AddressSpace& space) {
  return make_loopback_endpoint(hub_, self, space);
}

void LoopbackNetwork::kill(Peer peer) { hub_->kill(peer); }

}  // namespace troupe
