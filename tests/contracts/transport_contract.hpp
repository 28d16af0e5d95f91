#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/lanes/lane_loop.hpp"
#include "tests/contracts/transport_node.hpp"

// What every Transport promises. An implementation instantiates the suite:
//   INSTANTIATE_TEST_SUITE_P(Loopback, TransportContract, Values(TransportCase{"Plain", make_home}),
//   TransportCase::name_of);
namespace troupe::testing {

/// A group whose peers all live in this process.
class TransportHome {
 public:
  virtual ~TransportHome() = default;
  virtual std::unique_ptr<Transport> make(Peer self, AddressSpace& space) = 0;
};

struct TransportCase {
  std::string name;
  std::function<std::unique_ptr<TransportHome>()> make;

  static std::string name_of(const ::testing::TestParamInfo<TransportCase>& info) { return info.param.name; }
  friend void PrintTo(const TransportCase& c, std::ostream* out) { *out << c.name; }
};

class TransportContract : public ::testing::TestWithParam<TransportCase> {
 protected:
  static constexpr std::chrono::seconds kSoon{20};

  TransportNode& node(std::uint32_t number) {
    auto& place = nodes_[number];
    if (!place) {
      place = std::make_unique<TransportNode>(Peer{number},
                                              [&](Peer self, AddressSpace& space) { return home_->make(self, space); });
      for (auto& [other, each] : nodes_) {
        if (other != number && each) place->connect(*each);
      }
    }
    return *place;
  }
  TransportNode& alice() { return node(0); }
  TransportNode& bob() { return node(1); }
  void end(std::uint32_t number) { nodes_.erase(number); }

  /// Drives all nodes until `condition` holds; false when it takes too long.
  template <class Condition>
  bool drive(Condition condition, Clock::duration span = kSoon) {
    const Deadline deadline = Deadline::after(span);
    while (!condition()) {
      if (deadline.passed()) return false;
      for (auto& [number, each] : nodes_) each->progress();
    }
    return true;
  }
  /// Some rounds more, for what must not happen.
  void drive_on() {
    for (int i = 0; i < 200; ++i) {
      for (auto& [number, each] : nodes_) each->progress();
    }
  }
  /// Sends, trying again as long as the transport has no space.
  bool send(TransportNode& from, Peer to, Lane lane, std::uint64_t seed, Memory payload, SendDone& done,
            Channel channel = Channel::actors, std::size_t head_bytes = 16) {
    return drive([&] { return from.send(to, lane, seed, payload, done, channel, head_bytes); });
  }
  static bool all_told(const std::deque<NotedSend>& sends) { return all_told(sends, sends.size()); }
  static bool all_told(const std::deque<NotedSend>& sends, std::size_t first) {
    return std::all_of(sends.begin(), sends.begin() + static_cast<std::ptrdiff_t>(first),
                       [](const NotedSend& each) { return each.times() > 0; });
  }
  static void expect_told_once(const std::deque<NotedSend>& sends) {
    for (const NotedSend& each : sends) EXPECT_EQ(each.times(), 1);
  }
  /// Sends one message of `size` bytes from alice to bob and checks everything about it.
  void check_one(Lane lane, std::uint64_t size, std::size_t head_bytes = 16) {
    const std::uint64_t seed = ++seed_;
    const std::size_t before = bob().at(Channel::actors).count();
    NotedSend done;
    ASSERT_TRUE(send(alice(), bob().self, lane, seed, alice().prepare(seed, size), done, Channel::actors, head_bytes));
    ASSERT_TRUE(drive([&] { return done.times() > 0 && bob().at(Channel::actors).count() > before; }))
        << size << " bytes, head " << head_bytes << ", told " << done.times();
    EXPECT_TRUE(done.status().ok()) << done.status().text();
    const Got got = bob().at(Channel::actors).got().back();
    EXPECT_TRUE(got.intact) << size << " bytes, head " << head_bytes;
    EXPECT_EQ(got.seed, seed);
    EXPECT_EQ(got.from, alice().self);
    EXPECT_EQ(got.lane, lane);
    EXPECT_EQ(got.head.size(), std::max<std::size_t>(head_bytes, sizeof(TestHead)));
    EXPECT_EQ(done.times(), 1);
  }

