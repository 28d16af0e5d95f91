#include "actors/device_actor.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <semaphore>
#include <span>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "devices/fake/fake_device.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/memory/lease.hpp"
#include "tests/support/actor_world.hpp"
#include "tests/support/batches.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::uint64_t kElements = 16;

/// Accepts buckets and only records them.
class NotingExchange final : public Exchange {
 public:
  void begin(Stream&, const StepFacts& told, Memory its_sums, Memory its_total) override {
    facts.push_back(told);
    sums = its_sums;
    total = its_total;
  }
  bool has_round() const noexcept override { return true; }
  bool totals_are_common() const noexcept override { return common; }
  void contribute(Stream& stream, const Bucket&) override {
    if (refuses) fail(Code::aborted, "the exchange was retired");
    steps.push_back(facts.back().step);
    stream.sum_up(total, {&sums, 1});
  }
  void commit(Stream&) override {}
  std::span<const Point> pending() const noexcept override { return {&late, 1}; }
  bool is_consistent() const noexcept override { return consistent_every == 1 || steps.size() % consistent_every == 0; }
  void show_common(Stream& stream) override { show(stream, true); }
  void show_own(Stream& stream) override { show(stream, false); }
  const PolicySettings& policy() const noexcept override { return in_force; }
  std::string refusal(const PolicySettings& given) const override {
    return given.kind == PolicyKind::diloco ? "no room for an outer momentum" : "";
  }
  void switch_at(Step step, const PolicySettings& given) override {
    in_force = given;
    switched_at.push_back(step.value);
  }
  std::uint64_t updates() const noexcept override { return 0; }
  std::vector<StripeMemory> retire(const Status&) noexcept override { return {}; }

  PolicySettings in_force;
  std::vector<std::uint64_t> switched_at;
  std::vector<StepFacts> facts;
  std::vector<Step> steps;
  std::vector<bool> shown;  // common, own
  std::function<void(Stream&, bool)> shows;
  std::size_t consistent_every = 1;  // steps
  bool refuses = false;
  bool common = true;  // its totals
  Point late;          // of what is contributed; value 0: nothing is late

 private:
  void show(Stream& stream, bool common_ones) {
    shown.push_back(common_ones);
    if (shows) shows(stream, common_ones);
  }

  Memory sums, total;
};

/// The messages that a device sends to the step coordinator.
struct NotedCoordinator {
  static StepCoordinatorPeer::behavior_type listen(StepCoordinatorPeer::pointer, NotedCoordinator* to) {
    return {[to](const JoinSteps&) { ++to->joined; }, [to](const StepsHeld& held) { to->held.push_back(held); },
            [to](const EndRequest&) { ++to->end_requests; }};
  }
  StepCoordinatorPeer handle(test::ActorWorld& actors) { return actors.system().spawn(&listen, this); }

  int joined = 0;
  std::vector<StepsHeld> held;
  int end_requests = 0;
};

/// A device actor on a fake device, with all receivers of its messages.
struct World {
  explicit World(Schedule given, std::optional<SavePlan> saves = {}, bool sums_are_common = true,
                 std::uint64_t digest_steps = 0, bool awaits_verdicts = false, bool generates = false)
      : schedule(given) {
    space.map(arena);
    const Graph graph{"tiny", Shape{{4}}, DType::f32, {{"l1", Dense{2}}, {"loss", SoftmaxCrossEntropy{}}}};
    const Layout layout{graph};
    const std::uint64_t bytes = layout.count_elements() * sizeof(float);
    replica = device.compile(graph, layout, batch, make_buckets({}, graph, layout, 0),
                             {arena->allocate(bytes), {}, arena->allocate(bytes)});
    stream = device.fake_stream();
    steps = std::make_unique<StepExchange>(ViewId{1}, space, arena->allocate(StepExchange::ring_bytes(1)),
                                           arena->allocate(StepExchange::total_bytes(1)),
                                           std::vector<Exchange*>{&exchange});
    pool = std::make_unique<LeasePool>(space, *arena, 16, batch.size_bytes());
    auto committed_to =
        actors.listener<CommitReceiver, Committed>([this](const Committed& c) { committed.push_back(c.step); });
    auto evaluated_to =
        actors.listener<EvaluationReceiver, Evaluated>([this](const Evaluated& e) { evaluated.push_back(e); });
    auto finished_to = actors.listener<FinishReceiver, DeviceFinished>([this](const DeviceFinished& f) {
      finished.push_back(f.stopped);
      retired.push_back(f.retired);
      verdict = f.verdict;
    });
    auto snapshots_to = actors.listener<SnapshotReceiver, SnapshotTaken>([this](const SnapshotTaken& taken) {
      saved.emplace_back(taken.step.value, taken.number);
      saved_for.push_back(taken.evaluated);
    });
    auto sums_to = actors.listener<RankSumsReceiver, RankSums>([this](const RankSums& s) { own_sums.push_back(s); });
    auto digests_to = actors.listener<RankDigestReceiver, RankDigest>(
        [this](const RankDigest& told) { digests.emplace_back(told.step, told.tensors); });
    auto texts_to =
        actors.listener<TextReceiver, TextGenerated>([this](const TextGenerated& made) { texts.push_back(made); });
    std::optional<TextPlan> text_plan;
    if (generates)
      text_plan.emplace(TextPlan{tensor, arena->allocate(tensor.size_bytes), *text_work, [this](Step step) {
                                   (void)text_may_go.try_acquire_for(std::chrono::seconds{20});
                                   return generate(step);
                                 }});
    if (generates) weights_copy = text_plan->copy;
    std::optional<DigestPlan> digest_plan;
    if (digest_steps != 0)
      digest_plan = DigestPlan{digest_steps, {tensor, slice(tensor, 0, 8)}, arena->allocate(digest_bytes(2))};
    actor = spawn_device(actors.system(),
                         {.stream = *stream,
                          .replica = *replica,
                          .exchange = *steps,
                          .space = space,
                          .steps = step_messages,
                          .evaluations = evaluation_messages,
                          .evaluation_sums = arena->allocate(kEvaluationsKept * sizeof(StepSums)),
                          .schedule = schedule,
                          .snapshots = snapshot_messages,
                          .saves = std::move(saves),
                          .verdict =
                              [this](Step step, const StepSums&) {
                                return step == bad_step ? Status{Code::device_fault, "the loss"} : Status{};
                              },
                          .switched =
                              [this](Step step, const PolicySettings& policy, const std::string& why) {
                                switches.emplace_back(step.value, policy.kind);
                                reasons.push_back(why);
                              },
                          .ends_early = [this](Step last) { early_end = last; },
                          .sums_are_common = sums_are_common,
                          .digests = digest_plan,
                          .texts = std::move(text_plan),
                          .awaits_verdicts = awaits_verdicts,
                          .rebuild_refusal = [] { return std::string{}; },
                          .retired = [this](const DeviceProgress& left) { progress = left; }},
                         {{committed_to},
                          evaluated_to,
                          {finished_to},
                          snapshots_to,
                          coordinator.handle(actors),
                          sums_to,
                          digests_to,
                          texts_to});
    actor->attach_functor([this](const caf::error& reason) { ended = from_caf(reason); });
    actors.run();
  }
  ~World() {
    caf::anon_send_exit(actor, caf::exit_reason::kill);
    actors.run();
  }

