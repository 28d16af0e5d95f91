// Attacks by a process that knows the job's secret, or that connects after all ranks have joined: it is disconnected at
// most.

#include <gmock/gmock.h>

#include <atomic>
#include <ostream>
#include <vector>

#include "tests/support/child_process.hpp"
#include "tests/transports/bootstrap_hostile.hpp"
#include "transports/bootstrap/detail/hello_codec.hpp"
#include "transports/bootstrap/detail/proof.hpp"

namespace troupe::testing {
namespace {

using bootstrap::Bytes;
using bootstrap::Kind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTooLong = "a frame of 4294967295 bytes";

/// The next frame on a connection; ends the test's patience after 20 s.
std::optional<bootstrap::Frame> next_frame(bootstrap::Connection& link) {
  const Deadline deadline = Deadline::after(20s);
  bootstrap::Connection* const links[] = {&link};
  for (;;) {
    if (auto frame = link.take()) return frame;
    if (!link.open() || deadline.passed()) return std::nullopt;
    bootstrap::wait_ready(links, -1, deadline);
    link.flush();
    link.receive();
  }
}

bootstrap::Nonce nonce_in(const bootstrap::Frame& frame) {
  bootstrap::Nonce nonce{};
  EXPECT_GE(frame.body.size(), nonce.size());
  std::copy_n(frame.body.begin(), std::min(nonce.size(), frame.body.size()), nonce.begin());
  return nonce;
}

/// Joins as a rank does, step by step, and can do anything else at each step.
class Insider {
 public:
  explicit Insider(const RankOptions& options)
      : options_(options), link_(connect_to_zero(options.place.master_port), "rank 0") {
    link_.accept_frames_of(bootstrap::kMaxFrameBytes);
  }

