#pragma once

#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/remote/wire.hpp"
#include "tests/actors/remote/remote_end.hpp"

// Frames that none of our programs would send, to test how they are handled.
namespace troupe::test {

struct SentFrame {
  Lane lane = Lane::control;
  std::vector<std::byte> head;
  std::vector<std::byte> payload;
};

/// With the charge of its body where the header has that of none.
inline SentFrame frame_of(wire::Header header, std::span<const std::byte> body = {}) {
  if (header.charge == wire::charge_of(0, 0))
    header.charge = wire::charge_of(body.size() - header.tensors * sizeof(wire::TensorRecord), 0);
  SentFrame frame;
  frame.head.resize(wire::kHeaderBytes);
  wire::store(header, std::span(frame.head).first<wire::kHeaderBytes>());
  frame.head.insert(frame.head.end(), body.begin(), body.end());
  return frame;
}

/// An endpoint that keeps a copy of what it sends, swallows what goes to peers from kFirstStranger on, of whom there is
/// nothing else, and lets frames arrive as if they came from these.
class Injector final : public Transport {
 public:
  static constexpr std::uint32_t kFirstStranger = 8;
  Injector(std::unique_ptr<Transport> inner, AddressSpace& space) : inner_(std::move(inner)), space_(space) {}

  std::string description() const override { return inner_->description(); }
  bool carries(MemoryKind kind) const noexcept override { return inner_->carries(kind); }
  std::vector<std::byte> address() const override { return inner_->address(); }
  void connect(Peer peer, std::span<const std::byte> address) override { inner_->connect(peer, address); }
  void receive(Channel channel, Receiver& receiver) override {
    receiver_ = &receiver;
    inner_->receive(channel, receiver);
  }
  bool send(Peer to, Lane lane, Class priority, Channel channel, std::span<const std::byte> head,
            std::span<const Memory> payload, SendDone& done) override {
    if (to.value >= kFirstStranger) {
      swallowed_[static_cast<std::size_t>(lane)].push_back(&done);
      return true;
    }
    if (!inner_->send(to, lane, priority, channel, head, payload, done)) return false;
    keep(lane, head, payload);
    return true;
  }
  bool progress(Lane lane) override {
    const auto done = std::exchange(swallowed_[static_cast<std::size_t>(lane)], {});
    for (SendDone* const send : done) send->sent({});
    return inner_->progress(lane) || !done.empty();
  }
  bool arm(Lane lane) override { return swallowed_[static_cast<std::size_t>(lane)].empty() && inner_->arm(lane); }
  int fd(Lane lane) const override { return inner_->fd(lane); }
  void fence(Peer peer, Lane lane, const Status& why) noexcept override {
    if (peer.value < kFirstStranger) inner_->fence(peer, lane, why);
  }

  /// On the thread of the frame's lane.
  void arrive(Peer from, const SentFrame& frame) {
    Memory memory;
    if (!frame.payload.empty()) {
      memory = receiver_->landing(from, frame.lane, frame.head, frame.payload.size());
      if (memory.size_bytes == 0) return;
      std::memcpy(space_.address(memory), frame.payload.data(), frame.payload.size());
      memory.size_bytes = frame.payload.size();
    }
    receiver_->arrived(from, frame.lane, frame.head, memory);
  }
  /// Any thread.
  std::vector<SentFrame> kept() {
    const std::scoped_lock hold(mutex_);
    return kept_;
  }

 private:
  static constexpr std::size_t kMostKept = 2000;

  void keep(Lane lane, std::span<const std::byte> head, std::span<const Memory> payload) {
    const std::scoped_lock hold(mutex_);
    if (kept_.size() == kMostKept) return;
    SentFrame& frame = kept_.emplace_back(SentFrame{lane, {head.begin(), head.end()}, {}});
    for (const Memory& part : payload) {
      const std::byte* const bytes = space_.address(part);
      frame.payload.insert(frame.payload.end(), bytes, bytes + part.size_bytes);
    }
  }

  const std::unique_ptr<Transport> inner_;
  AddressSpace& space_;
  Receiver* receiver_ = nullptr;
  std::vector<SendDone*> swallowed_[2];  // each its lane's owner's
  std::mutex mutex_;                     // guards kept_
  std::vector<SentFrame> kept_;
};

/// Runs `work` on a lane's thread; false when that took too long.
template <class Work>
bool on_lane(LaneLoop& lane, Work work) {
  class Job final : public LaneTask {
   public:
    explicit Job(Work work) : work_(std::move(work)) {}
    std::future<void> done() { return done_.get_future(); }
    void run() noexcept override {
      const std::unique_ptr<Job> self(this);
      work_();
      done_.set_value();
    }

   private:
    Work work_;
    std::promise<void> done_;
  };
  auto job = std::make_unique<Job>(std::move(work));
  auto done = job->done();
  if (!lane.post(*job)) return false;
  job.release();  // ends itself
  return done.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
}

/// A victim (peer 0), an honest peer (1), and strangers that both of them believe to be peers.
class HostileWorld {
 public:
  explicit HostileWorld(std::uint32_t count_strangers, RemoteOptions options = {}) {
    options.lost = [this](Peer peer, const Status& why) {
      const std::scoped_lock hold(mutex_);
      lost_.emplace_back(peer, why);
    };
    const auto endpoint = [this](Peer peer, Injector*& injector) {
      return [this, peer, &injector](AddressSpace& space) {
        auto made = std::make_unique<Injector>(network.endpoint(peer, space), space);
        injector = made.get();
        return made;
      };
    };
    victim = std::make_unique<RemoteEnd>(Peer{0}, endpoint(Peer{0}, to_victim), std::move(options));
    honest = std::make_unique<RemoteEnd>(Peer{1}, endpoint(Peer{1}, from_honest));
    victim->meet(Peer{1}, honest->introduction());
    honest->meet(Peer{0}, victim->introduction());
    for (std::uint32_t i = 0; i < count_strangers; ++i) {
      auto identity = honest->remote->identity();
      const std::uint32_t number = i + 1;
      for (std::size_t byte = 0; byte < sizeof number; ++byte)
        identity[byte] ^= static_cast<std::byte>(number >> 8 * byte);
      victim->remote->add_peer(stranger(i), identity);
    }
    victim->start();
    honest->start();
  }
  ~HostileWorld() {
    honest->stop();
    victim->stop();
    honest.reset();
    victim.reset();
  }

  static Peer stranger(std::uint32_t index) { return Peer{Injector::kFirstStranger + index}; }
  /// Injects frames of one lane; false if the lane does not finish handling them.
  bool arrive(Peer from, const std::vector<SentFrame>& frames) {
    for (const Lane lane : {Lane::control, Lane::bulk}) {
      const bool came_back = on_lane(lane == Lane::control ? *victim->control : *victim->bulk, [&] {
        for (const SentFrame& frame : frames)
          if (frame.lane == lane) to_victim->arrive(from, frame);
      });
      if (!came_back) return false;
    }
    return on_lane(*victim->control, [] {});  // what the bulk lane handed over comes before this
  }
  /// The reason for which the victim disconnected the peer.
  std::optional<Status> why_lost(Peer peer) {
    const std::scoped_lock hold(mutex_);
    for (const auto& [number, why] : lost_)
      if (number == peer) return why;
    return {};
  }

  LoopbackNetwork network;
  Injector* to_victim = nullptr;
  Injector* from_honest = nullptr;
  std::unique_ptr<RemoteEnd> victim, honest;

 private:
  std::mutex mutex_;  // guards lost_
  std::vector<std::pair<Peer, Status>> lost_;
};

}  // namespace troupe::test