  void begin() {
    actors.send(actor, Begin{{1}});
    actors.run();
  }
  void give(std::uint64_t step, bool evaluation = false, bool last = false) {
    auto slot = pool->try_take();
    ASSERT_TRUE(slot.has_value());
    std::fill_n(slot->data(), batch.size_bytes(), std::byte{1});
    actors.send(actor, BatchLease{std::move(*slot).publish(), {step}, evaluation, last, batch.rows()});
    actors.run();
  }
  /// Lets the thread of texts generate and send one, while this thread runs no actors; whether it was in time.
  bool finish_text() {
    text_may_go.release();
    const auto done = std::make_shared<std::promise<void>>();
    text_work->post([done](Blocking&) { done->set_value(); });
    return done->get_future().wait_for(std::chrono::seconds{20}) == std::future_status::ready;
  }
  /// Runs the device until it has nothing to do, and then the actors.
  void run_device() {
    device.run_until_idle();
    actors.run();
  }

  Schedule schedule;
  BatchLayout batch = testing::image_batch(2, {{4}});
  std::shared_ptr<Arena> arena = Arena::create(arena_id({0}, 1), 1 << 20);
  AddressSpace space;
  FakeDevice device{space};
  NotingExchange exchange;
  PointMessenger<StepReached, kStepsAhead + 1> step_messages{space};
  PointMessenger<EvaluationReached, kEvaluationsKept + 1> evaluation_messages{space};
  PointMessenger<SnapshotReached, 1> snapshot_messages{space};
  std::unique_ptr<LeasePool> pool;
  std::unique_ptr<StepExchange> steps;
  std::unique_ptr<Replica> replica;
  test::ActorWorld actors;
  std::unique_ptr<FakeStream> stream;
  DeviceActor actor;
  std::vector<Step> committed;
  std::vector<Evaluated> evaluated;
  std::vector<bool> finished;                                  // whether it was stopped
  std::vector<bool> retired;                                   // at the same ends
  DeviceProgress progress;                                     // that it left
  std::optional<Step> early_end;                               // told to an app's loop
  Status verdict;                                              // that it finished with
  std::vector<std::pair<std::uint64_t, std::uint32_t>> saved;  // steps, numbers
  std::vector<std::optional<Step>> saved_for;                  // which evaluations
  std::optional<Step> bad_step;                                // the verdict on it ends the run
  std::vector<std::pair<std::uint64_t, PolicyKind>> switches;
  std::vector<std::string> reasons;
  NotedCoordinator coordinator;
  std::vector<RankSums> own_sums;
  Memory tensor = arena->allocate(64);
  std::vector<std::pair<std::uint64_t, std::vector<std::uint64_t>>> digests;  // steps, of `tensor` and a part of it
  std::counting_semaphore<> text_may_go{0};
  std::unique_ptr<IoThreads> text_work = std::make_unique<IoThreads>("text", 1);
  std::function<std::string(Step)> generate;
  std::vector<TextGenerated> texts;
  Memory weights_copy;  // for texts
  Status ended;
};

Schedule steps_without_evaluation(std::uint64_t steps) {
  return {.train_samples = 1000, .test_samples = 10, .rows = 2, .ranks = 1, .steps = steps, .evaluate_every = 0};
}

TEST(DeviceActor, EnqueuesNothingBeforeTheViewBegins) {
  World w{steps_without_evaluation(10)};
  w.give(0);
  EXPECT_TRUE(w.exchange.steps.empty());
  w.begin();
  EXPECT_EQ(w.exchange.steps.size(), 1u);
}