  void prove() {
    const auto challenge = next_frame(link_);
    ASSERT_TRUE(challenge && challenge->kind == Kind::challenge);
    const bootstrap::Nonce mine = bootstrap::fresh_nonce();
    const LaunchPlace& place = options_.place;
    const bootstrap::Mac mac =
        bootstrap::prove(place.secret, bootstrap::Role::connects, nonce_in(*challenge), mine, place.rank);
    Bytes body{mine.begin(), mine.end()};
    bootstrap::put_u32(body, place.rank);
    body.insert(body.end(), mac.begin(), mac.end());
    link_.send(Kind::proof, std::move(body));
    const auto welcome = next_frame(link_);
    ASSERT_TRUE(welcome && welcome->kind == Kind::welcome);
  }
  /// The whole join.
  void join() {
    prove();
    link_.send(Kind::hello, bootstrap::encode({options_.hello, options_.place.world_size}));
    for (std::uint32_t rank = 0; rank < options_.place.world_size; ++rank) {
      const auto hello = next_frame(link_);
      ASSERT_TRUE(hello && hello->kind == Kind::hello);
    }
  }
  void send(const std::string& bytes) { ::send(link_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void send(Kind kind, Bytes body) { link_.send(kind, std::move(body)); }
  /// Whether rank 0 ends the connection.
  bool is_dropped() {
    while (next_frame(link_)) {
    }
    return !link_.open();
  }

 private:
  static Fd connect_to_zero(std::uint16_t port) {
    const Deadline deadline = Deadline::after(20s);
    return bootstrap::connect_to(bootstrap::resolve("127.0.0.1", port, deadline).front(), deadline);
  }
  const RankOptions options_;
  bootstrap::Connection link_;
};

TEST(HostileInsiders, WhoAnnounceFourGibibytesAfterTheirProofCostNothing) {
  const Listener listener;
  const auto ranks = whole_world(listener, 2);
  const std::int64_t before = memory_kib("VmHWM");
  Attendance zero;
  std::thread host{[&] { zero = join(ranks[0]); }};
  for (int i = 0; i < 50; ++i) {
    Insider insider{ranks[1]};
    insider.prove();
    insider.send(head_of_4_gib(Kind::hello) + std::string(4096, 'x'));
    EXPECT_TRUE(insider.is_dropped());
  }
  const Attendance one = join(ranks[1]);
  host.join();
  EXPECT_TRUE(zero.status.ok()) << zero.error();
  EXPECT_TRUE(one.status.ok()) << one.error();
  EXPECT_TRUE(zero.heard(kTooLong));
  EXPECT_LT(memory_kib("VmHWM") - before, kMostGrowthKib);
}

TEST(HostileInsiders, WhoListenForRankZeroAndAnnounceFourGibibytesCostARankNothing) {
  const Listener listener;
  auto options = rank_options(listener, 1, 2);
  options.patience = 500ms;
  std::atomic<bool> done{false};
  std::thread impostor{[&] {
    while (!done.load()) {
      bootstrap::Connection link{Fd{accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK)}, "rank 1"};
      const bootstrap::Nonce mine = bootstrap::fresh_nonce();
      link.send(Kind::challenge, Bytes{mine.begin(), mine.end()});
      const auto proof = next_frame(link);
      if (!proof) continue;
      const bootstrap::Mac mac =
          bootstrap::prove(options.place.secret, bootstrap::Role::listens, mine, nonce_in(*proof), 1);
      link.send(Kind::welcome, Bytes{mac.begin(), mac.end()});
      if (!next_frame(link)) continue;
      const std::string head = head_of_4_gib(Kind::hello);
      ::send(link.fd(), head.data(), head.size(), MSG_NOSIGNAL);
      next_frame(link);  // its end
    }
  }};
  const std::int64_t before = memory_kib("VmHWM");
  const Attendance one = join(options);
  const std::int64_t grown = memory_kib("VmHWM") - before;
  done.store(true);
  Line::to(listener.port());  // wakes it
  impostor.join();
  close(listener.fd());
  EXPECT_EQ(one.status.code(), Code::environment);
  EXPECT_THAT(one.error(), HasSubstr(kTooLong));
  EXPECT_LT(grown, kMostGrowthKib);
}

/// What a rank may send instead of its part of a gathering, and the error that the others get.
struct Mischief {
  const char* name;
  void (*act)(Insider&);
  const char* heard;
};

void PrintTo(const Mischief& mischief, std::ostream* out) { *out << mischief.name; }

class HostileRank : public ::testing::TestWithParam<Mischief> {};

TEST_P(HostileRank, EndsAGatheringByNameAndCostsNothing) {
  const Listener listener;
  const auto ranks = whole_world(listener, 3);
  const std::int64_t before = memory_kib("VmHWM");
  std::vector<Status> ends(3);
  at_once(3, [&](std::size_t i) {
    if (i == 1) {
      Insider insider{ranks[1]};
      insider.join();
      GetParam().act(insider);
      EXPECT_TRUE(insider.is_dropped());
      return;
    }
    const Attendance joined = join(ranks[i]);
    ASSERT_TRUE(joined.status.ok()) << joined.error();
    Blocking blocking = Blocking::on_thread("test");
    try {
      joined.bootstrap->all_gather(blocking, "things", Bytes(8), Deadline::after(20s));
    } catch (const Error& error) {
      ends[i] = error.status();
    }
  });
  for (const std::size_t i : {0, 2}) {
    EXPECT_EQ(ends[i].code(), Code::peer_lost);
    EXPECT_THAT(std::string{ends[i].text()}, AllOf(HasSubstr("rank 1"), HasSubstr(GetParam().heard)));
  }
  EXPECT_LT(memory_kib("VmHWM") - before, kMostGrowthKib);
}

Bytes name_of_4_gib() {
  Bytes body;
  bootstrap::put_u32(body, 0);  // the first gathering
  bootstrap::put_u32(body, 0xffffffff);
  return body;
}

INSTANTIATE_TEST_SUITE_P(
    Of, HostileRank,
    ::testing::Values(Mischief{"FourGibibytes", [](Insider& it) { it.send(head_of_4_gib(Kind::gather)); }, kTooLong},
                      Mischief{"ANameOfFourGibibytes", [](Insider& it) { it.send(Kind::gather, name_of_4_gib()); },
                               "a gathering's name of 4294967295 bytes"},
                      Mischief{"Rubbish", [](Insider& it) { it.send(std::string(4096, '\xa5')); },
                               "does not speak this protocol"}),
    [](const auto& test) { return test.param.name; });

/// Ranks 0 and 2 of three, watching; rank 1 is the attacker.
class WatchingPair {
 public:
  template <class Rank1>
  WatchingPair(const Listener& listener, Rank1 rank_one) {
    const auto ranks = whole_world(listener, 3);
    at_once(3, [&](std::size_t i) {
      if (i == 1) return rank_one(ranks[1]);
      joined_[i / 2] = join(ranks[i]);
    });
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(joined_[i].status.ok()) << joined_[i].error();
      if (joined_[i].bootstrap) joined_[i].bootstrap->watch(losses_[i].callback());
    }
  }
  const Losses& zero() const { return losses_[0]; }
  const Losses& two() const { return losses_[1]; }
  void end_two() { joined_[1].bootstrap.reset(); }

