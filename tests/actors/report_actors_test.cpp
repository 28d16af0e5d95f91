#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "actors/evaluator_actor.hpp"
#include "actors/reporter_actor.hpp"
#include "tests/support/actor_world.hpp"

namespace troupe {
namespace {

StepSums sums(double loss, std::uint64_t correct, std::uint64_t samples) {
  return {.loss = loss, .correct = correct, .samples = samples};
}

struct ReporterWorld {
  explicit ReporterWorld(Schedule schedule, std::uint32_t value_ranks = 0, bool texts = false) {
    auto told_to = actors.listener<ReportedReceiver, Reported>([this](const Reported&) { ++told; });
    ReportTargets targets;
    targets.line = [this](const EpochReport& line) { lines.push_back(line); };
    targets.steps = [this](const StepsReport& part) { parts.push_back(part); };
    targets.steps_every = 2;
    targets.total = [this](const RunTotal& t) { total = t; };
    targets.rate = [](Step step) { return 0.5 / static_cast<double>(step.value + 1); };
    targets.skipped = [](const StepSums& of_all) { return of_all.bad_gradient != 0; };
    targets.value_ranks = value_ranks;
    targets.texts = texts;
    reporter = spawn_reporter(actors.system(), schedule, targets, told_to);
    send(Begin{{1}});
  }
  ~ReporterWorld() {
    caf::anon_send_exit(reporter, caf::exit_reason::kill);
    actors.run();
  }
  template <class Message>
  void send(Message message) {
    actors.send(reporter, std::move(message));
    actors.run();
  }