  std::unique_ptr<TransportHome> home_ = GetParam().make();
  std::map<std::uint32_t, std::unique_ptr<TransportNode>> nodes_;
  std::uint64_t seed_ = 0;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportContract);

TEST_P(TransportContract, DeliversPayloadsOfEverySizeUnchanged) {
  constexpr std::uint64_t kPage = 4096;
  constexpr std::uint64_t kMiB = 1u << 20;
  for (const Lane lane : kLanes) {
    for (const std::uint64_t size :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{64}, std::uint64_t{1000}, kPage - 1,
          kPage, kPage + 1, 2 * kPage - 1, 2 * kPage + 1, 16 * kPage - 1, 16 * kPage, 16 * kPage + 1, kMiB,
          2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 4 * kMiB + 3, 17 * kMiB}) {
      ASSERT_NO_FATAL_FAILURE(check_one(lane, size)) << size;
    }
  }
}

TEST_P(TransportContract, DeliversTheFirstMessageHoweverLargeItIs) { check_one(Lane::bulk, 17u << 20); }

TEST_P(TransportContract, DeliversHeadsUpToTheLimit) {
  for (const Lane lane : kLanes) {
    for (const std::size_t head : {std::size_t{16}, std::size_t{17}, std::size_t{200}, std::size_t{1024},
                                   Transport::kMaxHeadBytes - 1, Transport::kMaxHeadBytes}) {
      for (const std::uint64_t size : {0u, 8u, 100'000u, 5'000'000u}) {
        ASSERT_NO_FATAL_FAILURE(check_one(lane, size, head)) << head << ", " << size;
      }
    }
  }
}

TEST_P(TransportContract, DeliversAnEmptyMessage) {
  bob();
  NotedSend done;
  ASSERT_TRUE(drive([&] {
    return alice().transport->send(bob().self, Lane::control, Class::control, Channel::actors, {}, {}, done);
  }));
  ASSERT_TRUE(drive([&] { return done.times() > 0 && bob().count() == 1; }));
  EXPECT_TRUE(bob().at(Channel::actors).got()[0].head.empty());
}

TEST_P(TransportContract, RefusesAHeadOverTheLimit) {
  bob();
  NotedSend done;
  const std::vector<std::byte> head(Transport::kMaxHeadBytes + 1);
  try {
    alice().transport->send(bob().self, Lane::control, Class::control, Channel::actors, head, {}, done);
    ADD_FAILURE() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid) << error.what();
  }
  drive_on();
  EXPECT_EQ(done.times(), 0);
  EXPECT_EQ(bob().count(), 0u);
}

TEST_P(TransportContract, RefusesAPayloadThatIsNotMapped) {
  bob();
  NotedSend done;
  const Memory nowhere{arena_id(Peer{77}, 1), 0, 100};
  EXPECT_THROW(alice().send(bob().self, Lane::bulk, 1, nowhere, done), Error);
  drive_on();
  EXPECT_EQ(done.times(), 0);
}

