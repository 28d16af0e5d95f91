#include "runtime/compute/update_pass.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "devices/cpu/update.hpp"
#include "runtime/base/random.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::cpu {
namespace {

constexpr std::uint64_t kCount = 3 * UpdateJournal::kBlockElements + 300;  // a ragged last block
constexpr std::uint64_t kBlocks = 4;

/// Stops a pass at one moment of one block.
struct StopAt {
  static constexpr bool kWatches = true;
  PassMoment moment;
  std::uint64_t block;
  bool go_on(PassMoment now, std::uint64_t at) const noexcept { return now != moment || at != block; }
};

/// A stripe in shared memory with its contributions.
class Stripe {
 public:
  Stripe(RuleKind kind, std::uint64_t count, std::size_t contributions)
      : kind_(kind),
        arena_(Arena::create(arena_id(Peer{0}, 1), (contributions + 6) * (count * sizeof(float) + 4096) + (1 << 20))) {
    at_.count = count;
    at_.parameters = take<float>(count);
    at_.half = take<std::uint16_t>(count);
    const std::size_t slots = state_slots(rule());
    for (std::size_t s = 0; s < slots; ++s) at_.state[s] = take<float>(count);
    at_.journal = reinterpret_cast<UpdateJournal*>(address(arena_->allocate(journal_bytes(slots))));
    for (std::size_t c = 0; c < contributions; ++c) {
      float* gradient = take<float>(count);
      for (std::uint64_t i = 0; i < count; ++i) gradient[i] = static_cast<float>(random_normal(sub_key(7, c), i));
      contributions_.push_back(gradient);
    }
    fill();
  }
  /// Parameters and states as they were before any update.
  void fill() {
    for (std::uint64_t i = 0; i < at_.count; ++i) {
      at_.parameters[i] = static_cast<float>(random_normal(1, i));
      at_.half[i] = 0;
      if (at_.state[0]) at_.state[0][i] = static_cast<float>(random_normal(2, i));
      if (at_.state[1]) at_.state[1][i] = static_cast<float>(random_unit(3, i));
      if (at_.state[2]) at_.state[2][i] = static_cast<float>(random_normal(4, i));
    }
    std::memset(static_cast<void*>(at_.journal), 0, journal_bytes(state_slots(rule())));
  }
  template <class Probe>
  bool update(std::uint64_t number, Probe&& probe, bool journal = true) {
    UpdateAddresses at = at_;
    if (!journal) at.journal = nullptr;
    return cpu::update(best_kernels(), rule_step(rule(), number), number, at, contributions_, StepSums{.samples = 10},
                       probe);
  }
  /// Everything an update writes.
  std::vector<std::byte> content() const {
    std::vector<std::byte> bytes;
    const auto append = [&](const void* from, std::uint64_t size) {
      const auto* first = static_cast<const std::byte*>(from);
      bytes.insert(bytes.end(), first, first + size);
    };
    append(at_.parameters, at_.count * sizeof(float));
    append(at_.half, at_.count * sizeof(std::uint16_t));
    for (const float* state : at_.state) {
      if (state) append(state, at_.count * sizeof(float));
    }
    return bytes;
  }
  std::uint64_t progress() const { return std::atomic_ref{at_.journal->progress}.load(); }

