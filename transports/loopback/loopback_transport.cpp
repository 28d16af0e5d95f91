#include "transports/loopback/loopback_transport.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "transports/loopback/detail/network.hpp"

namespace troupe {
namespace {

using Stations = std::map<Peer, std::shared_ptr<Station>>;
using Receivers = std::array<std::atomic<Receiver*>, 2>;

std::size_t place(Channel channel) { return static_cast<std::size_t>(channel) - 1; }

std::uint64_t total_bytes(std::span<const Memory> pieces) {
  std::uint64_t sum = 0;
  for (const Memory& piece : pieces) sum += piece.size_bytes;
  return sum;
}

/// A message that has not been sent yet: its payload is still the sender's memory.
struct Leaving {
  std::uint32_t rounds;
  Peer to;
  std::shared_ptr<Station> station;
  Letter letter;
  std::vector<Memory> payload;
  SendDone* done;
};

/// A message that has a landing but has not been written there yet.
struct Landing {
  std::uint32_t rounds;
  Receiver* receiver;  // the receiver that provided the memory
  Letter letter;
  Memory memory;
};

struct Told {
  SendDone* done;
  Status status;
};

/// One lane of one endpoint; all functions are called by the lane's owner.
class LoopbackLane {
 public:
  LoopbackLane(Lane lane, Peer self, AddressSpace& space, LoopbackAdversity adversity, Station& station,
               const Receivers& receivers)
      : lane_(lane),
        self_(self),
        space_(space),
        adversity_(adversity),
        station_(station),
        inbox_(station.lanes[static_cast<std::size_t>(lane)]),
        receivers_(receivers),
        random_(adversity.seed + 2 * self.value + static_cast<std::uint64_t>(lane)) {}

  bool send(Peer to, std::shared_ptr<Station> station, Channel channel, std::span<const std::byte> head,
            std::span<const Memory> payload, SendDone& done);
  bool progress();
  bool arm();
  int fd() const noexcept { return inbox_.fd(); }
  void fence(Peer peer, const Status& why) noexcept;
  /// Tells all that still wait that the transport has ended.
  void end() noexcept;

 private:
  std::uint32_t delay() {
    return adversity_.delay_rounds == 0 ? 0 : static_cast<std::uint32_t>(random_() % (adversity_.delay_rounds + 1));
  }
  bool send_due();
  bool deliver_due();
  bool take_mail();
  void accept(Letter letter);
  void deliver(Landing landing);
  void lose(Peer peer);
  void sweep();
  bool tell();