TEST_P(TransportContract, JoinsPiecesInTheirOrder) {
  std::mt19937_64 random{11};
  for (const std::uint64_t size : {std::uint64_t{1000}, std::uint64_t{200'000}, std::uint64_t{9'000'001}}) {
    const std::uint64_t seed = ++seed_;
    const Memory whole = alice().prepare(seed, size);
    std::vector<Memory> pieces{slice(whole, 0, 0)};
    for (std::uint64_t at = 0; at < size;) {
      const std::uint64_t length = std::min<std::uint64_t>(size - at, 1 + random() % (size / 3));
      pieces.push_back(slice(whole, at, length));
      at += length;
    }
    pieces.push_back(Memory{});
    NotedSend done;
    const std::size_t before = bob().count();
    ASSERT_TRUE(drive([&] {
      return alice().transport->send(bob().self, Lane::bulk, Class::bulk, Channel::actors, make_head(seed, size),
                                     pieces, done);
    }));
    ASSERT_TRUE(drive([&] { return done.times() > 0 && bob().count() > before; })) << size;
    EXPECT_TRUE(bob().at(Channel::actors).got().back().intact) << size << " bytes in " << pieces.size() << " pieces";
  }
}

TEST_P(TransportContract, BringsEachMessageToItsChannel) {
  NotedSend to_actors;
  NotedSend to_exchange;
  ASSERT_TRUE(send(alice(), bob().self, Lane::control, 1, alice().prepare(1, 100), to_actors, Channel::actors));
  ASSERT_TRUE(
      send(alice(), bob().self, Lane::control, 2, alice().prepare(2, 100, 4096), to_exchange, Channel::exchange));
  ASSERT_TRUE(drive([&] { return bob().count() == 2; }));
  ASSERT_EQ(bob().at(Channel::actors).count(), 1u);
  EXPECT_EQ(bob().at(Channel::actors).got()[0].seed, 1u);
  EXPECT_EQ(bob().at(Channel::exchange).got()[0].seed, 2u);
  ASSERT_TRUE(drive([&] { return to_actors.times() == 1 && to_exchange.times() == 1; }));
}

TEST_P(TransportContract, DeliversManyMessagesInFlightExactlyOnce) {
  constexpr std::uint64_t kMessages = 400;
  std::mt19937_64 random{5};
  std::deque<NotedSend> sends(2 * kMessages);
  std::uint64_t offset = 0;
  bob();
  for (std::uint64_t i = 0; i < 2 * kMessages; ++i) {
    TransportNode& from = i % 2 == 0 ? alice() : bob();
    const Peer to = i % 2 == 0 ? bob().self : alice().self;
    const std::uint64_t size = random() % 4 == 0 ? random() % 150'000 : random() % 2000;
    if (i % 2 == 0) offset = (offset + 160'000) % (TransportNode::kSendBytes - 160'000);
    if (offset < 320'000) {  // the memory goes round: what lies there must have left
      ASSERT_TRUE(drive([&] { return all_told(sends, i); }));
    }
    ASSERT_TRUE(
        send(from, to, kLanes[random() % 2], i, from.prepare(i, size, offset), sends[i], kChannels[random() % 2]));
  }
  ASSERT_TRUE(drive([&] { return all_told(sends) && alice().count() + bob().count() == 2 * kMessages; }));
  drive_on();
  expect_told_once(sends);
  std::map<std::uint64_t, int> times;
  for (TransportNode* each : {&alice(), &bob()}) {
    for (const Channel channel : kChannels) {
      for (const Got& got : each->at(channel).got()) {
        EXPECT_TRUE(got.intact) << got.seed;
        EXPECT_EQ(got.seed % 2, got.from.value);
        ++times[got.seed];
      }
      EXPECT_EQ(each->at(channel).landings_open(), 0);
    }
  }
  EXPECT_EQ(times.size(), 2 * kMessages);
  for (const auto& [seed, count] : times) EXPECT_EQ(count, 1) << seed;
}

TEST_P(TransportContract, DeliversLargePayloadsThatTravelTogether) {
  constexpr std::uint64_t kSize = 3'000'001;
  std::deque<NotedSend> sends(6);
  for (std::uint64_t i = 0; i < sends.size(); ++i) {
    ASSERT_TRUE(send(alice(), bob().self, Lane::bulk, i, alice().prepare(i, kSize, i * 3'100'000), sends[i]));
  }
  ASSERT_TRUE(drive([&] { return all_told(sends) && bob().count() == sends.size(); }));
  for (const Got& got : bob().at(Channel::actors).got()) EXPECT_TRUE(got.intact) << got.seed;
  expect_told_once(sends);
}

TEST_P(TransportContract, AcceptsLaterWhatItRefused) {
  constexpr std::uint64_t kMessages = 3000;
  std::deque<NotedSend> sends(kMessages);
  bob();
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(send(alice(), bob().self, Lane::bulk, i, alice().prepare(i, 64, i * 64), sends[i])) << i;
  }
  ASSERT_TRUE(drive([&] { return all_told(sends) && bob().count() == kMessages; }));
  drive_on();
  expect_told_once(sends);
  EXPECT_EQ(bob().count(), kMessages);
}

TEST_P(TransportContract, TellsNoSendBeforeProgress) {
  bob();
  NotedSend first;
  ASSERT_TRUE(send(alice(), bob().self, Lane::control, 1, {}, first));
  ASSERT_TRUE(drive([&] { return first.times() == 1; }));
  NotedSend second;
  while (!alice().send(bob().self, Lane::control, 2, {}, second)) alice().progress();
  EXPECT_EQ(second.times(), 0);
  EXPECT_TRUE(drive([&] { return second.times() == 1; }));
}

TEST_P(TransportContract, LandsThePayloadWhereTheReceiverSaid) {
  for (const std::uint64_t size : {std::uint64_t{100}, std::uint64_t{300'000}, std::uint64_t{5'000'000}}) {
    bob().at(Channel::actors).give_landings_of(size + 4096);
    const std::uint64_t seed = ++seed_;
    NotedSend done;
    const std::size_t before = bob().count();
    ASSERT_TRUE(send(alice(), bob().self, Lane::bulk, seed, alice().prepare(seed, size), done));
    ASSERT_TRUE(drive([&] { return bob().count() > before && done.times() > 0; }));
    const Memory landing = bob().at(Channel::actors).last_landing();
    EXPECT_EQ(bob().at(Channel::actors).got().back().payload, slice(landing, 0, size));
    EXPECT_TRUE(bob().at(Channel::actors).got().back().intact);
    const std::byte* behind = bob().space.address(landing) + size;
    if (size < 5'000'000) continue;  // only the last landing lies where none was before
    EXPECT_TRUE(std::all_of(behind, behind + 4096, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_P(TransportContract, DropsAMessageWhoseLandingIsTooSmall) {
  for (const std::uint64_t size : {std::uint64_t{100}, std::uint64_t{300'000}, std::uint64_t{5'000'000}}) {
    bob().at(Channel::actors).give_landings_of(64);
    NotedSend done;
    const std::size_t before = bob().at(Channel::actors).dropped_landings().size();
    ASSERT_TRUE(send(alice(), bob().self, Lane::bulk, 1, alice().prepare(1, size), done));
    ASSERT_TRUE(drive([&] { return done.times() > 0 && bob().at(Channel::actors).dropped_landings().size() > before; }))
        << size;
    drive_on();
    ASSERT_EQ(bob().at(Channel::actors).dropped_landings().size(), before + 1);
    EXPECT_EQ(bob().at(Channel::actors).dropped_landings().back().second.code(), Code::invalid);
    EXPECT_EQ(bob().at(Channel::actors).landings_open(), 0);
  }
  bob().at(Channel::actors).give_landings_of(0);
  check_one(Lane::bulk, 300'000);
}

TEST_P(TransportContract, EndsSendsToAPeerThatIsNotConnectedWithPeerLost) {
  for (const Lane lane : kLanes) {
    NotedSend done;
    ASSERT_TRUE(send(alice(), Peer{9}, lane, 1, alice().prepare(1, 100), done));
    ASSERT_TRUE(drive([&] { return done.times() > 0; }));
    EXPECT_EQ(done.status().code(), Code::peer_lost) << done.status().text();
    drive_on();
    EXPECT_EQ(done.times(), 1);
  }
}

TEST_P(TransportContract, RefusesAnAddressThatIsNone) {
  const std::vector<std::byte> garbage(100, std::byte{0x5a});
  for (const std::size_t size : {0u, 3u, 40u, 100u}) {
    try {
      alice().transport->connect(Peer{5}, std::span{garbage}.first(size));
      ADD_FAILURE() << size << " bytes were taken as an address";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::environment) << error.what();
    }
  }
}

TEST_P(TransportContract, AFenceEndsPendingSendsWithItsReason) {
  check_one(Lane::control, 100);
  check_one(Lane::bulk, 100);
  std::deque<NotedSend> sends;
  for (std::uint64_t i = 0; i < 8; ++i) {  // bob does not move
    NotedSend& done = sends.emplace_back();
    while (!alice().send(bob().self, kLanes[i % 2], i, alice().prepare(i, 2'200'000, i * 2'200'000), done)) {
      alice().progress();
    }
  }
  const Status why{Code::aborted, "a newer view"};
  for (const Lane lane : kLanes) alice().transport->fence(bob().self, lane, why);
  const Deadline deadline = Deadline::after(kSoon);
  while (!all_told(sends) && !deadline.passed()) alice().progress();
  expect_told_once(sends);
  for (const NotedSend& each : sends) {
    EXPECT_TRUE(each.status().ok() || each.status().text() == "a newer view") << each.status().text();
  }
}

TEST_P(TransportContract, AfterAFenceNothingIsSentOrDelivered) {
  check_one(Lane::control, 100);
  check_one(Lane::bulk, 100);
  const Status why{Code::peer_lost, "fenced"};
  for (const Lane lane : kLanes) bob().transport->fence(alice().self, lane, why);
  std::deque<NotedSend> sends(4);
  const std::size_t before = bob().count();
  for (std::uint64_t i = 0; i < sends.size(); ++i) {
    ASSERT_TRUE(send(alice(), bob().self, kLanes[i % 2], 1, alice().prepare(1, i < 2 ? 100 : 300'000), sends[i]));
  }
  drive_on();
  EXPECT_EQ(bob().count(), before);
  for (const Lane lane : kLanes) {
    NotedSend done;
    ASSERT_TRUE(send(bob(), alice().self, lane, 1, {}, done));
    ASSERT_TRUE(drive([&] { return done.times() > 0; }));
    EXPECT_EQ(done.status().text(), "fenced");
  }
  for (const Lane lane : kLanes) alice().transport->fence(bob().self, lane, why);
  EXPECT_TRUE(drive([&] { return all_told(sends); }));
  expect_told_once(sends);
}

TEST_P(TransportContract, AFenceLeavesOtherPeersAlone) {
  TransportNode& carol = node(2);
  NotedSend to_bob;
  ASSERT_TRUE(send(alice(), bob().self, Lane::bulk, 1, alice().prepare(1, 3'000'000), to_bob));
  alice().transport->fence(bob().self, Lane::bulk, {Code::aborted, "fenced"});
  NotedSend to_carol;
  ASSERT_TRUE(send(alice(), carol.self, Lane::bulk, 2, alice().prepare(2, 3'000'000, 4'000'000), to_carol));
  ASSERT_TRUE(drive([&] { return carol.count() == 1 && to_carol.times() == 1 && to_bob.times() == 1; }));
  EXPECT_TRUE(carol.at(Channel::actors).got()[0].intact);
}

TEST_P(TransportContract, EverySendEndsWhenThePeerHasEnded) {
  check_one(Lane::control, 100);
  check_one(Lane::bulk, 100);
  const Peer gone = bob().self;
  std::deque<NotedSend> sends;
  for (std::uint64_t i = 0; i < 8; ++i) {
    while (!alice().send(gone, kLanes[i % 2], i, alice().prepare(i, 2'200'000, i * 2'200'000), sends.emplace_back())) {
      sends.pop_back();
      alice().progress();
    }
  }
  end(1);
  (void)drive([&] { return all_told(sends); }, std::chrono::seconds{1});
  for (const Lane lane : kLanes) alice().transport->fence(gone, lane, {Code::peer_lost, "it has ended"});
  ASSERT_TRUE(drive([&] { return all_told(sends); }));
  drive_on();
  expect_told_once(sends);
  EXPECT_LE(alice().at(Channel::actors).times_lost(gone), 2u);  // once a lane
  EXPECT_EQ(alice().at(Channel::actors).times_lost(gone), alice().at(Channel::exchange).times_lost(gone));
}

TEST_P(TransportContract, TellsEverySendWhenTheTransportEnds) {
  std::deque<NotedSend> sends;
  bob();
  for (std::uint64_t i = 0; i < 8; ++i) {  // bob does not move
    while (!alice().send(bob().self, kLanes[i % 2], i, alice().prepare(i, i < 2 ? 64 : 2'200'000, i * 2'200'000),
                         sends.emplace_back())) {
      sends.pop_back();
      alice().progress();
    }
  }
  end(0);
  expect_told_once(sends);
}

TEST_P(TransportContract, EndsInTheMiddleOfTransfersFromBothSides) {
  for (std::uint32_t round = 0; round < 12; ++round) {
    std::deque<NotedSend> sends(4);
    bob();
    for (std::uint64_t i = 0; i < sends.size(); ++i) {
      TransportNode& from = node(i % 2);
      ASSERT_TRUE(
          send(from, node(1 - i % 2).self, kLanes[i / 2], i, from.prepare(i, 2'200'000, i * 2'200'000), sends[i]));
    }
    for (std::uint32_t step = 0; step < round / 2; ++step) {
      for (auto& [number, each] : nodes_) each->progress();
    }
    end(round % 2);
    end(1 - round % 2);
    home_ = GetParam().make();  // new peers, whose numbers were others' before
    expect_told_once(sends);
  }
}

TEST_P(TransportContract, AnArmedLaneBecomesReadableWhenAMessageComes) {
  for (const Lane lane : kLanes) {
    ASSERT_NO_FATAL_FAILURE(check_one(lane, 100));
    TransportNode& to = bob();
    const auto quiet = [&] {
      bool busy = alice().progress();
      busy |= to.progress();
      return !busy && to.transport->arm(lane);
    };
    const Deadline deadline = Deadline::after(kSoon);
    while (!quiet()) ASSERT_FALSE(deadline.passed()) << "never armed";
    NotedSend done;
    const std::size_t before = to.count();
    while (!alice().send(to.self, lane, 1, {}, done)) alice().progress();
    pollfd event{to.transport->fd(lane), POLLIN, 0};
    while (poll(&event, 1, 1) == 0 && !deadline.passed()) alice().progress();
    EXPECT_NE(event.revents & POLLIN, 0);
    ASSERT_TRUE(drive([&] { return done.times() == 1 && to.count() > before; }));
  }
}

/// Sends `count` messages from a lane's thread, as many at a time as the transport has space for.
class SendingTask final : public LaneTask {
 public:
  SendingTask(TransportNode& from, Peer to, Lane lane, std::uint64_t count, std::uint64_t size)
      : from_(from), to_(to), lane_(lane), count_(count), payload_(from.prepare(0, size, at(lane))), sends_(count) {}
  void run() noexcept override {
    if (next_ < count_ && from_.send(to_, lane_, 0, payload_, sends_[next_])) ++next_;
    if (next_ < count_) {
      loop_->post(*this);
    } else {
      done_.store(true);
    }
  }
  void start(LaneLoop& loop) {
    loop_ = &loop;
    EXPECT_TRUE(loop.post(*this));
  }
  bool done() const {
    return done_.load() && std::all_of(sends_.begin(), sends_.end(), [](const auto& s) { return s.times() > 0; });
  }

 private:
  static std::uint64_t at(Lane lane) { return lane == Lane::control ? 0 : 10u << 20; }
  TransportNode& from_;
  const Peer to_;
  const Lane lane_;
  const std::uint64_t count_;
  const Memory payload_;
  LaneLoop* loop_ = nullptr;
  std::uint64_t next_ = 0;
  std::deque<NotedSend> sends_;
  std::atomic<bool> done_{false};
};

TEST_P(TransportContract, CarriesBothLanesOnTheirOwnThreads) {
  constexpr std::uint64_t kSmall = 2000;
  constexpr std::uint64_t kLarge = 10;
  bob();
  std::deque<LaneLoop> loops;
  std::deque<SendingTask> tasks;
  for (TransportNode* each : {&alice(), &bob()}) {
    const Peer other = each == &alice() ? bob().self : alice().self;
    for (const Lane lane : kLanes) {
      loops.emplace_back(*each->transport, lane, LaneOptions{}, "test lane");
      tasks.emplace_back(*each, other, lane, lane == Lane::control ? kSmall : kLarge,
                         lane == Lane::control ? 64 : 3'000'000);
    }
  }
  for (std::size_t i = 0; i < loops.size(); ++i) {
    loops[i].start();
    tasks[i].start(loops[i]);
  }
  const Deadline deadline = Deadline::after(kSoon);
  const auto finished = [&] {
    return std::all_of(tasks.begin(), tasks.end(), [](const auto& task) { return task.done(); }) &&
           alice().count() == kSmall + kLarge && bob().count() == kSmall + kLarge;
  };
  while (!finished() && !deadline.passed()) std::this_thread::yield();
  for (LaneLoop& loop : loops) loop.stop(Deadline::after(kSoon));
  EXPECT_TRUE(finished()) << alice().count() << " and " << bob().count();
  for (TransportNode* each : {&alice(), &bob()}) {
    for (const Got& got : each->at(Channel::actors).got()) ASSERT_TRUE(got.intact);
  }
}

}  // namespace troupe::testing