  test::ActorWorld actors;
  ReporterActor reporter;
  std::vector<EpochReport> lines;
  std::vector<StepsReport> parts;
  RunTotal total;
  int told = 0;
};

TEST(ReporterActor, AveragesALineOverItsSamples) {
  ReporterWorld w{{.train_samples = 20, .test_samples = 0, .rows = 10, .ranks = 1, .steps = 4}};
  w.send(Committed{{1}, {0}, sums(30, 5, 10)});
  EXPECT_TRUE(w.lines.empty());
  w.send(Committed{{1}, {1}, sums(10, 9, 10)});
  ASSERT_EQ(w.lines.size(), 1u);
  EXPECT_DOUBLE_EQ(w.lines[0].loss, 2.0);
  EXPECT_DOUBLE_EQ(w.lines[0].accuracy, 0.7);
  EXPECT_FALSE(w.lines[0].test_loss.has_value());
}

TEST(ReporterActor, KnowsNoLossOfALineInWhichNoRoundHasEnded) {
  ReporterWorld w{{.train_samples = 10, .test_samples = 0, .rows = 10, .ranks = 1, .steps = 3}};
  w.send(Committed{{1}, {0}, sums(0, 0, 0)});
  w.send(Committed{{1}, {1}, sums(30, 5, 20)});
  StepSums bad = sums(std::numeric_limits<double>::quiet_NaN(), 0, 10);
  bad.bad_gradient = bad_at(3, 0);
  w.send(Committed{{1}, {2}, bad});
  ASSERT_EQ(w.lines.size(), 3u);
  EXPECT_FALSE(w.lines[0].known_loss() || w.lines[0].known_accuracy());
  EXPECT_EQ(w.lines[1].known_loss(), 1.5);
  EXPECT_EQ(w.lines[1].known_accuracy(), 0.25);
  EXPECT_TRUE(w.lines[2].known_loss()) << "which is no number: its gradients were not finite";
}

TEST(ReporterActor, TellsOfEveryFewStepsAndBeginsAnewWithEachLine) {
  ReporterWorld w{{.train_samples = 30, .test_samples = 0, .rows = 10, .ranks = 1, .steps = 6}};
  for (std::uint64_t step = 0; step < 5; ++step)
    w.send(Committed{{1}, {step}, sums(10.0 * static_cast<double>(step), step, 10)});
  ASSERT_EQ(w.parts.size(), 2u) << "three steps are a line, so the third belongs to no part";
  EXPECT_EQ(w.parts[0].epoch, 1u);
  EXPECT_EQ(w.parts[0].last, 2u);
  EXPECT_DOUBLE_EQ(w.parts[0].loss, 0.5);
  EXPECT_EQ(w.parts[1].epoch, 2u);
  EXPECT_EQ(w.parts[1].first, 1u);
  EXPECT_EQ(w.parts[1].last, 2u);
  EXPECT_EQ(w.parts[1].samples, 20u);
  EXPECT_DOUBLE_EQ(w.parts[1].loss, 3.5);
  EXPECT_DOUBLE_EQ(w.parts[1].accuracy, 0.35);
}

TEST(ReporterActor, TellsTheRateOfALinesLastStepAndLeavesStepsThatChangedNothingOutOfItsLoss) {
  ReporterWorld w{{.train_samples = 30, .test_samples = 0, .rows = 10, .ranks = 1, .steps = 6}};
  w.send(Committed{{1}, {0}, sums(30, 5, 10)});
  StepSums bad = sums(std::numeric_limits<double>::quiet_NaN(), 0, 10);
  bad.bad_gradient = bad_at(3, 0);
  w.send(Committed{{1}, {1}, bad});
  w.send(Committed{{1}, {2}, sums(10, 9, 10)});
  for (std::uint64_t step = 3; step < 6; ++step) w.send(Committed{{1}, {step}, sums(10, 9, 10)});
  ASSERT_EQ(w.lines.size(), 2u);
  EXPECT_DOUBLE_EQ(w.lines[0].loss, 2.0);
  EXPECT_EQ(w.lines[0].skipped, 1u);
  EXPECT_DOUBLE_EQ(w.lines[0].rate.value_or(-1), 0.5 / 3);
  EXPECT_EQ(w.lines[1].skipped, 0u);
  EXPECT_DOUBLE_EQ(w.lines[1].rate.value_or(-1), 0.5 / 6);
}

TEST(ReporterActor, HoldsALineBackUntilItsTestResultIsThere) {
  ReporterWorld w{{.train_samples = 10, .test_samples = 4, .rows = 10, .ranks = 1, .steps = 2}};
  w.send(Committed{{1}, {0}, sums(1, 5, 10)});
  w.send(Committed{{1}, {1}, sums(3, 5, 10)});
  EXPECT_TRUE(w.lines.empty());
  w.send(TestResult{{0}, sums(8, 3, 4)});
  ASSERT_EQ(w.lines.size(), 1u);
  EXPECT_EQ(w.lines[0].epoch, 1u);
  EXPECT_DOUBLE_EQ(*w.lines[0].test_loss, 2.0);
  EXPECT_DOUBLE_EQ(*w.lines[0].test_accuracy, 0.75);
}

TEST(ReporterActor, HoldsALineBackUntilItsTextIsThere) {
  ReporterWorld w{{.train_samples = 10, .test_samples = 4, .rows = 10, .ranks = 1, .steps = 3}, 0, /*texts=*/true};
  w.send(Committed{{1}, {0}, sums(1, 5, 10)});
  w.send(TestResult{{0}, sums(8, 3, 4)});
  EXPECT_TRUE(w.lines.empty());
  w.send(TextGenerated{{0}, "first", {}});
  ASSERT_EQ(w.lines.size(), 1U);
  EXPECT_EQ(w.lines[0].generated_text, "first");
  w.send(TextGenerated{{1}, "before its step is gathered", {}});
  w.send(Committed{{1}, {1}, sums(1, 5, 10)});
  w.send(TestResult{{1}, sums(8, 3, 4)});
  ASSERT_EQ(w.lines.size(), 2U);
  EXPECT_EQ(w.lines[1].generated_text, "before its step is gathered");
  w.send(Committed{{1}, {2}, sums(1, 5, 10)});
  w.send(TestResult{{2}, sums(8, 3, 4)});
  w.send(DeviceFinished{.stopped = true});
  EXPECT_EQ(w.told, 0) << "the last evaluation was made, so its text comes, however the run ends";
  w.send(TextGenerated{{2}, "last", {}});
  EXPECT_EQ(w.lines.size(), 3U);
  EXPECT_EQ(w.told, 1);
}

TEST(ReporterActor, TellsWhatTheStreamHasSpentSinceTheRunBegan) {
  using std::chrono::milliseconds;
  test::ActorWorld actors;
  StreamTimes times{.idle = milliseconds{100}};
  std::vector<EpochReport> lines;
  auto told = actors.listener<ReportedReceiver, Reported>([](const Reported&) {});
  const ReportTargets targets{.line = [&](const EpochReport& line) { lines.push_back(line); },
                              .times = [&] { return times; }};
  const Schedule schedule{.train_samples = 10, .rows = 10, .ranks = 1, .steps = 1};
  const ReporterActor reporter = spawn_reporter(actors.system(), schedule, targets, told);
  actors.send(reporter, Begin{{1}});
  actors.run();
  times.compute = milliseconds{7};
  actors.send(reporter, Committed{{1}, {0}, sums(1, 5, 10)});
  actors.run();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].times, StreamTimes{.compute = milliseconds{7}});
  EXPECT_EQ(lines[0].samples, 10u);
  caf::anon_send_exit(reporter, caf::exit_reason::kill);
  actors.run();
}

