#include <gtest/gtest.h>

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// For all sizes, lanes, windows and transports: every message arrives once, in the order of its sender.
namespace troupe::test {
namespace {

constexpr std::uint64_t kThreads = 2;  // at each end
constexpr std::uint64_t kMessages = 250;
constexpr std::uint64_t kReceivers = 2;  // at each end, one of them inline
constexpr std::uint64_t kTensors = 16;
constexpr int kNumberBits = 32;

std::uint64_t chosen_seed() {
  const char* seed = std::getenv("TROUPE_TEST_SEED");
  return seed == nullptr ? std::random_device{}() : std::strtoull(seed, nullptr, 10);
}

struct ReceiverState {
  static constexpr const char* name = "receiver";
  std::map<std::uint64_t, std::uint64_t> next;  // by sender
  std::uint64_t misplaced = 0;
};
using ReceiverSelf = caf::stateful_actor<ReceiverState>*;

/// A word with the sender and its number for the message.
caf::behavior receive(ReceiverSelf self, const AddressSpace* space) {
  const auto take = [self](std::uint64_t word) {
    auto& next = self->state.next[word >> kNumberBits];
    if (next++ != (word & 0xffffffff)) ++self->state.misplaced;
    return word;
  };
  return {
      [=](std::uint64_t word) { return take(word); },
      [=](std::uint64_t word, const std::vector<char>&) { return take(word); },
      [=](std::uint64_t word, const Tensor& tensor) {
        if (digest(*space, tensor) != 4 * tensor.extents()[0]) ++self->state.misplaced;
        return take(word);
      },
      [=](Noted, std::uint64_t sender) { return caf::make_message(self->state.next[sender], self->state.misplaced); }};
}

/// A tensor whose content its receiver can check: its numbers are 0, so that digest() is its size.
Tensor checked_tensor(RemoteEnd& end, std::uint64_t bytes, bool shared) {
  const Memory memory = end.fresh(bytes, shared);
  std::memset(end.space.address(memory), 0, bytes);
  return {memory, {bytes / 4}, DType::f32, {}, nullptr};
}

struct Sent {
  std::uint64_t unanswered = 0;
  std::uint64_t refused = 0;
  std::map<std::size_t, std::uint64_t> messages;  // by receiver
};

/// The work of one thread: messages of all kinds to all receivers in random order, one in eight a request.
Sent talk(caf::actor_system& system, std::uint64_t sender, const std::vector<caf::actor>& receivers,
          const std::vector<Tensor>& tensors, std::uint64_t seed) {
  std::mt19937_64 dice(seed + sender);
  caf::scoped_actor self(system);
  Sent sent;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    const std::size_t to = dice() % receivers.size();
    const std::uint64_t word = sender << kNumberBits | sent.messages[to]++;
    const auto tell = [&](const auto&... more) {
      if (dice() % 8 != 0) return caf::anon_send(receivers[to], word, more...);
      self->request(receivers[to], kLong, word, more...)
          .receive([&](std::uint64_t back) { sent.unanswered += back == word ? 0 : 1; },
                   [&](const caf::error& error) {
                     ++(from_caf(error).code() == Code::timeout ? sent.unanswered : sent.refused);
                   });
    };
    switch (dice() % 8) {
      case 0: tell(std::vector<char>(2 << 10)); break;
      case 1: tell(std::vector<char>(100 << 10)); break;
      case 2: tell(tensors[dice() % tensors.size()]); break;
      default: tell(); break;
    }
  }
  return sent;
}

/// Threads at both ends, each speaking to the actors of the other one.
class Crossfire {
 public:
  Crossfire(LoopbackAdversity adversity, const RemoteOptions& options, std::uint64_t seed)
      : seed_(seed), world(adversity, options, options) {
    auto blocking = Blocking::on_thread("test");
    for (RemoteEnd* const end : {world.here.get(), world.there.get()}) {
      RemoteEnd& other = end == world.here.get() ? *world.there : *world.here;
      auto& [system, receivers, tensors] = sides_.emplace_back();
      system = &end->system;
      for (std::uint64_t i = 0; i < kReceivers; ++i) {
        const caf::actor at_other = i == 0 ? caf::actor(other.system.spawn(receive, &other.space))
                                           : caf::actor(other.remote->spawn_inline(receive, &other.space));
        other.remote->publish("receiver" + std::to_string(i), at_other);
        receivers.push_back(
            end->remote->resolve(blocking, other.self, "receiver" + std::to_string(i), Deadline::after(kLong)));
        ends_.push_back(at_other);
      }
      for (std::uint64_t i = 0; i < kTensors; ++i)
        tensors.push_back(checked_tensor(*end, 64 + i * 3000, i % 2 == 1 && end->self == Peer{0}));
    }
  }
  ~Crossfire() {
    for (const caf::actor& receiver : ends_) caf::anon_send_exit(receiver, caf::exit_reason::user_shutdown);
  }

