#include "transports/bootstrap/bootstrap.hpp"

#include <dirent.h>
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <initializer_list>

#include "tests/support/child_process.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "transports/bootstrap/detail/connection.hpp"
#include "transports/bootstrap/detail/hello_codec.hpp"
#include "transports/bootstrap/detail/proof.hpp"

namespace troupe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::size_t count_descriptors() {
  std::size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

std::vector<std::byte> some_bytes(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  return bytes;
}

TEST(Bootstrap, ReportsEveryRankToEveryOther) {
  const Listener listener;
  const auto ranks = whole_world(listener, 5);
  const auto joined = join_all(ranks);
  for (const Attendance& one : joined) {
    ASSERT_TRUE(one.status.ok()) << one.error();
    const auto& hellos = one.bootstrap->hellos();
    ASSERT_EQ(hellos.size(), 5u);
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
      EXPECT_EQ(hellos[rank].rank, rank);
      EXPECT_EQ(hellos[rank].topology, ranks[rank].hello.topology);
      EXPECT_EQ(hellos[rank].settings_hash, 0x1234u);
      EXPECT_TRUE(hellos[rank].settings.empty());
      EXPECT_EQ(hellos[rank].pid, getpid());
    }
  }
}

TEST(Bootstrap, TellsFromWhichAddressesRanksMayConnect) {
  const Listener listener;
  auto ranks = whole_world(listener, 3);
  ranks[2].hello.addresses = {"192.0.2.7"};  // an address that is translated on the way
  for (const Attendance& one : join_all(ranks)) {
    ASSERT_TRUE(one.status.ok()) << one.error();
    const auto hosts = hosts_of(one.bootstrap->hellos());
    ASSERT_EQ(hosts.size(), 3u);
    EXPECT_THAT(hosts[0].addresses, ::testing::Contains("127.0.0.1"));
    EXPECT_THAT(hosts[1].addresses, ::testing::Contains("127.0.0.1"));
    EXPECT_THAT(hosts[2].addresses, ::testing::ElementsAre("192.0.2.7", "127.0.0.1"));
    EXPECT_EQ(hosts[2].pid_namespace, ranks[2].hello.pid_namespace);
    EXPECT_EQ(hosts[2].node, ranks[2].hello.topology.identity);
  }
}

TEST(Bootstrap, OfOneRankIsCompleteAtOnce) {
  const Listener listener;
  const Attendance alone = join(rank_options(listener, 0, 1));
  ASSERT_TRUE(alone.status.ok()) << alone.error();
  EXPECT_EQ(alone.bootstrap->hellos().size(), 1u);
}

TEST(Bootstrap, WaitsForARankZeroThatStartsLater) {
  const QuietPort unused;
  auto rank_one = rank_options(unused, 1, 2);
  auto rank_zero = rank_options(unused, 0, 2);
  rank_zero.place.listen_fd = -1;
  Attendance zero;
  Attendance one;
  std::thread first{[&] { one = join(rank_one); }};
  std::thread later{[&] {
    usleep(60'000);  // a condition to wait for would need the port, which nobody has yet
    zero = join(rank_zero);
  }};
  first.join();
  later.join();
  EXPECT_TRUE(zero.status.ok()) << zero.error();
  EXPECT_TRUE(one.status.ok()) << one.error();
}

TEST(Bootstrap, GathersEveryonesBlobInTheOrderOfRanks) {
  const Listener listener;
  const auto joined = join_all(whole_world(listener, 4));
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{3} << 20}) {
    at_once(4, [&](std::size_t rank) {
      Blocking blocking = Blocking::on_thread("test");
      const auto mine = some_bytes(size * rank, static_cast<unsigned>(rank));
      const auto all = joined[rank].bootstrap->all_gather(blocking, "blobs", mine, Deadline::after(20s));
      ASSERT_EQ(all.size(), 4u);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(all[i], some_bytes(size * i, static_cast<unsigned>(i)));
    });
  }
}