TEST(DeviceActor, EnqueuesNoMoreStepsThanItHasCredits) {
  World w{steps_without_evaluation(10)};
  w.begin();
  for (std::uint64_t k = 0; k < 8; ++k) w.give(k);
  EXPECT_EQ(w.exchange.steps.size(), kStepsAhead);
  w.run_device();
  EXPECT_EQ(w.committed.size(), kStepsAhead);
  EXPECT_EQ(w.exchange.steps.size(), 2 * kStepsAhead);
}

TEST(DeviceActor, GivesTheSlotBackWhenItsStepIsCommitted) {
  World w{steps_without_evaluation(10)};
  w.begin();
  w.give(0);
  EXPECT_EQ(w.pool->count_free(), w.pool->count_slots() - 1);
  w.run_device();
  EXPECT_EQ(w.pool->count_free(), w.pool->count_slots());
}

TEST(DeviceActor, TellsOfEveryCommittedStepInOrderAndThenThatItHasFinished) {
  World w{steps_without_evaluation(7)};
  w.begin();
  for (std::uint64_t k = 0; k < 7; ++k) w.give(k);
  for (int i = 0; i < 7; ++i) w.run_device();
  ASSERT_EQ(w.committed.size(), 7u);
  for (std::uint64_t k = 0; k < 7; ++k) EXPECT_EQ(w.committed[k].value, k);
  EXPECT_EQ(w.finished, std::vector<bool>{false});
}

TEST(DeviceActor, StopsSoManyStepsAfterTheVoteThatNoRankHasEnqueuedTheLastOneBefore) {
  World w{steps_without_evaluation(100)};
  w.begin();
  w.actors.send(w.actor, StopRequest{});
  w.actors.run();
  for (std::uint64_t k = 0; k < 10; ++k) w.give(k);
  for (int i = 0; i < 10; ++i) w.run_device();
  EXPECT_EQ(w.committed.size(), kStepsAhead + 1);
  EXPECT_TRUE(w.exchange.facts.back().last) << "the exchange was not told that its last step is the last";
  EXPECT_EQ(w.finished, std::vector<bool>{true});
}

TEST(DeviceActor, IgnoresAVoteThatWouldEndWhereThePlanEndsAnyway) {
  World w{steps_without_evaluation(2)};
  w.begin();
  w.actors.send(w.actor, StopRequest{});
  w.actors.run();
  w.give(0);
  w.give(1);
  w.run_device();
  EXPECT_EQ(w.finished, std::vector<bool>{false});
}

TEST(DeviceActor, AddsUpAnEvaluationAndTellsItBeforeItFinishes) {
  World w{Schedule{.train_samples = 2, .test_samples = 4, .rows = 2, .ranks = 1, .steps = 1}};
  w.begin();
  w.give(0);
  w.give(0, true);
  w.run_device();
  EXPECT_TRUE(w.finished.empty());
  w.give(0, true, true);
  w.run_device();
  ASSERT_EQ(w.evaluated.size(), 1u);
  EXPECT_EQ(w.evaluated[0].sums.samples, 4u);
  EXPECT_EQ(w.finished, std::vector<bool>{false});
}

TEST(DeviceActor, TellsOfAnEvaluationAndACopyAfterTheStepThatTheyFollow) {
  SavePlan saves{.every_steps = 1};
  World w{Schedule{.train_samples = 2, .test_samples = 2, .rows = 2, .ranks = 1, .steps = 1}, saves};
  Timeline& line = w.space.timeline(w.space.make_private_timeline());
  w.exchange.late = {line.id(), 1};
  w.begin();
  w.give(0);
  w.give(0, true, true);
  w.run_device();
  EXPECT_TRUE(w.committed.empty());
  EXPECT_TRUE(w.evaluated.empty()) << "nobody has heard of the step";
  line.signal(1);
  w.actors.run();
  w.run_device();
  EXPECT_EQ(w.committed.size(), 1U);
  EXPECT_EQ(w.evaluated.size(), 1U);
  EXPECT_EQ(w.saved.size(), 1U);
  EXPECT_EQ(w.finished, std::vector<bool>{false});
}

TEST(DeviceActor, KeepsTheSumsOfEvaluationsApartWhenEveryStepEndsAnEpoch) {
  World w{Schedule{.train_samples = 2, .test_samples = 2, .rows = 2, .ranks = 1, .steps = 6}};
  w.begin();
  for (std::uint64_t k = 0; k < 6; ++k) {
    w.give(k);
    w.give(k, true, true);
  }
  for (int i = 0; i < 6; ++i) w.run_device();
  ASSERT_EQ(w.evaluated.size(), 6u);
  for (std::uint64_t k = 0; k < 6; ++k) {
    EXPECT_EQ(w.evaluated[k].step.value, k);
    EXPECT_EQ(w.evaluated[k].sums.samples, 2u);
  }
  EXPECT_EQ(w.finished, std::vector<bool>{false});
}

TEST(DeviceActor, TellsTheSumsOfAnEvaluationThatEndedWhileTheNextOneHasBegun) {
  World w{Schedule{.train_samples = 2, .test_samples = 4, .rows = 2, .ranks = 1, .steps = 2}};
  w.begin();
  w.give(0);
  w.give(0, true);
  w.give(0, true, true);
  w.give(1);
  w.give(1, true);
  w.run_device();
  ASSERT_EQ(w.evaluated.size(), 1u);
  EXPECT_EQ(w.evaluated[0].sums.samples, 4u);
  w.give(1, true, true);
  w.run_device();
  ASSERT_EQ(w.evaluated.size(), 2u);
  EXPECT_EQ(w.evaluated[1].sums.samples, 4u);
}