  const Lane lane_;
  const Peer self_;
  AddressSpace& space_;
  const LoopbackAdversity adversity_;
  Station& station_;
  Mailbox& inbox_;
  const Receivers& receivers_;
  std::mt19937_64 random_;
  std::list<Leaving> leaving_;
  std::list<Landing> landings_;
  std::vector<Told> told_;
  std::map<Peer, Status> cut_;  // fenced or lost peers, with the reason
  bool sweep_ = false;          // cut_ has a new entry
};

bool LoopbackLane::send(Peer to, std::shared_ptr<Station> station, Channel channel, std::span<const std::byte> head,
                        std::span<const Memory> payload, SendDone& done) {
  if (random_() % 100 < adversity_.refuse_percent) return false;
  if (const auto cut = cut_.find(to); cut != cut_.end()) {
    told_.push_back({&done, cut->second});
  } else if (station == nullptr) {
    told_.push_back({&done, {Code::peer_lost, text("peer ", to.value, " is not connected")}});
  } else {
    Letter letter{self_, channel, {head.begin(), head.end()}, {}};
    leaving_.push_back({delay(), to, std::move(station), std::move(letter), {payload.begin(), payload.end()}, &done});
  }
  return true;
}

bool LoopbackLane::progress() {
  if (station_.dead.load()) return false;
  if (std::exchange(sweep_, false)) sweep();
  bool did = deliver_due();
  did |= take_mail();
  did |= send_due();
  did |= tell();
  return did;
}

bool LoopbackLane::arm() {
  if (station_.dead.load()) return true;
  inbox_.reset_fd();
  return !sweep_ && leaving_.empty() && landings_.empty() && told_.empty() && inbox_.empty();
}

bool LoopbackLane::send_due() {
  bool did = false;
  for (auto next = leaving_.begin(); next != leaving_.end(); did = true) {
    const auto message = next++;
    if (message->rounds-- > 0) continue;
    Letter& letter = message->letter;
    letter.payload.reserve(total_bytes(message->payload));
    for (const Memory& piece : message->payload) {
      if (piece.size_bytes == 0) continue;
      const std::byte* from = space_.address(piece);
      letter.payload.insert(letter.payload.end(), from, from + piece.size_bytes);
    }
    const bool taken = message->station->lanes[static_cast<std::size_t>(lane_)].post(std::move(letter));
    told_.push_back(
        {message->done, taken ? Status{} : Status{Code::peer_lost, text("peer ", message->to.value, " has ended")}});
    leaving_.erase(message);
  }
  return did;
}

bool LoopbackLane::take_mail() {
  Mailbox::Content mail = inbox_.take();
  for (Letter& letter : mail.letters) accept(std::move(letter));
  for (const Peer peer : mail.deaths) lose(peer);
  return !mail.letters.empty() || !mail.deaths.empty();
}

void LoopbackLane::accept(Letter letter) {
  Receiver* const receiver = receivers_[place(letter.channel)];
  if (receiver == nullptr || cut_.contains(letter.from)) return;
  if (letter.payload.empty()) {
    receiver->arrived(letter.from, lane_, letter.head, {});
    return;
  }
  const Memory memory = receiver->landing(letter.from, lane_, letter.head, letter.payload.size());
  if (const auto rounds = delay(); rounds > 0) {
    landings_.push_back({rounds, receiver, std::move(letter), memory});
  } else {
    deliver({0, receiver, std::move(letter), memory});
  }
}

bool LoopbackLane::deliver_due() {
  bool did = false;
  for (auto next = landings_.begin(); next != landings_.end(); did = true) {
    const auto landing = next++;
    if (--landing->rounds > 0) continue;
    const Landing due = std::move(*landing);
    landings_.erase(landing);
    deliver(due);
  }
  return did;
}

void LoopbackLane::deliver(Landing landing) {
  const Letter& letter = landing.letter;
  Receiver& receiver = *landing.receiver;
  if (const auto cut = cut_.find(letter.from); cut != cut_.end()) {
    receiver.dropped(letter.from, lane_, landing.memory, cut->second);
    return;
  }
  const std::uint64_t size = letter.payload.size();
  try {
    TROUPE_CHECK(landing.memory.size_bytes >= size, Code::invalid, "loopback: the landing for ", size,
                 " bytes from peer ", letter.from.value, " has only ", landing.memory.size_bytes);
    std::memcpy(space_.address(landing.memory), letter.payload.data(), size);
  } catch (const Error& error) {
    receiver.dropped(letter.from, lane_, landing.memory, error.status());
    return;
  }
  receiver.arrived(letter.from, lane_, letter.head, slice(landing.memory, 0, size));
}

void LoopbackLane::lose(Peer peer) {
  const Status why{Code::peer_lost, text("peer ", peer.value, " has ended")};
  if (!cut_.emplace(peer, why).second) return;
  sweep();
  for (Receiver* const receiver : receivers_) {
    if (receiver != nullptr) receiver->lost(peer, why);
  }
}

void LoopbackLane::fence(Peer peer, const Status& why) noexcept { sweep_ |= cut_.emplace(peer, why).second; }

/// Ends the messages of peers that are cut off.
void LoopbackLane::sweep() {
  leaving_.remove_if([&](const Leaving& message) {
    const auto cut = cut_.find(message.to);
    if (cut == cut_.end()) return false;
    told_.push_back({message.done, cut->second});
    return true;
  });
  for (auto next = landings_.begin(); next != landings_.end();) {
    const auto landing = next++;
    if (!cut_.contains(landing->letter.from)) continue;
    const Landing ended = std::move(*landing);
    landings_.erase(landing);
    deliver(ended);
  }
}

bool LoopbackLane::tell() {
  const auto told = std::exchange(told_, {});  // callbacks may send again
  for (const Told& each : told) each.done->sent(each.status);
  return !told.empty();
}

void LoopbackLane::end() noexcept {
  const Status why{Code::aborted, "this process's end of the loopback network is closed"};
  for (const Leaving& message : leaving_) told_.push_back({message.done, why});
  leaving_.clear();
  for (const Landing& landing : std::exchange(landings_, {})) {
    landing.receiver->dropped(landing.letter.from, lane_, landing.memory, why);
  }
  while (tell()) {
  }
}

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<LoopbackHub> hub, Peer self, AddressSpace& space)
      : hub_(std::move(hub)), self_(self), space_(space), station_(hub_->enter(self)) {}