TEST(Bootstrap, RefusesABlobThatIsTooLarge) {
  const Listener listener;
  const auto joined = join_all(whole_world(listener, 2));
  Blocking blocking = Blocking::on_thread("test");
  const auto large = some_bytes((16 << 20) + 1, 0);
  EXPECT_THROW(joined[0].bootstrap->all_gather(blocking, "large", large, Deadline::after(1s)), Error);
}

/// The error of every rank's gathering; rank 0 waits for `span`, the others longer, so that they hear what it says.
std::vector<Status> gather(const std::vector<Attendance>& joined, const std::vector<std::string>& names,
                           Clock::duration span) {
  std::vector<Status> result(names.size());
  at_once(names.size(), [&](std::size_t rank) {
    Blocking blocking = Blocking::on_thread("test");
    try {
      if (!names[rank].empty())
        joined[rank].bootstrap->all_gather(blocking, names[rank], {}, Deadline::after(rank == 0 ? span : 20s));
    } catch (const Error& error) {
      result[rank] = error.status();
    }
  });
  return result;
}

TEST(Bootstrap, EndsAGatheringOfDifferentThingsAtEveryRankWithBothNames) {
  const Listener listener;
  const auto joined = join_all(whole_world(listener, 3));
  for (const Status& status : gather(joined, {"plans", "plans", "places"}, 20s)) {
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_THAT(std::string{status.text()}, AllOf(HasSubstr("rank 2"), HasSubstr("'places'"), HasSubstr("'plans'")));
  }
}

TEST(Bootstrap, NamesTheRankThatAGatheringWaitedFor) {
  const Listener listener;
  const auto joined = join_all(whole_world(listener, 3));
  const auto late = gather(joined, {"plans", "", "plans"}, 200ms);
  for (const std::size_t rank : {0, 2}) {
    EXPECT_EQ(late[rank].code(), Code::timeout);
    EXPECT_THAT(std::string{late[rank].text()}, AllOf(HasSubstr("rank 1"), HasSubstr("'plans'")));
  }
}

TEST(Bootstrap, EndsAGatheringWhenARankIsLost) {
  const Listener listener;
  auto joined = join_all(whole_world(listener, 3));
  joined[1].bootstrap.reset();
  const auto ended = gather(joined, {"plans", "", "plans"}, 20s);
  for (const std::size_t rank : {0, 2}) {
    EXPECT_EQ(ended[rank].code(), Code::peer_lost);
    EXPECT_THAT(std::string{ended[rank].text()}, HasSubstr("rank 1"));
  }
}

TEST(Bootstrap, EndsAGatheringWhenRankZeroIsLost) {
  const Listener listener;
  auto joined = join_all(whole_world(listener, 2));
  joined[0].bootstrap.reset();
  const auto ended = gather(joined, {"", "plans"}, 20s);
  EXPECT_EQ(ended[1].code(), Code::peer_lost);
  EXPECT_THAT(std::string{ended[1].text()}, HasSubstr("rank 0"));
}

TEST(Bootstrap, RefusesAWrongSecretAndWaitsOn) {
  const Listener listener;
  auto ranks = whole_world(listener, 2);
  auto stranger = ranks[1];
  stranger.place.secret = "another secret";
  Attendance refused;
  Attendance zero;
  std::thread host{[&] { zero = join(ranks[0]); }};
  refused = join(stranger);
  const Attendance one = join(ranks[1]);
  host.join();
  EXPECT_EQ(refused.status.code(), Code::environment);
  EXPECT_THAT(refused.error(), HasSubstr("TROUPE_SECRET_FILE"));
  EXPECT_TRUE(one.status.ok()) << one.error();
  EXPECT_TRUE(zero.status.ok()) << zero.error();
  EXPECT_TRUE(zero.heard("does not know the job's secret"));
}

TEST(Bootstrap, NamesTheMissingRanksToAllAtTheDeadlineAndEveryFiveSecondsBefore) {
  const Listener listener;
  auto ranks = whole_world(listener, 7);
  ranks.erase(ranks.begin() + 4, ranks.begin() + 7);  // 4, 5, 6 never come
  ranks.erase(ranks.begin() + 1);
  ranks[0].patience = 5500ms;
  for (const Attendance& one : join_all(ranks)) {
    EXPECT_EQ(one.status.code(), Code::timeout);
    EXPECT_THAT(one.error(), HasSubstr("ranks 1, 4-6 of 7 to join at 127.0.0.1:"));
    EXPECT_TRUE(one.heard("waiting for ranks 1, 4-6 of 7"));
  }
}