Schedule steps_with_an_evaluation_each(std::uint64_t steps) {
  return {.train_samples = 2, .test_samples = 2, .rows = 2, .ranks = 1, .steps = steps};
}

TEST(DeviceActor, GeneratesATextFromACopyOfTheWeightsThatWereEvaluated) {
  World w{steps_with_an_evaluation_each(1), {}, true, 0, false, true};
  const Memory evaluated = w.arena->allocate(w.tensor.size_bytes), own = w.arena->allocate(w.tensor.size_bytes);
  *w.space.address_of<float>(evaluated) = 5;
  w.exchange.shows = [&](Stream& stream, bool common) { stream.copy(w.tensor, common ? evaluated : own); };
  w.generate = [&](Step step) { return text(step.value, ": ", *w.space.address_of<float>(w.weights_copy)); };
  w.begin();
  w.give(0);
  w.give(0, true, true);
  w.run_device();
  ASSERT_TRUE(w.finish_text());
  w.actors.run();
  ASSERT_EQ(w.texts.size(), 1U);
  EXPECT_EQ(w.texts[0].step, Step{0});
  EXPECT_EQ(w.texts[0].text, "0: 5");
  EXPECT_EQ(*w.space.address_of<float>(w.tensor), 0) << "the step after it has the rank's own weights";
}

TEST(DeviceActor, EndsNoOtherEvaluationWhileATextIsGeneratedFromTheCopy) {
  World w{steps_with_an_evaluation_each(3), {}, true, 0, false, true};
  w.generate = [](Step) { return std::string{"text"}; };
  w.begin();
  for (std::uint64_t k = 0; k < 3; ++k) {
    w.give(k);
    w.give(k, true, true);
  }
  for (int i = 0; i < 4; ++i) w.run_device();
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(w.evaluated.size(), k + 1);
    ASSERT_TRUE(w.finish_text());
    for (int i = 0; i < 4; ++i) w.run_device();
    EXPECT_EQ(w.texts.size(), k + 1);
  }
  EXPECT_EQ(w.finished, std::vector<bool>{false});
}

TEST(DeviceActor, EndsWithTheErrorOfAText) {
  World w{steps_with_an_evaluation_each(2), {}, true, 0, false, true};
  w.generate = [](Step) -> std::string { fail(Code::unsupported, "no layer of it"); };
  w.begin();
  w.give(0);
  w.give(0, true, true);
  w.run_device();
  ASSERT_TRUE(w.finish_text());
  w.actors.run();
  EXPECT_TRUE(w.texts.empty());
  EXPECT_NE(w.ended.text().find("no text after step 0: no layer of it"), std::string::npos) << w.ended.text();
}

TEST(DeviceActor, EndsWithTheCodeAndTextOfWhatItsHandlerThrew) {
  World w{steps_without_evaluation(4)};
  w.begin();
  w.exchange.refuses = true;
  w.give(0);
  EXPECT_EQ(w.ended.code(), Code::aborted);
  EXPECT_NE(std::string{w.ended.text()}.find("the exchange was retired"), std::string::npos) << w.ended.text();
}

TEST(DeviceActor, EndsWithTheCodeOfTheStepThatFailed) {
  World w{steps_without_evaluation(10)};
  w.begin();
  w.stream->call([] { fail(Code::device_fault, "the fan stands still"); });
  w.give(0);
  w.run_device();
  EXPECT_EQ(w.ended.code(), Code::device_fault);
  EXPECT_NE(w.ended.text().find("fan"), std::string_view::npos);
  EXPECT_TRUE(w.committed.empty());
}

TEST(DeviceActor, FinishesWithTheVerdictOnABadStepAndTellsNobodyOfThatStep) {
  World w{steps_without_evaluation(10)};
  w.bad_step = Step{1};
  w.begin();
  for (std::uint64_t k = 0; k < 8; ++k) w.give(k);
  for (int i = 0; i < 3; ++i) w.run_device();
  EXPECT_TRUE(w.ended.ok()) << "the other ranks have yet to come to it";
  EXPECT_EQ(w.committed, std::vector{Step{0}});
  EXPECT_EQ(w.finished, std::vector<bool>{true});
  EXPECT_EQ(w.verdict.code(), Code::device_fault);
  EXPECT_EQ(w.exchange.steps.size(), kStepsAhead + 1) << "step 0 gave one credit back";
}

/// Sends the device all steps, and lets it finish each one before the next.
void train(World& w, std::uint64_t first, std::uint64_t end, bool frees = true) {
  for (std::uint64_t k = first; k < end; ++k) {
    w.give(k);
    w.run_device();
    if (frees && !w.saved.empty()) w.actors.send(w.actor, SnapshotFree{});
    w.actors.run();
    w.run_device();
  }
}

TEST(DeviceActor, SavesAfterEverySoManyStepsAndAfterTheLast) {
  World w{steps_without_evaluation(25), SavePlan{.every_steps = 10, .first_number = 4}};
  w.begin();
  train(w, 0, 25);
  EXPECT_THAT(w.saved, ElementsAre(Pair(9, 4), Pair(19, 5), Pair(24, 6)));
  EXPECT_THAT(w.finished, ElementsAre(false));
}