TEST(ReporterActor, GoesOnWithALineThatAViewBeforeItHasBegun) {
  const Schedule schedule{.train_samples = 40, .test_samples = 0, .rows = 10, .ranks = 1, .steps = 8};
  ReportSoFar left;
  RunTotal before;
  {
    test::ActorWorld actors;
    int told = 0;
    auto told_to = actors.listener<ReportedReceiver, Reported>([&](const Reported&) { ++told; });
    ReportTargets targets;
    targets.line = [](const EpochReport&) { ADD_FAILURE() << "no epoch has ended"; };
    targets.total = [&](const RunTotal& total) { before = total; };
    targets.retired = [&](const ReportSoFar& so_far) { left = so_far; };
    const ReporterActor reporter = spawn_reporter(actors.system(), schedule, targets, told_to);
    actors.send(reporter, Begin{{1}});
    actors.send(reporter, Committed{{1}, {0}, sums(30, 5, 10)});
    actors.send(reporter, DeviceFinished{.retired = true});
    actors.run();
    EXPECT_EQ(told, 1);
    caf::anon_send_exit(reporter, caf::exit_reason::kill);
    actors.run();
  }
  EXPECT_EQ(before.samples, 10u);
  test::ActorWorld actors;
  std::vector<EpochReport> lines;
  auto told_to = actors.listener<ReportedReceiver, Reported>([](const Reported&) {});
  ReportTargets targets;
  targets.line = [&](const EpochReport& line) { lines.push_back(line); };
  Schedule rest = schedule;
  rest.first_step = 1;
  rest.first_sample = 10;
  const ReporterActor reporter = spawn_reporter(actors.system(), rest, targets, told_to, left);
  actors.send(reporter, Begin{{2}});
  for (std::uint64_t step = 1; step < 4; ++step) actors.send(reporter, Committed{{2}, {step}, sums(10, 5, 10)});
  actors.run();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_DOUBLE_EQ(lines[0].loss, 1.5);
  EXPECT_EQ(lines[0].samples, 40u);
  EXPECT_EQ(lines[0].steps, 4u);
  caf::anon_send_exit(reporter, caf::exit_reason::kill);
  actors.run();
}