struct Mismatch {
  const char* name;
  std::function<void(RankOptions&)> change;
  std::vector<std::string> said;
};
class BootstrapMismatch : public ::testing::TestWithParam<Mismatch> {};

TEST_P(BootstrapMismatch, IsRefusedWithBothValuesAtBothEnds) {
  const Listener listener;
  auto ranks = whole_world(listener, 2);
  GetParam().change(ranks[1]);
  for (const Attendance& one : join_all(ranks)) {
    EXPECT_EQ(one.status.code(), Code::invalid);
    for (const std::string& part : GetParam().said) EXPECT_THAT(one.error(), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, BootstrapMismatch,
    ::testing::Values(
        Mismatch{"Version",
                 [](RankOptions& o) { o.hello.troupe_version = "0.2.0"; },
                 {"0.2.0 on rank 1", "0.1.0 on rank 0"}},
        Mismatch{"Protocol", [](RankOptions& o) { o.hello.protocol = 2; }, {"protocol 2 on rank 1, 1 on rank 0"}},
        Mismatch{"Caf", [](RankOptions& o) { o.hello.caf_version = "0.18.5"; }, {"CAF", "0.18.5", "0.17.6"}},
        Mismatch{"Ucx", [](RankOptions& o) { o.hello.ucx_version = ""; }, {"UCX", "none on rank 1", "1.13.1"}},
        Mismatch{"Settings",
                 [](RankOptions& o) {
                   o.hello.settings_hash = 0xabcd;
                   o.hello.settings[0] = "data.batch = 50";
                 },
                 {"does not fit rank 0: settings: data.batch = 50 on rank 1, data.batch = 100 on rank 0 (start"}},
        Mismatch{"SeveralSettings",
                 [](RankOptions& o) {
                   o.hello.settings_hash = 0xabcd;
                   o.hello.settings = {"data.batch = 50", "train.seed = 8"};
                 },
                 {"data.batch = 50 on rank 1", ", and train.seed = 8 on rank 1, train.seed = 7 on rank 0 (start"}},
        Mismatch{"SettingsThatAreNotTold",
                 [](RankOptions& o) {
                   o.hello.settings_hash = 0xabcd;
                   o.hello.settings.clear();
                 },
                 {"settings 0xabcd", "0x1234", "app.toml"}},
        Mismatch{"TypeTable", [](RankOptions& o) { o.hello.type_table_hash = 1; }, {"message types", "0x5678"}},
        Mismatch{"WorldSize", [](RankOptions& o) { o.place.world_size = 3; }, {"world size 3 on rank 1, 2 on rank 0"}}),
    [](const auto& info) { return info.param.name; });

TEST(Bootstrap, RefusesASecondProcessOfOneRankAndGoesOn) {
  const Listener listener;
  const auto ranks = whole_world(listener, 3);
  Attendance zero;
  std::array<Attendance, 2> ones;
  std::atomic<int> over{0};
  std::thread host{[&] { zero = join(ranks[0]); }};
  std::thread both{[&] {
    at_once(2, [&](std::size_t i) {
      ones[i] = join(ranks[1]);
      over.fetch_add(1);
    });
  }};
  EXPECT_TRUE(eventually([&] { return over.load() == 1; }));  // the one that came second; the first waits for rank 2
  const Attendance two = join(ranks[2]);
  both.join();
  host.join();
  EXPECT_TRUE(zero.status.ok()) << zero.error();
  EXPECT_TRUE(two.status.ok()) << two.error();
  EXPECT_NE(ones[0].status.ok(), ones[1].status.ok());
  const Attendance& refused = ones[0].status.ok() ? ones[1] : ones[0];
  EXPECT_EQ(refused.status.code(), Code::invalid);
  EXPECT_THAT(refused.error(), HasSubstr("has joined already"));
}

TEST(Bootstrap, SaysThatAPortIsInUse) {
  const Listener taken;
  auto zero = rank_options(taken, 0, 2);
  zero.place.listen_fd = -1;
  const Attendance refused = join(zero);
  close(taken.fd());
  EXPECT_EQ(refused.status.code(), Code::environment);
  EXPECT_THAT(refused.error(), AllOf(HasSubstr("127.0.0.1:" + std::to_string(taken.port())), HasSubstr("MASTER_PORT"),
                                     HasSubstr("in use")));
}

TEST(Bootstrap, SaysWhereItCouldNotReachRankZeroAndWhy) {
  const QuietPort gone;
  auto one = rank_options(gone, 1, 2);
  one.patience = 200ms;
  const Attendance alone = join(one);
  EXPECT_EQ(alone.status.code(), Code::environment);
  EXPECT_THAT(alone.error(), AllOf(HasSubstr("127.0.0.1:" + std::to_string(gone.port())),
                                   HasSubstr("Connection refused"), HasSubstr("rank 1")));
}

TEST(Bootstrap, GivesUpOnAListenerThatSaysNothing) {
  const Listener silent;
  auto one = rank_options(silent, 1, 2);
  one.patience = 200ms;
  const Attendance alone = join(one);
  close(silent.fd());
  EXPECT_EQ(alone.status.code(), Code::timeout);
  EXPECT_THAT(alone.error(), HasSubstr("to send its first message"));
}

TEST(Bootstrap, KeepsToLoopbackWithoutASecret) {
  const Listener listener;
  auto ranks = whole_world(listener, 2);
  for (RankOptions& rank : ranks) rank.place.secret.clear();
  for (const Attendance& one : join_all(ranks)) EXPECT_TRUE(one.status.ok()) << one.error();
  for (RankOptions& rank : ranks) {
    rank.place.master_address = "192.0.2.1";
    rank.place.listen_fd = -1;
    rank.patience = 5s;
    const Attendance refused = join(rank);
    EXPECT_EQ(refused.status.code(), Code::environment);
    EXPECT_THAT(refused.error(), HasSubstr("TROUPE_SECRET_FILE"));
  }
}

TEST(Bootstrap, RefusesADescriptorThatDoesNotListen) {
  const QuietPort port;
  auto zero = rank_options(port, 0, 2);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  zero.place.listen_fd = ends[0];
  EXPECT_THAT(join(zero).error(), HasSubstr("TROUPE_LISTEN_FD"));
  close(ends[0]);
  close(ends[1]);
}

/// A frame's head with any content.
std::string head(std::uint32_t magic, std::uint32_t kind, std::uint32_t length) {
  bootstrap::Bytes bytes;
  for (const std::uint32_t word : {magic, kind, length}) bootstrap::put_u32(bytes, word);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Bootstrap, IsNotDisturbedByRubbishOnItsPort) {
  constexpr std::uint32_t kMagic = 0x31505254;
  const Listener listener;
  auto ranks = whole_world(listener, 3);
  Attendance zero;
  Attendance one;
  std::thread host{[&] { zero = join(ranks[0]); }};
  std::thread guest{[&] { one = join(ranks[1]); }};
  const std::vector<std::string> rubbish{
      "GET / HTTP/1.1\r\n\r\n",
      std::string(64, '\0'),
      std::string(64, '\xff'),
      head(kMagic, 2, 0xffffffff),                           // oversized
      head(kMagic, 2, 1 << 20) + std::string(1 << 16, 'x'),  // larger than a stranger may
      head(kMagic, 2, 68) + std::string(68, 'x'),            // a proof of nothing
      head(kMagic, 2, 5) + "short",
      head(kMagic, 4, 64) + std::string(64, '\0'),  // a hello before the proof
      head(kMagic, 7, 8) + std::string(8, '\0'),    // a gathering before the proof
      head(kMagic, 77, 0)};
  for (const std::string& bytes : rubbish) {
    const RawClient client{listener.port()};
    client.send(bytes);
    client.drain();  // it is dropped at once, not at some deadline
  }
  for (const std::string& bytes : {std::string{}, std::string{"TRP1"}, head(kMagic, 2, 68) + "trunc"}) {
    const RawClient client{listener.port()};
    client.send(bytes);
  }
  const Attendance two = join(ranks[2]);
  host.join();
  guest.join();
  for (const Attendance* each : std::initializer_list<const Attendance*>{&zero, &one, &two})
    EXPECT_TRUE(each->status.ok()) << each->error();
}

TEST(Bootstrap, IsNotHeldUpByConnectionsThatDripOrSayNothing) {
  const Listener listener;
  auto ranks = whole_world(listener, 3);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 40; ++i) slow.push_back(std::make_unique<RawClient>(listener.port()));
  std::atomic<bool> done{false};
  std::thread drip{[&] {
    const std::string bytes = head(0x31505254, 2, 68) + std::string(60, 'x');
    for (std::size_t i = 0; i < bytes.size() && !done.load(); ++i) {
      for (const auto& client : slow) client->send(bytes.substr(i, 1));
      usleep(2000);
    }
  }};
  const auto joined = join_all(ranks);
  done.store(true);
  drip.join();
  for (const Attendance& one : joined) EXPECT_TRUE(one.status.ok()) << one.error();
}

TEST(Bootstrap, SurvivesMoreStrangersThanItKeeps) {
  const Listener listener;
  auto ranks = whole_world(listener, 2);
  Attendance zero;
  std::thread host{[&] { zero = join(ranks[0]); }};
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 400; ++i) crowd.push_back(std::make_unique<RawClient>(listener.port()));
  const Attendance one = join(ranks[1]);
  host.join();
  EXPECT_TRUE(zero.status.ok()) << zero.error();
  EXPECT_TRUE(one.status.ok()) << one.error();
}