TEST(DeviceActor, SavesWhatIsEvaluatedWhereThatIsAskedFor) {
  Schedule schedule = steps_without_evaluation(30);
  schedule.train_samples = 20;  // ten steps an epoch
  schedule.evaluate_every = 2;
  World w{schedule, SavePlan{.every_steps = 1000, .evaluated = true}};
  w.begin();
  train(w, 0, 20);
  EXPECT_THAT(w.saved, ElementsAre(Pair(19, 1)));
}

TEST(DeviceActor, LeavesSavesOutAsLongAsTheLastIsBeingWrittenButNotTheOneAtTheEnd) {
  World w{steps_without_evaluation(30), SavePlan{.every_steps = 5}};
  w.begin();
  train(w, 0, 30, /*frees=*/false);
  EXPECT_THAT(w.saved, ElementsAre(Pair(4, 1)));
  EXPECT_THAT(w.finished, IsEmpty());
  w.actors.send(w.actor, SnapshotFree{});
  w.actors.run();
  w.run_device();
  EXPECT_THAT(w.saved, ElementsAre(Pair(4, 1), Pair(29, 2)));
  EXPECT_THAT(w.finished, ElementsAre(false));
}

TEST(DeviceActor, SavesNoMoreOftenThanRanksCanCountVotes) {
  World w{steps_without_evaluation(12), SavePlan{.every_steps = 1}};
  w.begin();
  train(w, 0, 12);
  EXPECT_THAT(w.saved, ElementsAre(Pair(0, 1), Pair(4, 2), Pair(8, 3), Pair(11, 4)));
}

TEST(DeviceActor, SavesTheStepAtWhichItIsStopped) {
  World w{steps_without_evaluation(1000), SavePlan{.every_steps = 500}};
  w.begin();
  w.actors.send(w.actor, StopRequest{});
  train(w, 0, 6);
  ASSERT_THAT(w.finished, ElementsAre(true));
  EXPECT_THAT(w.saved, ElementsAre(Pair(w.committed.back().value, 1)));
}

TEST(DeviceActor, TellsThePoliciesWhichStepIsTheLastAndWhichAreEvaluated) {
  Schedule schedule{.train_samples = 4, .test_samples = 10, .rows = 2, .ranks = 1, .steps = 4};
  World w{schedule};
  w.begin();
  for (std::uint64_t k = 0; k < 4; ++k) {
    w.give(k);
    if (k % 2 == 1) w.give(k, true, true);
    w.run_device();
  }
  ASSERT_EQ(w.exchange.facts.size(), 4u);
  for (std::uint64_t k = 0; k < 4; ++k) {
    EXPECT_EQ(w.exchange.facts[k].samples_before, 2 * k);
    EXPECT_EQ(w.exchange.facts[k].samples, 2u);
    EXPECT_EQ(w.exchange.facts[k].last, k == 3);
    EXPECT_EQ(w.exchange.facts[k].consistent, k % 2 == 1);
  }
  EXPECT_EQ(w.exchange.shown, (std::vector<bool>{true, false, true, false})) << "around each pass, once";
}

TEST(DeviceActor, TellsOfASwitchWithTheFirstStepUnderTheNewPolicy) {
  World w{steps_without_evaluation(4)};
  w.begin();
  w.give(0);
  w.give(1);
  EXPECT_THAT(w.switches, IsEmpty());
  w.exchange.in_force = {.kind = PolicyKind::local_sgd};
  w.give(2);
  w.run_device();
  w.give(3);
  EXPECT_THAT(w.switches, ElementsAre(Pair(2, PolicyKind::local_sgd)));
}

TEST(DeviceActor, SavesWhatIsEvaluatedInABlockWhenTheBlockEnds) {
  Schedule schedule = steps_without_evaluation(24);
  schedule.train_samples = 20;  // ten steps an epoch
  schedule.evaluate_every = 1;
  World w{schedule, SavePlan{.every_steps = 6, .evaluated = true}};
  w.exchange.consistent_every = 3;
  w.begin();
  train(w, 0, 18);
  EXPECT_THAT(w.saved, ElementsAre(Pair(5, 1), Pair(11, 2), Pair(17, 3)));
  EXPECT_THAT(w.saved_for, ElementsAre(std::nullopt, Step{9}, std::nullopt));
}

constexpr StepOrderKind kSwitch = StepOrderKind::switch_policy;

TEST(DeviceActor, BeginsNoStepWhileItIsHeldAndTellsWhichIsTheNext) {
  World w{steps_without_evaluation(10)};
  EXPECT_EQ(w.coordinator.joined, 1);
  w.begin();
  w.give(0);
  w.give(1);
  w.actors.send(w.actor, HoldSteps{7, kSwitch, {.kind = PolicyKind::local_sgd}});
  w.actors.run();
  w.give(2);
  ASSERT_EQ(w.coordinator.held.size(), 1u);
  EXPECT_EQ(w.coordinator.held[0].number, 7u);
  EXPECT_EQ(w.coordinator.held[0].next, 2u);
  EXPECT_EQ(w.coordinator.held[0].last, 9u);
  EXPECT_EQ(w.coordinator.held[0].refusal, "");
  EXPECT_EQ(w.exchange.steps.size(), 2u);
  w.actors.send(w.actor, StepOrder{.number = 7});
  w.actors.run();
  EXPECT_EQ(w.exchange.steps.size(), 3u);
  EXPECT_THAT(w.exchange.switched_at, IsEmpty()) << "the order was to go on";
}