TEST(ReporterActor, TellsProgressHoweverShortEpochsAre) {
  test::ActorWorld actors;
  int told_progress = 0;
  auto told = actors.listener<ReportedReceiver, Reported>([](const Reported&) {});
  const ReportTargets targets{.progress = [&](const RunProgress& progress) {
    ++told_progress;
    EXPECT_GT(progress.samples_per_s, 0);
  }};
  const Schedule schedule{.train_samples = 10, .rows = 10, .ranks = 1, .steps = 1'000'000'000, .evaluate_every = 0};
  const ReporterActor reporter = spawn_reporter(actors.system(), schedule, targets, told);
  actors.send(reporter, Begin{{1}});
  const Deadline deadline = Deadline::after(std::chrono::seconds{10});
  for (std::uint64_t step = 0; told_progress < 2 && !deadline.passed(); ++step) {
    actors.send(reporter, Committed{{1}, {step}, sums(1, 5, 10)});  // each ends an epoch
    actors.run();
  }
  EXPECT_EQ(told_progress, 2);
  caf::anon_send_exit(reporter, caf::exit_reason::kill);
  actors.run();
}

TEST(ReporterActor, SaysThatAllIsToldOnceAfterTheLastLine) {
  ReporterWorld w{{.train_samples = 10, .test_samples = 4, .rows = 10, .ranks = 1, .steps = 1}};
  w.send(Committed{{1}, {0}, sums(1, 5, 10)});
  w.send(DeviceFinished{false});
  EXPECT_EQ(w.told, 0);
  w.send(TestResult{{0}, sums(8, 3, 4)});
  EXPECT_EQ(w.told, 1);
  EXPECT_EQ(w.total.samples, 10u);
  EXPECT_EQ(w.total.steps, 1u);
}

TEST(ReporterActor, WaitsForNoTestResultAfterAStop) {
  ReporterWorld w{{.train_samples = 10, .test_samples = 4, .rows = 10, .ranks = 1, .steps = 9}};
  w.send(Committed{{1}, {0}, sums(1, 5, 10)});
  w.send(DeviceFinished{true});
  EXPECT_EQ(w.told, 1);
}

TEST(ReporterActor, HasALineForThePartOfAnEpochInWhichTheRunWasStopped) {
  ReporterWorld w{{.train_samples = 30, .test_samples = 4, .rows = 10, .ranks = 1, .steps = 9}};
  for (std::uint64_t step = 0; step < 4; ++step) w.send(Committed{{1}, {step}, sums(10, 5, 10)});
  w.send(TestResult{{2}, sums(8, 3, 4)});
  w.send(DeviceFinished{true});
  ASSERT_EQ(w.lines.size(), 2u);
  EXPECT_EQ(w.lines[1].steps, 4u);
  EXPECT_NEAR(w.lines[1].epochs(), 1 + 1.0 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(w.lines[1].loss, 1);
  EXPECT_FALSE(w.lines[1].test_loss.has_value());
  EXPECT_EQ(w.told, 1);
}

TEST(ReporterActor, HasNoLineForStepsThatAVerdictEnds) {
  ReporterWorld w{{.train_samples = 30, .test_samples = 4, .rows = 10, .ranks = 1, .steps = 9}};
  w.send(Committed{{1}, {0}, sums(10, 5, 10)});
  w.send(DeviceFinished{true, {Code::invalid, "not finite"}});
  EXPECT_TRUE(w.lines.empty());
  EXPECT_EQ(w.told, 1);
}

RankValues values(std::uint32_t rank, std::uint64_t step, bool last, std::vector<ValueSum> sums) {
  return {.rank = rank, .step = step, .last = last, .values = std::move(sums)};
}

TEST(ReporterActor, HoldsALineBackUntilEveryAppHasReportedWhatBelongsToIt) {
  ReporterWorld w{{.train_samples = 20, .test_samples = 0, .rows = 5, .ranks = 2, .steps = 4}, 2};
  for (std::uint64_t step = 0; step < 2; ++step) w.send(Committed{{1}, {step}, sums(10, 5, 10)});
  w.send(values(1, 1, false, {{"a", 6, 2}}));
  EXPECT_TRUE(w.lines.empty());
  w.send(values(0, 1, false, {{"a", 3, 1}, {"b", 1, 1}}));
  ASSERT_EQ(w.lines.size(), 1u);
  EXPECT_EQ(w.lines[0].values, (std::vector<ReportedValue>{{"a", 3}, {"b", 1}}));
}

TEST(ReporterActor, HoldsTheLastLineBackUntilEveryAppHasEndedItsLoop) {
  ReporterWorld w{{.train_samples = 20, .test_samples = 0, .rows = 5, .ranks = 2, .steps = 2}, 2};
  for (std::uint64_t step = 0; step < 2; ++step) w.send(Committed{{1}, {step}, sums(10, 5, 10)});
  w.send(values(0, 1, true, {{"a", 3, 1}}));
  w.send(values(1, 1, false, {{"a", 5, 1}}));
  w.send(DeviceFinished{false});
  EXPECT_EQ(w.told, 0);
  w.send(values(1, 1, true, {{"a", 7, 1}}));
  ASSERT_EQ(w.lines.size(), 1u);
  EXPECT_EQ(w.lines[0].values, (std::vector<ReportedValue>{{"a", 5}}));
  EXPECT_EQ(w.told, 1);
}

TEST(ReporterActor, WaitsForNoValuesForEver) {
  ReporterWorld w{{.train_samples = 20, .test_samples = 0, .rows = 5, .ranks = 2, .steps = 2}, 2};
  for (std::uint64_t step = 0; step < 2; ++step) w.send(Committed{{1}, {step}, sums(10, 5, 10)});
  w.send(values(0, 1, true, {{"a", 3, 1}}));
  w.send(DeviceFinished{false});
  w.send(ValuesOverdue{});
  ASSERT_EQ(w.lines.size(), 1u);
  EXPECT_EQ(w.lines[0].values, (std::vector<ReportedValue>{{"a", 3}}));
  EXPECT_EQ(w.told, 1);
}

TEST(EvaluatorActor, AddsThePartsOfAllRanksAndTellsOnce) {
  test::ActorWorld world;
  std::vector<TestResult> results;
  auto reporter = world.listener<TestReceiver, TestResult>([&results](const TestResult& r) { results.push_back(r); });
  auto coordinator = spawn_evaluator(world.system(), 3, {reporter});
  auto other = spawn_remote_evaluator(world.system(), {2}, coordinator);
  world.send(other, Evaluated{{5}, sums(1, 1, 2)});
  world.send(coordinator, TestPart{1, 5, 2.0, 3, 4});
  world.run();
  EXPECT_TRUE(results.empty());
  world.send(coordinator, Evaluated{{5}, sums(4, 5, 6)});
  world.run();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_DOUBLE_EQ(results[0].sums.loss, 7.0);
  EXPECT_EQ(results[0].sums.correct, 9u);
  EXPECT_EQ(results[0].sums.samples, 12u);
  for (const auto& a : {coordinator, other}) caf::anon_send_exit(a, caf::exit_reason::kill);
  caf::anon_send_exit(reporter, caf::exit_reason::kill);
  world.run();
}

TEST(EvaluatorActor, KeepsTwoEvaluationsApart) {
  test::ActorWorld world;
  std::vector<TestResult> results;
  auto reporter = world.listener<TestReceiver, TestResult>([&results](const TestResult& r) { results.push_back(r); });
  auto coordinator = spawn_evaluator(world.system(), 2, {reporter});
  world.send(coordinator, Evaluated{{1}, sums(1, 0, 1)});
  world.send(coordinator, Evaluated{{2}, sums(2, 0, 1)});
  world.send(coordinator, TestPart{1, 1, 10, 0, 1});
  world.send(coordinator, TestPart{1, 2, 20, 0, 1});
  world.run();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_DOUBLE_EQ(results[0].sums.loss, 11.0);
  EXPECT_DOUBLE_EQ(results[1].sums.loss, 22.0);
  caf::anon_send_exit(coordinator, caf::exit_reason::kill);
  caf::anon_send_exit(reporter, caf::exit_reason::kill);
  world.run();
}

}  // namespace
}  // namespace troupe
