// What the modes of data.scatter promise, over random sizes, worlds, shares and resumes.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/batch_cursor.hpp"
#include "runtime/data/sample_ledger.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kEpochs = 5;
constexpr SplitRange kAnything{0, 9};

/// Numbers of one round of a property test.
struct Draw {
  std::uint64_t key = 0;
  std::uint64_t next = 0;
  std::uint64_t operator()(std::uint64_t low, std::uint64_t high) {
    return low + random_below(key, next++, high - low + 1);
  }
};

/// A job of kEpochs epochs that is cut into runs, each on another world with other batches, and, if `unequal`, with
/// shares that change within a run. The samples of each step, by rank.
struct Job {
  Schedule schedule;  // of the run that the step belongs to
  Step step;
  std::vector<std::vector<std::uint64_t>> by_rank;
};

Schedule draw_run(Draw& draw, Scatter scatter, std::uint64_t samples, std::uint64_t first_step,
                  std::uint64_t first_sample) {
  Schedule s{.train_samples = samples,
             .ranks = static_cast<std::uint32_t>(draw(1, 6)),
             .evaluate_every = 0,
             .first_step = first_step,
             .first_sample = first_sample,
             .later = {},
             .scatter = scatter};
  std::vector<BatchChange> changes;
  for (std::uint64_t at = 0; at < kEpochs * samples; at += draw(samples / 2 + 1, 2 * samples))
    changes.push_back({at, static_cast<std::uint32_t>(draw(1, 12))});
  s = with_batches(s, changes);
  s.steps = s.steps_until(kEpochs * samples);
  return s;
}

SampleLedger draw_ledger(Draw& draw, const Schedule& s, bool unequal) {
  if (!unequal) return SampleLedger{s};
  SampleLedger ledger{s, kAnything, {s.first_step + draw(0, 3)}};
  while (ledger.horizon().value < s.steps) {
    const Step from = ledger.horizon();
    std::vector<std::uint64_t> weights;
    for (std::uint32_t rank = 0; rank < s.ranks; ++rank) weights.push_back(draw(0, 5));
    ledger.append({from, share_out(s.run_at(from).rows, weights, kAnything)}, {from.value + draw(1, 9)});
  }
  return ledger;
}

std::vector<Job> draw_job(Draw& draw, Scatter scatter, std::uint64_t samples, bool unequal) {
  std::vector<Job> all;
  std::uint64_t step = 0;
  std::uint64_t sample = 0;
  while (sample < kEpochs * samples) {
    const Schedule s = draw_run(draw, scatter, samples, step, sample);
    const SampleLedger ledger = draw_ledger(draw, s, unequal);
    const std::uint64_t end = std::min(s.steps, step + draw(1, 2 * (s.steps - step)));  // the run ends here
    const std::size_t before = all.size();
    for (; step < end; ++step) all.push_back({s, {step}, std::vector<std::vector<std::uint64_t>>(s.ranks)});
    for (std::uint32_t rank = 0; rank < s.ranks; ++rank) {
      BatchCursor cursor{s, {rank}, 200};
      SampleOrder order{samples, 7};
      for (std::size_t at = before; at < all.size(); ++at) {
        std::vector<Sample> taken;
        const BatchHead head = cursor.next(ledger, order, taken);
        for (const Sample& one : taken) all[at].by_rank[rank].push_back(one.index);
        EXPECT_EQ(head.step, all[at].step);
        EXPECT_EQ(head.rows, all[at].by_rank[rank].size());
      }
    }
    sample = s.samples_before({end});
  }
  return all;
}

std::vector<std::uint64_t> together(const Job& job) {
  std::vector<std::uint64_t> all;
  for (const auto& mine : job.by_rank) all.insert(all.end(), mine.begin(), mine.end());
  return all;
}

std::vector<std::uint64_t> sorted(std::vector<std::uint64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<std::uint64_t> all_of(std::uint64_t samples) {
  std::vector<std::uint64_t> numbers(samples);
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  return numbers;
}

TEST(Scatter, ExactTakesEverySampleOnceAnEpochAndEndsEpochsWithSteps) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    Draw draw{sub_key(11, round)};
    const std::uint64_t samples = draw(1, 90);
    std::vector<std::uint64_t> epoch;
    std::uint64_t epochs = 0;
    for (const Job& job : draw_job(draw, Scatter::exact, samples, /*unequal=*/round % 2 == 1)) {
      const auto step = together(job);
      ASSERT_EQ(step.size(), job.schedule.global_rows(job.step));
      ASSERT_GT(step.size(), 0u);
      epoch.insert(epoch.end(), step.begin(), step.end());
      ASSERT_EQ(job.schedule.ends_epoch(job.step), epoch.size() == samples);
      if (epoch.size() < samples) continue;
      ASSERT_EQ(sorted(epoch), all_of(samples));
      ASSERT_EQ(job.schedule.epoch_number(job.step), ++epochs);
      epoch.clear();
    }
    ASSERT_EQ(epochs, kEpochs);
  }
}