TEST(Bootstrap, IsNotFooledByAListenerThatDoesNotKnowTheSecret) {
  const Listener listener;
  auto rank_one = rank_options(listener, 1, 2);
  std::thread impostor{[&] {
    bootstrap::Connection link{Fd{accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK)}, "rank 1"};
    bootstrap::Connection* const links[] = {&link};
    link.send(bootstrap::Kind::challenge, bootstrap::Bytes(32));
    link.send(bootstrap::Kind::welcome, bootstrap::Bytes(32));
    bootstrap::part(links, Deadline::after(10s));
  }};
  const Attendance refused = join(rank_one);
  impostor.join();
  close(listener.fd());
  EXPECT_EQ(refused.status.code(), Code::environment);
  EXPECT_THAT(refused.error(), HasSubstr("does not know the job's secret"));
}

TEST(Bootstrap, LeavesNoDescriptorBehindWhateverHappens) {
  const std::size_t before = count_descriptors();
  {
    const Listener listener;
    auto ranks = whole_world(listener, 3);
    ranks[2].hello.settings_hash = 1;
    ranks[1].patience = 2s;  // it may come when rank 0 has ended
    join_all(ranks);
  }
  {
    const Listener listener;
    auto joined = join_all(whole_world(listener, 3));
    for (Attendance& one : joined) one.bootstrap->watch([](Peer, const Status&) {});
    for (Attendance& one : joined) one.bootstrap->leave();
  }
  EXPECT_EQ(count_descriptors(), before);
}

TEST(BootstrapProof, DependsOnSecretRoleNoncesAndRank) {
  using namespace bootstrap;
  const Nonce a = fresh_nonce();
  const Nonce b = fresh_nonce();
  EXPECT_NE(a, b);
  const Mac mac = prove("secret", Role::connects, a, b, 1);
  EXPECT_TRUE(same(mac, prove("secret", Role::connects, a, b, 1)));
  EXPECT_FALSE(same(mac, prove("Secret", Role::connects, a, b, 1)));
  EXPECT_FALSE(same(mac, prove("secret", Role::listens, a, b, 1)));
  EXPECT_FALSE(same(mac, prove("secret", Role::connects, b, a, 1)));
  EXPECT_FALSE(same(mac, prove("secret", Role::connects, a, b, 2)));
  EXPECT_NE(prove("", Role::connects, a, b, 1), prove("x", Role::connects, a, b, 1));
}

}  // namespace
}  // namespace troupe::testing
