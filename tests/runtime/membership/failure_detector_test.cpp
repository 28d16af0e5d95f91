#include "runtime/membership/failure_detector.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/config/settings.hpp"
#include "tests/fuzz/allocation_watch.hpp"

namespace troupe {

void PrintTo(Peer peer, std::ostream* out) { *out << "peer " << peer.value; }

namespace testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr Peer kOne{1};
constexpr Peer kTwo{2};
const Clock::time_point kStart{1000s};

/// What a run of looks found, by time since kStart.
struct Found {
  std::vector<std::pair<Clock::duration, Peer>> heartbeat, suspect, recovered, dead;
};

/// Looks whenever the detector wants to, from `from` until before `until`; `at` is called before each look.
Found run(FailureDetector& detector, Clock::duration from, Clock::duration until,
          const std::function<void(Clock::time_point)>& at = {}) {
  Found found;
  for (Clock::time_point now = kStart + from; now < kStart + until;) {
    if (at) at(now);
    const auto findings = detector.look(now);
    const auto note = [&](std::span<const Peer> peers, auto& to) {
      for (const Peer peer : peers) to.emplace_back(now - kStart, peer);
    };
    note(findings.heartbeat, found.heartbeat);
    note(findings.suspect, found.suspect);
    note(findings.recovered, found.recovered);
    note(findings.dead, found.dead);
    EXPECT_GT(findings.next, now);
    now = findings.next;
  }
  return found;
}

FailureDetector watching(std::initializer_list<Peer> peers, FailureDetectorOptions options = {}) {
  FailureDetector detector{4, options, kStart};
  for (const Peer peer : peers) detector.watch(peer, kStart);
  return detector;
}

TEST(FailureDetector, SendsAHeartbeatWhereNothingElseWasSentForAnInterval) {
  FailureDetector detector = watching({kOne, kTwo});
  const auto talk = [&](Clock::time_point now) {
    for (const Peer peer : {kOne, kTwo}) detector.heard(peer, now);
  };
  const Found quiet = run(detector, 0ms, 350ms, talk);
  EXPECT_THAT(quiet.heartbeat, ElementsAre(std::pair{100ms, kOne}, std::pair{100ms, kTwo}, std::pair{200ms, kOne},
                                           std::pair{200ms, kTwo}, std::pair{300ms, kOne}, std::pair{300ms, kTwo}));
  const Found busy = run(detector, 350ms, 1000ms, [&](Clock::time_point now) {
    talk(now);
    detector.sent(kOne, now);
  });
  EXPECT_FALSE(busy.heartbeat.empty());
  for (const auto& [when, peer] : busy.heartbeat) EXPECT_EQ(peer, kTwo);
}

TEST(FailureDetector, FindsASilentPeerSuspectThenDeadOnTime) {
  FailureDetector detector = watching({kOne, kTwo});
  const Found found = run(detector, 0ms, 3000ms, [&](Clock::time_point now) { detector.heard(kTwo, now); });
  EXPECT_THAT(found.suspect, ElementsAre(std::pair{300ms, kOne}));
  EXPECT_THAT(found.dead, ElementsAre(std::pair{1000ms, kOne}));
  EXPECT_THAT(found.recovered, IsEmpty());
  EXPECT_TRUE(detector.watched(kTwo));
}

TEST(FailureDetector, FindsASilentPeerDeadWithinAFifthMoreWhenLooksComeLate) {
  std::mt19937 dice{7};
  for (const auto dead : {1000ms, 3000ms}) {
    FailureDetector detector = watching({kOne}, FailureDetectorOptions::with_dead(dead));
    Clock::time_point now = kStart;
    while (detector.look(now).dead.empty()) now = detector.look(now).next + std::chrono::milliseconds{dice() % 50};
    EXPECT_GE(now - kStart, dead);
    EXPECT_LE(now - kStart, dead + dead / 5);
  }
}

TEST(FailureDetector, KeepsAPeerThatPausesFor800MillisecondsOf3000) {
  FailureDetector detector = watching({kOne}, FailureDetectorOptions::with_dead(3000ms));
  const Found found = run(detector, 0ms, 5000ms, [&](Clock::time_point now) {
    if (now < kStart + 1000ms || now > kStart + 1800ms) detector.heard(kOne, now);
  });
  EXPECT_THAT(found.dead, IsEmpty());
  ASSERT_EQ(found.suspect.size(), 1u);
  ASSERT_EQ(found.recovered.size(), 1u);
  EXPECT_GE(found.suspect[0].first, 1200ms);
  EXPECT_LE(found.suspect[0].first, 1300ms);
  EXPECT_GE(found.recovered[0].first, 1800ms);
  EXPECT_LE(found.recovered[0].first, 1900ms);
}

TEST(FailureDetector, KeepsAllPeersOfAJobWhoseProcessesFindNoProcessorForSeconds) {
  // The settings of a job that sets none. Every process waits for a processor again and again: mostly for less than
  // half a second, now and then for up to 4 s, the speakers as well as the one who listens.
  std::mt19937 dice{11};
  const auto late = [&] { return std::chrono::milliseconds{dice() % 50 == 0 ? dice() % 4000 : dice() % 500}; };
  FailureDetector detector = watching({kOne, kTwo}, FailureDetectorOptions::with_dead(Settings{}.faults.dead));
  std::array<Clock::time_point, 2> speaks{kStart, kStart};
  std::size_t longest_ms = 0;
  Clock::time_point heard = kStart;
  for (Clock::time_point now = kStart; now < kStart + 1h;) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (speaks[i] > now) continue;
      detector.heard({i + 1}, now);
      if (i == 0) {
        longest_ms = std::max(longest_ms, static_cast<std::size_t>((now - heard) / 1ms));
        heard = now;
      }
      while (speaks[i] <= now) speaks[i] += 100ms + late();
    }
    const auto findings = detector.look(now);
    ASSERT_THAT(findings.dead, IsEmpty()) << (now - kStart) / 1ms << " ms after the start";
    now = findings.next + late();
  }
  EXPECT_GT(longest_ms, 4000u) << "the silences of this test are too short to show anything";
}

