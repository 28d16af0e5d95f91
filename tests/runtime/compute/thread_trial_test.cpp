#include "runtime/compute/thread_trial.hpp"

#include <gmock/gmock.h>

#include <map>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;

/// Steps that take what `seconds` says of their number of threads, and how many were taken.
class MadeUpSteps {
 public:
  explicit MadeUpSteps(std::map<std::uint32_t, double> seconds) : seconds_(std::move(seconds)) {}

  TimedStep timed() {
    return [this](std::uint32_t threads, double limit_s) -> std::optional<double> {
      ++taken[threads];
      const double seconds = seconds_.at(threads);
      all_s += std::min(seconds, limit_s);
      return seconds > limit_s ? std::nullopt : std::optional{seconds};
    };
  }

  std::map<std::uint32_t, int> taken;
  double all_s = 0;

 private:
  std::map<std::uint32_t, double> seconds_;
};

TEST(ThreadTrial, TriesAllCoresSomeOfThemAndOne) {
  EXPECT_THAT(thread_candidates(1), ElementsAre(1));
  EXPECT_THAT(thread_candidates(2), ElementsAre(2, 1));
  EXPECT_THAT(thread_candidates(6), ElementsAre(6, 3, 1));
  EXPECT_THAT(thread_candidates(64), ElementsAre(64, 32, 16, 1));
}

TEST(ThreadTrial, ChoosesTheFastest) {
  EXPECT_EQ(run_thread_trial({4, 2, 1}, MadeUpSteps{{{4, 0.003}, {2, 0.004}, {1, 0.007}}}.timed()).chosen, 4u);
  EXPECT_EQ(run_thread_trial({4, 2, 1}, MadeUpSteps{{{4, 0.009}, {2, 0.004}, {1, 0.007}}}.timed()).chosen, 2u);
}

TEST(ThreadTrial, ChoosesFewerThreadsWhereMoreHardlyGain) {
  EXPECT_EQ(run_thread_trial({4, 2, 1}, MadeUpSteps{{{4, 0.00400}, {2, 0.00415}, {1, 0.007}}}.timed()).chosen, 2u);
}

TEST(ThreadTrial, GivesUpWhatIsMuchSlowerAtItsFirstStep) {
  MadeUpSteps steps{{{2, 2.0}, {1, 0.1}}};
  const ThreadTrial trial = run_thread_trial({1, 2}, steps.timed());
  EXPECT_EQ(trial.chosen, 1u);
  EXPECT_TRUE(trial.tried[1].abandoned);
  EXPECT_EQ(steps.taken[2], 1);
  EXPECT_DOUBLE_EQ(trial.tried[1].step_s, 0.2);
}

TEST(ThreadTrial, ACandidateThatWasTriedFirstAndIsTwentyTimesSlowerTakesThreeSteps) {
  MadeUpSteps steps{{{2, 0.4}, {1, 0.02}}};
  EXPECT_EQ(run_thread_trial({2, 1}, steps.timed()).chosen, 1u);
  EXPECT_LE(steps.taken[2], 3);
}

TEST(ThreadTrial, TakesAboutHalfASecondOfShortStepsAndOneTurnOfLongOnes) {
  MadeUpSteps brief{{{2, 0.0005}, {1, 0.001}}};
  run_thread_trial({2, 1}, brief.timed());
  EXPECT_LT(brief.all_s, 0.7);
  MadeUpSteps lengthy{{{2, 0.6}, {1, 0.9}}};
  run_thread_trial({2, 1}, lengthy.timed());
  EXPECT_EQ(lengthy.taken[2], 2);
  EXPECT_EQ(lengthy.taken[1], 2);
}

TEST(ThreadTrial, OneLongWaitForACoreDoesNotDecide) {
  int calls = 0;
  const TimedStep step = [&](std::uint32_t threads, double) -> std::optional<double> {
    const bool waits = threads == 2 && ++calls == 8;
    return waits ? 0.045 : threads == 2 ? 0.004 : 0.007;
  };
  EXPECT_EQ(run_thread_trial({2, 1}, step).chosen, 2u);
}

TEST(ThreadTrial, SaysWhatWasTriedAndChosen) {
  const ThreadTrial trial{{{2, 0.1, true}, {1, 0.05, false}}, 1, 64, 0.25};
  EXPECT_EQ(text_of(trial),
            "steps of 64 samples took on 2 threads over 100 ms, 1 thread 50 ms; 1 thread chosen in 250 ms");
}

TEST(ThreadTrial, NeedsACandidate) { EXPECT_THROW(run_thread_trial({}, nullptr), Error); }

}  // namespace
}  // namespace troupe