 private:
  Losses losses_[2];
  Attendance joined_[2];
};

TEST(HostileInsiders, WhoSendRubbishToWatchingRanksAreLostAndNobodyElse) {
  for (const std::string& rubbish : {head_of_4_gib(Kind::bye), std::string(4096, '\xa5')}) {
    const Listener listener;
    std::unique_ptr<Insider> insider;
    const std::int64_t before = memory_kib("VmHWM");
    WatchingPair ranks{listener, [&](const RankOptions& options) {
                         insider = std::make_unique<Insider>(options);
                         insider->join();
                       }};
    insider->send(rubbish);
    EXPECT_TRUE(insider->is_dropped());
    for (const Losses* told : {&ranks.zero(), &ranks.two()}) {
      EXPECT_TRUE(eventually([&] { return !told->peers().empty(); }));
      EXPECT_THAT(told->peers(), ElementsAre(1));
    }
    ranks.end_two();
    EXPECT_TRUE(eventually([&] { return ranks.zero().peers().size() == 2; })) << "it watches on";
    EXPECT_LT(memory_kib("VmHWM") - before, kMostGrowthKib);
  }
}

TEST(HostileStrangers, WhoComeAfterAllRanksHaveJoinedFindNobody) {
  const Recording recording = record_a_join();
  const Listener listener;
  const std::int64_t before = memory_kib("VmHWM");
  // A launcher may still hold the socket that listens: then connections are made, and nobody takes them.
  const Fd launchers{dup(listener.fd())};
  Attendance one;
  WatchingPair ranks{listener, [&](const RankOptions& options) { one = join(options); }};
  Losses of_one;
  ASSERT_TRUE(one.status.ok()) << one.error();
  one.bootstrap->watch(of_one.callback());

  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(std::make_unique<RawClient>(listener.port()));
    const std::string rubbish[] = {head_of_4_gib(Kind::proof), recording.connector, std::string(4096, '\xa5'), {}};
    crowd.back()->send(rubbish[i % 4]);
  }
  // A sign that messages still arrive, and how far they have come.
  one.bootstrap.reset();
  for (const Losses* told : {&ranks.zero(), &ranks.two()}) {
    EXPECT_TRUE(eventually([&] { return !told->peers().empty(); }));
    EXPECT_THAT(told->peers(), ElementsAre(1));
  }
  EXPECT_THAT(of_one.peers(), IsEmpty());
  EXPECT_LT(memory_kib("VmHWM") - before, kMostGrowthKib);
}

TEST(HostileStrangers, AreRefusedByTheSystemAfterAllRanksHaveJoined) {
  const Listener listener;
  const auto joined = join_all(whole_world(listener, 2));
  for (const Attendance& one : joined) ASSERT_TRUE(one.status.ok()) << one.error();
  const Deadline deadline = Deadline::after(20s);
  const Fd stranger =
      bootstrap::connect_to(bootstrap::resolve("127.0.0.1", listener.port(), deadline).front(), deadline);
  EXPECT_EQ(stranger.get(), -1);
}

}  // namespace
}  // namespace troupe::testing