TEST(DeviceActor, TellsWhyItsGroupCannotTakeAPolicy) {
  World w{steps_without_evaluation(10)};
  w.begin();
  w.actors.send(w.actor, HoldSteps{1, kSwitch, {.kind = PolicyKind::diloco}});
  w.actors.run();
  ASSERT_EQ(w.coordinator.held.size(), 1u);
  EXPECT_EQ(w.coordinator.held[0].refusal, "no room for an outer momentum");
}

TEST(DeviceActor, SwitchesAtTheStepOfItsOrderAndTellsTheReason) {
  World w{steps_without_evaluation(10)};
  w.begin();
  w.give(0);
  w.actors.send(w.actor, HoldSteps{1, kSwitch, {.kind = PolicyKind::local_sgd}});
  w.actors.send(w.actor, StepOrder{1, kSwitch, 2, {.kind = PolicyKind::local_sgd}, "somebody wanted it"});
  w.actors.run();
  EXPECT_THAT(w.exchange.switched_at, ElementsAre(2));
  w.exchange.in_force = {};  // as a sequence of policies, whose next phase has not come
  w.give(1);
  w.exchange.in_force = {.kind = PolicyKind::local_sgd};
  w.give(2);
  EXPECT_THAT(w.switches, ElementsAre(Pair(2, PolicyKind::local_sgd)));
  EXPECT_THAT(w.reasons, ElementsAre("somebody wanted it"));
}

TEST(DeviceActor, AsksForAnOrderToEndWhereSumsOfAllRanksAreRare) {
  const auto requests = [](const PolicySettings& policy) {
    World w{steps_without_evaluation(100)};
    w.exchange.in_force = policy;
    w.begin();
    w.actors.send(w.actor, StopRequest{});
    w.actors.run();
    return w.coordinator.end_requests;
  };
  EXPECT_EQ(requests({.kind = PolicyKind::block_momentum}), 1);
  EXPECT_EQ(requests({.kind = PolicyKind::diloco}), 1);
  EXPECT_EQ(requests({.kind = PolicyKind::sync, .accumulate = 8}), 1);
  EXPECT_EQ(requests({.kind = PolicyKind::sync}), 0) << "every step counts the votes";
}

TEST(DeviceActor, AsksForAnOrderToEndOnceWhenABlockBeginsAfterTheRequest) {
  World w{steps_without_evaluation(100)};
  w.begin();
  w.actors.send(w.actor, StopRequest{});
  w.actors.run();
  EXPECT_EQ(w.coordinator.end_requests, 0);
  w.exchange.in_force = {.kind = PolicyKind::block_momentum};
  w.give(0);
  w.give(1);
  EXPECT_EQ(w.coordinator.end_requests, 1);
}

TEST(DeviceActor, EndsAfterTheStepOfItsOrderWhateverTheSumsSay) {
  World w{steps_without_evaluation(100), {}, /*sums_are_common=*/false};
  w.exchange.common = false;
  w.begin();
  w.actors.send(w.actor, StopRequest{});
  w.actors.run();
  EXPECT_EQ(w.coordinator.end_requests, 1);
  w.give(0);
  w.run_device();
  EXPECT_FALSE(w.own_sums.empty());
  w.actors.send(w.actor, HoldSteps{1, StepOrderKind::end, {}});
  w.actors.send(w.actor, StepOrder{.number = 1, .kind = StepOrderKind::end, .at = 5});
  for (std::uint64_t k = 1; k < 9; ++k) w.give(k);
  for (int i = 0; i < 9; ++i) w.run_device();
  EXPECT_EQ(w.committed.size(), 6u);
  EXPECT_EQ(w.own_sums.size(), 6u);
  EXPECT_TRUE(w.exchange.facts.back().last);
  EXPECT_THAT(w.finished, ElementsAre(true));
  EXPECT_EQ(w.early_end, Step{5});
}

TEST(DeviceActor, CommitsStepsInTheirOrderThoughALaterOneIsReportedFirst) {
  World w{steps_without_evaluation(10)};
  const PrivateTimeline line{w.space};
  w.begin();
  w.exchange.late = {line.id(), 1};
  w.give(0);
  w.exchange.late = {};
  w.give(1);
  w.run_device();
  EXPECT_THAT(w.committed, IsEmpty());
  line.line().signal(1);
  w.run_device();
  EXPECT_THAT(w.committed, ElementsAre(Step{0}, Step{1}));
}

TEST(DeviceActor, SaysHowManySamplesFillUpAnEpoch) {
  World w{{.train_samples = 8, .rows = 2, .ranks = 3, .steps = 2, .scatter = Scatter::equal}};
  w.begin();
  train(w, 0, 2);
  ASSERT_EQ(w.exchange.facts.size(), 2u);
  EXPECT_EQ(w.exchange.facts[0].samples, 6u);
  EXPECT_EQ(w.exchange.facts[0].repeated, 0u);
  EXPECT_EQ(w.exchange.facts[1].samples, 2u);
  EXPECT_EQ(w.exchange.facts[1].repeated, 1u);
}