TEST(FailureDetector, BlamesNobodyForItsOwnPause) {
  FailureDetector detector = watching({kOne, kTwo});
  const auto talk = [&](Clock::time_point now) {
    for (const Peer peer : {kOne, kTwo}) detector.heard(peer, now);
  };
  run(detector, 0ms, 1000ms, talk);
  const auto after = detector.look(kStart + 60s);  // before anything that waited was read
  EXPECT_THAT(after.suspect, IsEmpty());
  EXPECT_THAT(after.dead, IsEmpty());
  EXPECT_THAT(after.heartbeat, ElementsAre(kOne, kTwo));  // the others have missed us
}

TEST(FailureDetector, StillFindsAPeerThatDiedDuringItsOwnPause) {
  FailureDetector detector = watching({kOne});
  run(detector, 0ms, 1000ms, [&](Clock::time_point now) { detector.heard(kOne, now); });
  const Found found = run(detector, 60s, 62s);
  ASSERT_EQ(found.dead.size(), 1u);
  EXPECT_LE(found.dead[0].first, 60s + 1000ms);
  EXPECT_GE(found.dead[0].first, 60s + 800ms);  // an interval before the pause, one of the pause
}

TEST(FailureDetector, CountsOnlyOneIntervalOfManyPauses) {
  FailureDetector detector = watching({kOne});
  int looks = 0;
  for (Clock::time_point now = kStart; detector.watched(kOne); now += 5s, ++looks) detector.look(now);
  EXPECT_EQ(looks, 11);  // ten pauses of an interval each make up dead
}

TEST(FailureDetector, LetsTheDeadStayDead) {
  FailureDetector detector = watching({kOne});
  run(detector, 0ms, 2000ms);
  ASSERT_FALSE(detector.watched(kOne));
  detector.heard(kOne, kStart + 2000ms);
  const Found found = run(detector, 2000ms, 5000ms);
  EXPECT_THAT(found.recovered, IsEmpty());
  EXPECT_THAT(found.dead, IsEmpty());
  EXPECT_THAT(found.heartbeat, IsEmpty());
}

TEST(FailureDetector, StartsAfreshWithAPeerThatIsWatchedAgain) {
  FailureDetector detector = watching({kOne});
  run(detector, 0ms, 2000ms);
  detector.watch(kOne, kStart + 2000ms);
  const Found found = run(detector, 2000ms, 5000ms);
  EXPECT_THAT(found.suspect, ElementsAre(std::pair{2300ms, kOne}));
  EXPECT_THAT(found.dead, ElementsAre(std::pair{3000ms, kOne}));
}

TEST(FailureDetector, SaysNothingOfAPeerThatLeft) {
  FailureDetector detector = watching({kOne});
  run(detector, 0ms, 500ms);
  detector.forget(kOne);
  const Found found = run(detector, 500ms, 3000ms);
  EXPECT_THAT(found.dead, IsEmpty());
  EXPECT_THAT(found.heartbeat, IsEmpty());
}

TEST(FailureDetector, FitsTheOtherSpansToTheDeath) {
  const auto usual = FailureDetectorOptions::with_dead(3000ms);
  EXPECT_EQ(usual.heartbeat, 100ms);
  EXPECT_EQ(usual.suspect, 300ms);
  const auto patient = FailureDetectorOptions::with_dead(20s);
  EXPECT_EQ(patient.heartbeat, 100ms);
  EXPECT_EQ(patient.suspect, 2s);
  const auto quick = FailureDetectorOptions::with_dead(100ms);  // the least that faults.dead_ms may be
  EXPECT_EQ(quick.heartbeat, 11ms);
  EXPECT_EQ(quick.suspect, 33ms);
  EXPECT_NO_THROW(FailureDetector(1, quick, kStart));
}