TEST(Scatter, ExactGivesNobodyMoreThanInAFullStep) {
  for (std::uint64_t round = 0; round < 100; ++round) {
    Draw draw{sub_key(12, round)};
    const Schedule s = draw_run(draw, Scatter::exact, draw(1, 90), 0, 0);
    const SampleLedger ledger = draw_ledger(draw, s, true);
    for (std::uint64_t step = 0; step < s.steps; ++step) {
      for (const std::uint32_t rows : ledger.rows({step}))
        ASSERT_LE(rows, max_rows_of(s.run_at({step}).rows, kAnything)) << round;
    }
  }
}

TEST(Scatter, EqualGivesAllRanksAsManyAndRepeatsFewerSamplesThanThereAreRanks) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    Draw draw{sub_key(13, round)};
    const std::uint64_t samples = draw(1, 90);
    std::vector<std::uint64_t> epoch;  // without what is taken again
    std::uint64_t epochs = 0;
    for (const Job& job : draw_job(draw, Scatter::equal, samples, false)) {
      for (const auto& mine : job.by_rank) ASSERT_EQ(mine.size(), job.by_rank.front().size());
      auto step = together(job);
      const std::uint64_t taken = job.schedule.global_rows(job.step);
      ASSERT_LT(step.size() - taken, job.schedule.ranks);
      epoch.insert(epoch.end(), step.begin(), step.begin() + static_cast<std::ptrdiff_t>(taken));
      for (std::size_t again = 0; again < step.size() - taken; ++again)
        ASSERT_EQ(step[taken + again], epoch[again % samples]) << "its own beginning";
      if (epoch.size() < samples) continue;
      ASSERT_EQ(sorted(epoch), all_of(samples));
      epoch.clear();
      ++epochs;
    }
    ASSERT_EQ(epochs, kEpochs);
  }
}

TEST(Scatter, EndlessTakesEverySampleOnceAnEpochInStepsOfOneSize) {
  for (std::uint64_t round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    Draw draw{sub_key(14, round)};
    const std::uint64_t samples = draw(1, 90);
    std::vector<std::uint64_t> all;
    for (const Job& job : draw_job(draw, Scatter::endless, samples, round % 2 == 1)) {
      const auto step = together(job);
      ASSERT_EQ(step.size(), std::uint64_t{job.schedule.run_at(job.step).rows} * job.schedule.ranks);
      all.insert(all.end(), step.begin(), step.end());
    }
    ASSERT_GE(all.size(), kEpochs * samples);
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(epoch * samples);
      ASSERT_EQ(sorted({first, first + static_cast<std::ptrdiff_t>(samples)}), all_of(samples));
    }
  }
}

TEST(Scatter, CountsStepsAsItWalksThem) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    Draw draw{sub_key(15, round)};
    const auto scatter = static_cast<Scatter>(draw(0, 2));
    const std::uint64_t samples = draw(1, 90);
    const Schedule s = draw_run(draw, scatter, samples, draw(0, 9), draw(0, 3 * samples));
    std::uint64_t position = s.first_sample;
    for (std::uint64_t step = s.first_step; step < s.steps; ++step) {
      ASSERT_EQ(s.samples_before({step}), position);
      ASSERT_EQ(s.steps_until(position), step);
      ASSERT_EQ(s.steps_until(position + 1), step + 1);
      position += s.global_rows({step});
    }
  }
}

TEST(Scatter, SharesTheTestSetOutAsInFullStepsWhenAnEpochsLastOneIsShort) {
  const Schedule s{.train_samples = 21,
                   .test_samples = 100,
                   .rows = 5,
                   .ranks = 4,
                   .steps = 2,
                   .later = {},
                   .scatter = Scatter::exact};
  const SampleLedger ledger{s};
  EXPECT_EQ(ledger.rows({1}), (std::vector<std::uint32_t>{0, 0, 0, 1}));
  EXPECT_EQ(ledger.test_part({1}, {0}), (SamplePart{0, 25}));
}

}  // namespace
}  // namespace troupe