/// Holds and orders that the view ends with step `at`, or the first one after it that leaves no round under way.
void order_rebuild(World& w, std::uint64_t at) {
  w.actors.send(w.actor, HoldSteps{1, StepOrderKind::rebuild, {}});
  w.actors.send(w.actor, StepOrder{.number = 1, .kind = StepOrderKind::rebuild, .at = at});
  w.actors.run();
}

TEST(DeviceActor, RetiresAfterTheFirstStepOfItsOrderThatLeavesNoRoundInProgress) {
  World w{steps_without_evaluation(100), SavePlan{}};
  w.exchange.consistent_every = 4;
  w.begin();
  w.give(0);
  order_rebuild(w, 5);
  train(w, 1, 12);
  EXPECT_EQ(w.committed.size(), 8u);
  EXPECT_EQ(w.exchange.facts.size(), 8u) << "no step has begun behind it";
  for (const StepFacts& facts : w.exchange.facts) {
    EXPECT_FALSE(facts.last) << "the run goes on";
    EXPECT_FALSE(facts.consistent) << "and is the one that it would have been";
  }
  EXPECT_THAT(w.retired, ElementsAre(true));
  EXPECT_THAT(w.saved, IsEmpty()) << "the next view has it in memory";
}

TEST(DeviceActor, StaysInItsViewOnceItWasAskedToEnd) {
  World w{steps_without_evaluation(100)};
  w.begin();
  w.actors.send(w.actor, StopRequest{});
  w.actors.send(w.actor, HoldSteps{1, StepOrderKind::rebuild, {}});
  w.actors.run();
  ASSERT_EQ(w.coordinator.held.size(), 1u);
  EXPECT_EQ(w.coordinator.held[0].refusal, "the run was asked to end");
}

TEST(DeviceActor, HasABarrierOfTheShardsAtTheViewsEnd) {
  World w{steps_without_evaluation(100)};
  w.exchange.in_force = {.kind = PolicyKind::ssp};
  w.begin();
  w.give(0);
  order_rebuild(w, 1);
  train(w, 1, 4);
  ASSERT_EQ(w.exchange.facts.size(), 2u);
  EXPECT_FALSE(w.exchange.facts[0].consistent);
  EXPECT_TRUE(w.exchange.facts[1].consistent);
  EXPECT_THAT(w.retired, ElementsAre(true));
}

TEST(DeviceActor, RetiresWhenWhatItSavesIsWrittenAndHandsItsOrdersOn) {
  World w{steps_without_evaluation(100), SavePlan{.every_steps = 3}};
  w.begin();
  w.give(0);
  w.actors.send(w.actor, HoldSteps{1, kSwitch, {.kind = PolicyKind::local_sgd}});
  w.actors.send(w.actor, StepOrder{1, kSwitch, 50, {.kind = PolicyKind::local_sgd}, "somebody wanted it"});
  w.actors.run();
  w.actors.send(w.actor, HoldSteps{2, StepOrderKind::rebuild, {}});
  w.actors.send(w.actor, StepOrder{.number = 2, .kind = StepOrderKind::rebuild, .at = 2});
  w.actors.run();
  for (std::uint64_t k = 1; k < 5; ++k) w.give(k);
  for (int i = 0; i < 5; ++i) w.run_device();
  EXPECT_EQ(w.committed.size(), 3u);
  EXPECT_THAT(w.saved, ElementsAre(Pair(2, 1)));
  EXPECT_THAT(w.retired, IsEmpty());
  w.actors.send(w.actor, SnapshotFree{});
  w.actors.run();
  EXPECT_THAT(w.retired, ElementsAre(true));
  EXPECT_EQ(w.progress.next_number, 2u);
  ASSERT_EQ(w.progress.switches.size(), 1u);
  EXPECT_EQ(w.progress.switches[0].at, Step{50});
  EXPECT_EQ(w.progress.switches[0].reason, "somebody wanted it");
}

TEST(DeviceActor, EndsTheRunWithThePlansLastStepThoughTheViewWasToEnd) {
  World w{steps_without_evaluation(6)};
  w.exchange.consistent_every = 4;
  w.begin();
  w.give(0);
  order_rebuild(w, 4);
  train(w, 1, 6);
  EXPECT_EQ(w.committed.size(), 6u);
  EXPECT_THAT(w.finished, ElementsAre(false));
  EXPECT_THAT(w.retired, ElementsAre(false));
}

TEST(DeviceActor, TellsDigestsOfItsWeightsWhereRanksShouldHaveTheSame) {
  World w{steps_without_evaluation(12), {}, true, /*digest_steps=*/2};
  w.exchange.consistent_every = 3;
  w.begin();
  for (std::uint64_t k = 0; k < 12; ++k) {
    w.space.address_of<std::uint64_t>(w.tensor)[7] = k;
    w.give(k);
    w.run_device();
  }
  ASSERT_EQ(w.digests.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(w.digests[i].first, 3 * i + 2) << "due after every second step, and taken when a block of three ends";
    std::array<std::uint64_t, 8> expected{};
    expected[7] = 3 * i + 2;
    EXPECT_EQ(w.digests[i].second[0], xxh3(std::as_bytes(std::span{expected})));
    EXPECT_EQ(w.digests[i].second[1], xxh3(std::as_bytes(std::span{expected}.first(1))));
  }
}