  std::vector<Sent> run() {
    std::vector<Sent> sent(sides_.size() * kThreads);
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < sent.size(); ++i) {
      threads.emplace_back([this, i, &sent] {
        const auto& [system, receivers, tensors] = sides_[i / kThreads];
        sent[i] = talk(*system, i, receivers, tensors, seed_);
      });
    }
    for (auto& thread : threads) thread.join();
    return sent;
  }
  Answer<std::uint64_t, std::uint64_t> noted(std::uint64_t sender, std::size_t receiver) {
    const auto& [system, receivers, tensors] = sides_[sender / kThreads];
    return ask<std::uint64_t, std::uint64_t>(*system, receivers[receiver], Noted::value, sender);
  }

 private:
  struct Side {
    caf::actor_system* system = nullptr;
    std::vector<caf::actor> receivers;  // at the other end
    std::vector<Tensor> tensors;
  };
  const std::uint64_t seed_;

 public:
  LoopbackWorld world;

 private:
  std::vector<Side> sides_;
  std::vector<caf::actor> ends_;
};

/// With so little memory everywhere that it is short all the time.
RemoteOptions little_room() { return {.unhandled_bytes = 32 << 10}; }

TEST(RemoteOrder, OfEachSenderIsKeptAndNothingIsLostOrDoubled) {
  const std::uint64_t seed = chosen_seed();
  std::cout << "seed " << seed << " (TROUPE_TEST_SEED sets it)\n";
  for (const std::uint32_t delay : {0, 3, 12}) {
    Crossfire fire({.seed = seed, .delay_rounds = delay, .refuse_percent = 10 * (delay % 4)}, little_room(), seed);
    const std::vector<Sent> sent = fire.run();
    for (std::uint64_t sender = 0; sender < sent.size(); ++sender) {
      EXPECT_EQ(sent[sender].unanswered, 0u) << "sender " << sender << ", delay " << delay;
      EXPECT_EQ(sent[sender].refused, 0u) << "sender " << sender << ", delay " << delay;
      for (const auto& [receiver, messages] : sent[sender].messages) {
        const auto noted = fire.noted(sender, receiver);
        ASSERT_TRUE(noted.ok()) << noted.why.text();
        EXPECT_EQ(noted.get<0>(), messages) << "sender " << sender << ", receiver " << receiver;
        EXPECT_EQ(noted.get<1>(), 0u) << "receiver " << receiver << ", delay " << delay;
      }
    }
    EXPECT_EQ(fire.world.here->told_dropped + fire.world.there->told_dropped, 0u);
  }
}

TEST(RemoteOrder, IsKeptUntilAPeerIsLostAndEveryRequestHearsOfIt) {
  const std::uint64_t seed = chosen_seed();
  std::cout << "seed " << seed << " (TROUPE_TEST_SEED sets it)\n";
  Crossfire fire({.seed = seed, .delay_rounds = 6}, little_room(), seed);
  std::thread killer([&] {
    troupe::testing::eventually([&] { return fire.world.here->remote->counters().sent > kMessages / 2; });
    fire.world.here->remote->lost(World::kThere, {Code::peer_lost, "for this test"});
    fire.world.there->remote->lost(Peer{0}, {Code::peer_lost, "for this test"});
  });
  const std::vector<Sent> sent = fire.run();
  killer.join();
  std::uint64_t refused = 0;
  for (const Sent& one : sent) {
    EXPECT_EQ(one.unanswered, 0u);
    refused += one.refused;
  }
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace troupe::test