TEST(FailureDetector, RefusesSpansOutOfOrder) {
  for (const FailureDetectorOptions& wrong :
       {FailureDetectorOptions{0ms, 300ms, 1000ms}, FailureDetectorOptions{300ms, 300ms, 1000ms},
        FailureDetectorOptions{100ms, 1000ms, 1000ms}}) {
    EXPECT_THROW(FailureDetector(1, wrong, kStart), Error);
  }
}

TEST(FailureDetector, AllocatesNothingOnceItStands) {
  FailureDetector detector{64, {}, kStart};
  reset_largest_allocation();
  for (std::uint32_t i = 0; i < 64; ++i) detector.watch({i}, kStart);
  for (Clock::time_point now = kStart; now < kStart + 2s; now += 50ms) {
    for (std::uint32_t i = 0; i < 32; ++i) detector.heard({i}, now);
    detector.look(now);
  }
  EXPECT_EQ(largest_allocation(), 0u);
}

/// The definition, written plainly: of every span between two looks one interval counts, from its beginning on.
struct Reference {
  std::vector<Clock::time_point> looks{kStart};
  Clock::time_point heard = kStart;
  Clock::time_point sent = kStart;
  bool watched = true;
  bool suspect = false;

  Clock::duration silence() const {
    Clock::duration sum{};
    for (std::size_t i = 1; i < looks.size(); ++i) {
      const auto end = std::min(looks[i], looks[i - 1] + 100ms);
      sum += std::max<Clock::duration>(end - std::max(heard, looks[i - 1]), 0ms);
    }
    return sum;
  }
};

/// Peers by the detector's findings about them.
struct Lists {
  std::vector<Peer> heartbeat, suspect, recovered, dead;
};

void look(Reference& one, Peer peer, Clock::time_point now, Lists& to) {
  one.looks.push_back(now);
  if (!one.watched) return;
  const auto silence = one.silence();
  const bool was_suspect = std::exchange(one.suspect, silence >= 300ms);
  if (silence >= 1000ms) {
    to.dead.push_back(peer);
    one.watched = false;
    return;
  }
  if (one.suspect && !was_suspect) to.suspect.push_back(peer);
  if (!one.suspect && was_suspect) to.recovered.push_back(peer);
  if (now - one.sent < 100ms) return;
  to.heartbeat.push_back(peer);
  one.sent = now;
}

TEST(FailureDetector, AgreesWithItsDefinitionUnderRandomTrafficAndPauses) {
  const char* chosen = std::getenv("TROUPE_TEST_SEED");
  const auto seed = static_cast<std::uint32_t>(chosen != nullptr ? std::atoi(chosen) : 20);
  std::cout << "seed " << seed << " (TROUPE_TEST_SEED sets it)\n";
  std::mt19937 dice{seed};
  std::size_t deaths = 0;
  std::size_t recoveries = 0;
  for (int round = 0; round < 100; ++round) {
    FailureDetector detector = watching({{0}, {1}, {2}, {3}});
    std::vector<Reference> expected(4);
    const std::uint32_t talkative = 1 + dice() % 60;
    Clock::time_point now = kStart;
    for (int step = 0; step < 150; ++step) {
      now += std::chrono::milliseconds{dice() % 15 == 0 ? dice() % 2000 : dice() % 60};
      const std::uint32_t peer = dice() % 4;
      if (dice() % talkative < 3) detector.heard({peer}, expected[peer].heard = now);
      if (dice() % 4 == 0) detector.sent({peer}, expected[peer].sent = now);
      if (dice() % 2 == 0) continue;
      Lists lists;
      for (std::uint32_t i = 0; i < 4; ++i) look(expected[i], {i}, now, lists);
      const auto findings = detector.look(now);
      ASSERT_THAT(findings.heartbeat, ElementsAreArray(lists.heartbeat)) << "round " << round << " step " << step;
      ASSERT_THAT(findings.suspect, ElementsAreArray(lists.suspect)) << "round " << round << " step " << step;
      ASSERT_THAT(findings.recovered, ElementsAreArray(lists.recovered)) << "round " << round << " step " << step;
      ASSERT_THAT(findings.dead, ElementsAreArray(lists.dead)) << "round " << round << " step " << step;
      ASSERT_GT(findings.next, now);
      deaths += lists.dead.size();
      recoveries += lists.recovered.size();
    }
  }
  EXPECT_GT(deaths, 20u);
  EXPECT_GT(recoveries, 20u);
}

TEST(FailureDetector, WantsNoLookWhereNobodyIsWatched) {
  FailureDetector detector = watching({});
  EXPECT_EQ(detector.look(kStart).next, Clock::time_point::max());
  detector.watch(kOne, kStart + 60s);
  EXPECT_EQ(detector.look(kStart + 60s).next, kStart + 60s + 100ms);
}

}  // namespace
}  // namespace testing
}  // namespace troupe