 private:
  /// With an average, as all rules but those of exchanges may have.
  Rule rule() const {
    return {.kind = kind_, .rate = 0.01, .weight_decay = 0.1, .ema_decay = entry_of(kind_).word.empty() ? 0 : 0.9};
  }
  std::byte* address(const Memory& memory) const { return arena_->base() + memory.offset; }
  template <class T>
  T* take(std::uint64_t count) {
    return reinterpret_cast<T*>(address(arena_->allocate(count * sizeof(T))));
  }
  const RuleKind kind_;
  std::shared_ptr<Arena> arena_;
  UpdateAddresses at_;
  std::vector<const float*> contributions_;
};

class UpdatePass : public ::testing::TestWithParam<RuleKind> {};
INSTANTIATE_TEST_SUITE_P(EveryRule, UpdatePass, ::testing::ValuesIn(kRuleKinds),
                         [](const auto& info) { return std::string{name_of(info.param)}; });

TEST_P(UpdatePass, IsFinishedByAnotherThreadWithTheSameBitsWhereverItStopped) {
  for (const std::size_t contributions : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
    Stripe stripe{GetParam(), kCount, contributions};
    ASSERT_TRUE(stripe.update(9, NoProbe{}, /*journal=*/false));
    const std::vector<std::byte> undisturbed = stripe.content();
    for (std::uint64_t block = 0; block < kBlocks; ++block) {
      for (const PassMoment moment : {PassMoment::undo_copied, PassMoment::progress_published,
                                      PassMoment::half_of_block_computed, PassMoment::block_done}) {
        stripe.fill();
        ASSERT_FALSE(stripe.update(9, StopAt{moment, block}));
        const bool all_computed = moment == PassMoment::block_done && block + 1 == kBlocks;
        ASSERT_EQ(stripe.content() == undisturbed, all_computed);
        std::thread{[&] { ASSERT_TRUE(stripe.update(9, NoProbe{})); }}.join();
        ASSERT_TRUE(stripe.content() == undisturbed) << "block " << block << " moment " << static_cast<int>(moment);
      }
    }
  }
}

TEST_P(UpdatePass, IsFinishedAfterItStoppedAgainAndAgain) {
  Stripe stripe{GetParam(), kCount, 2};
  ASSERT_TRUE(stripe.update(1, NoProbe{}, /*journal=*/false));
  const std::vector<std::byte> undisturbed = stripe.content();
  stripe.fill();
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    for (const PassMoment moment :
         {PassMoment::undo_copied, PassMoment::half_of_block_computed, PassMoment::half_of_block_computed,
          PassMoment::progress_published, PassMoment::block_done}) {
      stripe.update(1, StopAt{moment, block});
    }
  }
  ASSERT_TRUE(stripe.update(1, NoProbe{}));
  EXPECT_TRUE(stripe.content() == undisturbed);
}

TEST_P(UpdatePass, DoesNothingOnceItIsComplete) {
  Stripe stripe{GetParam(), kCount, 2};
  ASSERT_TRUE(stripe.update(3, NoProbe{}));
  const std::vector<std::byte> once = stripe.content();
  ASSERT_TRUE(stripe.update(3, NoProbe{}));
  EXPECT_TRUE(stripe.content() == once);
}

TEST_P(UpdatePass, TakesTheProgressOfAnOlderUpdateForNotStarted) {
  Stripe journaled{GetParam(), kCount, 2}, plain{GetParam(), kCount, 2};
  for (std::uint64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(journaled.update(number, NoProbe{}));
    ASSERT_TRUE(plain.update(number, NoProbe{}, /*journal=*/false));
  }
  EXPECT_TRUE(journaled.content() == plain.content());
}

TEST(UpdateJournal, WithALaterUpdateOrWithBlocksThatDoNotExistIsRefused) {
  Stripe stripe{RuleKind::adam, kCount, 2};
  ASSERT_TRUE(stripe.update(5, NoProbe{}));
  EXPECT_THROW(stripe.update(4, NoProbe{}), Error);
  EXPECT_THROW(stripe.update(std::uint64_t{1} << 40, NoProbe{}), Error);
  EXPECT_THROW(Stripe(RuleKind::adam, kCount, 2).update(0, NoProbe{}), Error);
}

/// Starts a process that does update after update, kills it when `moment` has passed, and completes what it left.
void kill_and_finish(Stripe& stripe, std::chrono::nanoseconds moment, std::uint64_t& number) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::uint64_t next = number;; ++next) stripe.update(next, NoProbe{});
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (stripe.progress() >> 24 < number && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  const auto end = std::chrono::steady_clock::now() + moment;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  kill(child, SIGKILL);
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
  number = stripe.progress() >> 24;
  ASSERT_TRUE(stripe.update(number, NoProbe{}));
}

TEST(UpdatePassKilled, AtRandomMomentsIsFinishedByAnotherProcessWithTheSameBits) {
  constexpr std::uint64_t kElements = 40 * UpdateJournal::kBlockElements + 100;
  Stripe killed{RuleKind::adam, kElements, 2}, undisturbed{RuleKind::adam, kElements, 2};
  std::uint64_t done = 0;
  for (std::uint64_t round = 0; round < 100; ++round) {
    std::uint64_t number = done + 1;
    kill_and_finish(killed, std::chrono::nanoseconds{random_below(11, round, 300'000)}, number);
    if (HasFatalFailure()) return;
    while (done < number) ASSERT_TRUE(undisturbed.update(++done, NoProbe{}));
    ASSERT_TRUE(killed.content() == undisturbed.content()) << "round " << round << ", update " << number;
  }
}

}  // namespace
}  // namespace troupe::cpu