TEST(DeviceActor, SendsDigestsOfWhatRanksHaveInCommonAtABarrierOfTheShards) {
  World w{steps_without_evaluation(6), {}, true, /*digest_steps=*/1};
  w.exchange.in_force.kind = PolicyKind::easgd;
  w.exchange.consistent_every = 3;
  w.begin();
  for (std::uint64_t k = 0; k < 6; ++k) {
    w.give(k);
    w.run_device();
  }
  ASSERT_EQ(w.digests.size(), 2u);
  EXPECT_EQ(w.digests[0].first, 2u);
  EXPECT_EQ(w.digests[1].first, 5u);
  EXPECT_THAT(w.exchange.shown, ElementsAre(true, false, true, false));
}

/// Epochs of two steps, each evaluated by one batch.
Schedule evaluated_epochs(std::uint64_t steps) {
  return {.train_samples = 4, .test_samples = 2, .rows = 2, .ranks = 1, .steps = steps, .evaluate_every = 1};
}

TEST(DeviceActor, BeginsNoStepBehindAnEvaluationBeforeItsVerdict) {
  World w{evaluated_epochs(6), {}, true, 0, true};
  w.begin();
  w.give(0);
  w.give(1);
  w.give(1, true, true);
  w.give(2);
  w.give(3);
  w.run_device();
  EXPECT_EQ(w.committed.size(), 2u);
  ASSERT_EQ(w.evaluated.size(), 1u);
  w.actors.send(w.actor, EvaluationVerdict{.step = 0, .end = true});  // of no evaluation
  w.actors.run();
  w.run_device();
  EXPECT_EQ(w.committed.size(), 2u);
  w.actors.send(w.actor, EvaluationVerdict{.step = 1, .end = false});
  w.actors.run();
  w.run_device();
  EXPECT_EQ(w.committed.size(), 4u);
  EXPECT_TRUE(w.finished.empty());
}

TEST(DeviceActor, EndsWithTheEvaluatedStepWhereItsVerdictSaysSo) {
  World w{evaluated_epochs(6), SavePlan{.every_steps = 100}, true, 0, true};
  w.begin();
  w.give(0);
  w.give(1);
  w.give(1, true, true);
  w.give(2);
  w.run_device();
  w.actors.send(w.actor, EvaluationVerdict{.step = 1, .end = true});
  w.actors.run();
  w.run_device();
  EXPECT_EQ(w.committed.size(), 2u);
  EXPECT_EQ(w.finished, std::vector<bool>{true});
  ASSERT_EQ(w.saved.size(), 1u);
  EXPECT_EQ(w.saved[0].first, 1u);
}

TEST(DeviceActor, EndsWithTheStepBehindWhereTheEvaluatedOneIsInsideABlock) {
  World w{evaluated_epochs(6), {}, true, 0, true};
  w.exchange.consistent_every = 3;
  w.begin();
  w.give(0);
  w.give(1);
  w.give(1, true, true);
  w.give(2);
  w.run_device();
  w.actors.send(w.actor, EvaluationVerdict{.step = 1, .end = true});
  w.actors.run();
  w.run_device();
  EXPECT_EQ(w.committed.size(), 3u);
  EXPECT_EQ(w.finished, std::vector<bool>{true});
  EXPECT_TRUE(w.exchange.facts.back().last);
  EXPECT_EQ(w.early_end, Step{2});
}

TEST(DeviceActor, NamesRankZeroWhenItIsHeldForTooLong) {
  World w{steps_without_evaluation(10)};
  w.begin();
  w.actors.send(w.actor, HoldSteps{1, StepOrderKind::end, {}});
  w.actors.run();
  w.actors.send(w.actor, OrderOverdue{1});
  w.actors.run();
  EXPECT_EQ(w.ended.code(), Code::timeout);
  EXPECT_NE(w.ended.text().find("rank 0 held the steps"), std::string_view::npos) << w.ended.text();
}

TEST(DeviceActor, SavesWhenABlockEndsAndNotInIt) {
  World w{steps_without_evaluation(24), SavePlan{.every_steps = 8}};
  w.exchange.consistent_every = 3;
  w.begin();
  for (std::uint64_t k = 0; k < 24; ++k) {
    w.give(k);
    w.run_device();
    w.actors.send(w.actor, SnapshotFree{});
    w.actors.run();
  }
  w.run_device();
  EXPECT_THAT(w.saved, ElementsAre(Pair(8, 1), Pair(17, 2), Pair(23, 3)));
}

TEST(DeviceActor, SavesWhenABlockEndsWhereSumsAreOfThisRankToo) {
  World w{steps_without_evaluation(14), SavePlan{.every_steps = 4}, /*sums_are_common=*/false};
  w.exchange.common = false;
  w.exchange.consistent_every = 3;
  w.begin();
  train(w, 0, 14);
  EXPECT_THAT(w.saved, ElementsAre(Pair(5, 1), Pair(8, 2), Pair(11, 3), Pair(13, 4)));
}

TEST(DeviceActor, NeedsEqualWeightsOfAllGroupsAfterEachStepFromADueSaveToTheEndOfTheBlock) {
  World w{steps_without_evaluation(24), SavePlan{.every_steps = 10}};
  w.exchange.consistent_every = 6;
  w.begin();
  train(w, 0, 18);
  for (std::uint64_t k = 0; k < 18; ++k)
    EXPECT_EQ(w.exchange.facts.at(k).consistent, k == 9 || k == 10 || k == 11) << k;
  EXPECT_THAT(w.saved, ElementsAre(Pair(11, 1)));
}

}  // namespace
}  // namespace troupe