  ~LoopbackTransport() override {
    hub_->kill(self_);
    for (LoopbackLane& lane : lanes_) lane.end();
  }

  std::string description() const override { return "loopback (memory of this process)"; }
  bool carries(MemoryKind kind) const noexcept override { return kind != MemoryKind::device; }

  std::vector<std::byte> address() const override {
    const Address mine{reinterpret_cast<std::uintptr_t>(hub_.get()), self_.value, 0};
    std::vector<std::byte> bytes(sizeof mine);
    std::memcpy(bytes.data(), &mine, sizeof mine);
    return bytes;
  }

  void connect(Peer peer, std::span<const std::byte> bytes) override {
    Address theirs{};
    TROUPE_CHECK(bytes.size() == sizeof theirs, Code::environment, "loopback: the address of peer ", peer.value,
                 " has ", bytes.size(), " bytes instead of ", sizeof theirs);
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    TROUPE_CHECK(theirs.hub == reinterpret_cast<std::uintptr_t>(hub_.get()) && theirs.peer == peer.value,
                 Code::environment, "loopback: the address given for peer ", peer.value,
                 " is not that peer's on this network");
    TROUPE_CHECK(peer != self_, Code::invalid, "loopback: peer ", peer.value, " is this process");
    auto station = hub_->find(peer);
    const std::scoped_lock hold(mutex_);
    stations_[peer] = std::move(station);
  }

  void receive(Channel channel, Receiver& receiver) override { receivers_[place(channel)] = &receiver; }

  bool send(Peer to, Lane lane, Class, Channel channel, std::span<const std::byte> head,
            std::span<const Memory> payload, SendDone& done) override {
    TROUPE_CHECK(head.size() <= kMaxHeadBytes, Code::invalid, "loopback: a head of ", head.size(),
                 " bytes is longer than the ", kMaxHeadBytes,
                 " that a message may have; put the rest into the payload");
    for (const Memory& piece : payload) {
      if (piece.size_bytes > 0) space_.address(piece);  // so that it throws now and not when the message is sent
    }
    std::shared_ptr<Station> station;
    {
      const std::scoped_lock hold(mutex_);
      if (const auto found = stations_.find(to); found != stations_.end()) station = found->second;
    }
    return on(lane).send(to, std::move(station), channel, head, payload, done);
  }

  bool progress(Lane lane) override { return on(lane).progress(); }
  bool arm(Lane lane) override { return on(lane).arm(); }
  int fd(Lane lane) const override { return lanes_[static_cast<std::size_t>(lane)].fd(); }
  void fence(Peer peer, Lane lane, const Status& why) noexcept override { on(lane).fence(peer, why); }

 private:
  struct Address {
    std::uint64_t hub;
    std::uint32_t peer;
    std::uint32_t reserved;
  };

  LoopbackLane& on(Lane lane) { return lanes_[static_cast<std::size_t>(lane)]; }

  const std::shared_ptr<LoopbackHub> hub_;
  const Peer self_;
  AddressSpace& space_;
  const std::shared_ptr<Station> station_;
  Receivers receivers_{};
  std::array<LoopbackLane, 2> lanes_{LoopbackLane{Lane::control, self_, space_, hub_->adversity, *station_, receivers_},
                                     LoopbackLane{Lane::bulk, self_, space_, hub_->adversity, *station_, receivers_}};
  mutable std::mutex mutex_;  // guards stations_
  Stations stations_;
};

}  // namespace

std::unique_ptr<Transport> make_loopback_endpoint(std::shared_ptr<LoopbackHub> hub, Peer self, AddressSpace& space) {
  return std::make_unique<LoopbackTransport>(std::move(hub), self, space);
}

}  // namespace troupe
