#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "runtime/base/thread.hpp"
#include "runtime/base/thread_affinity.hpp"
#include "runtime/checkpoint/store.hpp"
#include "tests/cluster/session_threads.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

constexpr double kRate = 0.5;

/// One scalar that approaches the mean of its samples: loss (w - x)^2 / 2.
OwnModel scalar_model() { return {.name = "scalar", .parameters = {{"w", {1}}}, .step = {}, .evaluate = {}}; }

class SessionLoop : public SessionThreads {
 protected:
  /// A session in which only the app computes.
  SessionOptions scalar_options(std::uint64_t steps) const {
    SessionOptions made = options(
        {"optimizer.rule=\"sgd\"", text("optimizer.rate=", kRate), text("train.steps=", steps), "data.batch=4"});
    made.model = scalar_model();
    made.own_samples = 1000;
    return made;
  }

  using Weights = std::map<std::string, std::vector<float>>;
  /// Of every rank at the end, by name.
  std::vector<Weights> weights(std::uint32_t ranks, const std::vector<std::string>& settings) const {
    std::vector<Weights> all(ranks);
    const auto results = run(ranks, options(settings), [&](Blocking& blocking, Session& session, std::uint32_t rank) {
      RunResult result = session.run(blocking);
      for (const SessionTensor& tensor : session.tensors())
        all[rank][tensor.name].assign(tensor.parameters.begin(), tensor.parameters.end());
      return result;
    });
    for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
    return all;
  }
};

RunResult step_to_the_end(Blocking& blocking, Session& session, std::uint32_t) {
  while (session.next(blocking)) {
    if (!session.step(blocking)) break;
  }
  return session.finish(blocking);
}

TEST_F(SessionLoop, OwnedByTheAppTrainsToTheSameBitsAsRun) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    if (ranks > 1 && !ucx_available()) GTEST_SKIP() << "this build has no UCX";
    const auto ran = run(ranks, options(), run_to_the_end);
    const auto stepped = run(ranks, options(), step_to_the_end);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      ASSERT_TRUE(ran[r].status.ok()) << ran[r].status.text();
      ASSERT_TRUE(stepped[r].status.ok()) << stepped[r].status.text();
      EXPECT_EQ(stepped[r].parameters_hash, ran[r].parameters_hash);
      EXPECT_EQ(stepped[r].total.steps, ran[r].total.steps);
    }
    ASSERT_EQ(stepped[0].epochs.size(), ran[0].epochs.size());
    for (std::size_t e = 0; e < ran[0].epochs.size(); ++e)
      EXPECT_EQ(stepped[0].epochs[e].test_accuracy, ran[0].epochs[e].test_accuracy);
  }
}

struct Notes final : SessionListener {
  void note(const std::string& text) override { all.push_back(text); }
  std::vector<std::string> all;  // the listener's thread writes, and has ended when it is read
};

TEST_F(SessionLoop, TellsAfterItsFirstStepOfThreadsThatCameSinceAndAreNotWhereThePlanHasThem) {
  const std::vector<std::uint32_t> usable = usable_cpus();
  if (usable.size() < 2) GTEST_SKIP() << "this process may use one CPU alone";
  Notes notes;
  SessionOptions own = options({"train.steps=2", "placement.cores=1"});
  own.owns_process = true;
  own.listener = &notes;
  std::promise<void> named, end;
  const auto results = run(1, own, [&](Blocking& blocking, Session& session, std::uint32_t) {
    EXPECT_TRUE(session.next(blocking));
    std::thread stray = start_thread("stray", [&] {
      named.set_value();
      end.get_future().wait();
    });
    named.get_future().wait();
    keep_on(stray, std::vector{usable.back()}, "the test's thread");
    while (session.step(blocking) && session.next(blocking)) {
    }
    RunResult result = session.finish(blocking);
    end.set_value();
    stray.join();
    return result;
  });
  keep_process_on(usable);
  EXPECT_TRUE(results[0].status.ok()) << results[0].status.text();
  EXPECT_THAT(notes.all, ::testing::ElementsAre(::testing::AllOf(
                             ::testing::HasSubstr("thread stray may run on processors " + text(usable.back())),
                             ::testing::HasSubstr("(threads-off-plan)"))));
}

TEST_F(SessionLoop, GivesTheSumsOverAllRanksWithEveryStep) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  const auto results = run(2, options({"train.steps=5"}), [](Blocking& blocking, Session& session, std::uint32_t) {
    int steps = 0;
    while (auto batch = session.next(blocking)) {
      EXPECT_EQ(batch->rows(), 20u);
      EXPECT_EQ(batch->values<float>(kImage).size(), 20u * 784);
      EXPECT_EQ(batch->values<std::int32_t>(kLabel).size(), 20u);
      const auto sums = session.step(blocking);
      EXPECT_TRUE(sums.has_value());
      if (!sums) break;
      EXPECT_EQ(sums->samples, 40u);
      EXPECT_GT(sums->loss, 0);
      ++steps;
    }
    EXPECT_EQ(steps, 5);
    return session.finish(blocking);
  });
  for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
}

TEST_F(SessionLoop, ExchangesTheAppsOwnGradientsAsTheirMeanOverAllSamples) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  // Rank r has r + 1 samples, each of the value 10 (r + 1): the mean is (10 + 2 * 20) / 3.
  const auto results = run(2, scalar_options(8), [](Blocking& blocking, Session& session, std::uint32_t rank) {
    const SessionTensor& w = session.tensors().at(0);
    EXPECT_EQ(w.name, "w");
    double expected = 0;
    const double samples = rank + 1;
    for (;;) {
      EXPECT_NEAR(w.parameters[0], expected, 1e-5);
      w.gradients[0] = static_cast<float>(samples * (w.parameters[0] - 10.0 * (rank + 1)));
      const auto sums = session.exchange(blocking, {.loss = samples, .samples = rank + 1});
      if (!sums) break;
      EXPECT_EQ(sums->samples, 3u);
      EXPECT_DOUBLE_EQ(sums->loss, 3);
      expected += kRate * (50.0 / 3 - expected);
    }
    EXPECT_GT(expected, 16);
    return session.finish(blocking);
  });
  for (const RunResult& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.status.text();
    EXPECT_EQ(result.total.steps, 8u);
  }
}

using Values = std::vector<ReportedValue>;

TEST_F(SessionLoop, ReportsTheMeanOverAllCallsOfAllRanksInTheLineOfTheirStep) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  // 50 steps of 40 samples are an epoch of 2,000.
  const auto results = run(2, options(), [](Blocking& blocking, Session& session, std::uint32_t rank) {
    for (std::uint64_t step = 0; session.next(blocking); ++step) {
      session.report("step", static_cast<double>(step));
      if (!session.step(blocking)) break;
      if (step % 50 == 49) session.report("after", step + rank);  // of the epoch that ended
      if (rank == 1 && step == 99) session.report("rank1", 7);
    }
    if (rank == 0) session.report("behind", 3);
    return session.finish(blocking);
  });
  for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
  ASSERT_EQ(results[0].epochs.size(), 2u);
  EXPECT_EQ(results[0].epochs[0].values, (Values{{"after", 49.5}, {"step", 24.5}}));
  EXPECT_EQ(results[0].epochs[1].values, (Values{{"after", 99.5}, {"behind", 3}, {"rank1", 7}, {"step", 74.5}}));
}

TEST_F(SessionLoop, ReportsTheSameBitsInEveryRun) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  const auto once = [&] {
    const auto results = run(3, options({"data.batch=10", "placement.cores=0"}),
                             [](Blocking& blocking, Session& session, std::uint32_t rank) {
                               while (session.next(blocking)) {
                                 const auto sums = session.step(blocking);
                                 if (!sums) break;
                                 session.report("noise", sums->loss * (rank + 0.1) / 3);
                               }
                               return session.finish(blocking);
                             });
    Values all;
    for (const EpochReport& line : results[0].epochs) all.insert(all.end(), line.values.begin(), line.values.end());
    return all;
  };
  const Values first = once();
  ASSERT_EQ(first.size(), 2u);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(once(), first);
}

TEST_F(SessionLoop, RefusesToReportWhatHasNoNameOfItsOwn) {
  run(1, scalar_options(3), [](Blocking& blocking, Session& session, std::uint32_t) {
    for (const char* name : {"", "Loss", "a b", "epoch", "main/loss", "ranks"}) {
      Code code = Code::ok;
      try {
        session.report(name, 1);
      } catch (const Error& error) {
        code = error.code();
      }
      EXPECT_EQ(code, Code::invalid) << name;
    }
    return session.finish(blocking);
  });
}

TEST_F(SessionLoop, GivesParametersAfterTheRunAndNotBefore) {
  run(1, scalar_options(3), [](Blocking& blocking, Session& session, std::uint32_t) {
    Code code = Code::ok;
    try {
      (void)session.parameters();
    } catch (const Error& error) {
      code = error.code();
    }
    EXPECT_EQ(code, Code::invalid);
    const RunResult result = session.finish(blocking);
    EXPECT_FALSE(session.parameters().empty());
    return result;
  });
}

TEST_F(SessionLoop, LearnsTheSameBitsWhoeverDecodesItsBatches) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  const auto alone = weights(2, {});
  EXPECT_EQ(weights(2, {"data.threads=3"}), alone);
  EXPECT_EQ(weights(2, {"data.threads=2", "data.loader=\"node\""}), alone);
}

TEST_F(SessionLoop, ShowsTheWeightsOfARoundAsSoonAsItsStepIsTaken) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  SessionOptions made = options({"optimizer.rule=\"sgd\"", text("optimizer.rate=", kRate), "train.steps=9",
                                 "data.batch=4", "update.policy=\"local_sgd\"", "update.every_steps=3"});
  made.model = scalar_model();
  made.own_samples = 1000;
  std::array<std::vector<float>, 2> after;  // by rank: each step's weight
  const auto results = run(2, made, [&](Blocking& blocking, Session& session, std::uint32_t rank) {
    const SessionTensor& w = session.tensors().at(0);
    for (;;) {
      w.gradients[0] = w.parameters[0] - 10.0F * static_cast<float>(rank + 1);
      if (!session.exchange(blocking, {.samples = 1})) break;
      after[rank].push_back(w.parameters[0]);
    }
    return session.finish(blocking);
  });
  for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
  ASSERT_EQ(after[0].size(), 9U);
  ASSERT_EQ(after[1].size(), 9U);
  for (std::size_t step = 0; step < 9; ++step) EXPECT_EQ(after[0][step] == after[1][step], step % 3 == 2) << step;
}

TEST_F(SessionLoop, ShowsTheWeightsOfARoundOfTheDevicesTooAsSoonAsItsStepIsTaken) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  const SessionOptions made = options({"train.steps=9", "update.policy=\"local_sgd\"", "update.every_steps=3"});
  std::array<std::vector<std::vector<float>>, 2> after;  // by rank: each step's last bias
  const auto results = run(2, made, [&](Blocking& blocking, Session& session, std::uint32_t rank) {
    const SessionTensor& bias = session.tensors().back();
    while (session.next(blocking) && session.step(blocking))
      after[rank].emplace_back(bias.parameters.begin(), bias.parameters.end());
    return session.finish(blocking);
  });
  for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
  ASSERT_EQ(after[0].size(), 9U);
  ASSERT_EQ(after[1].size(), 9U);
  for (std::size_t step = 0; step < 9; ++step) EXPECT_EQ(after[0][step] == after[1][step], step % 3 == 2) << step;
}

TEST_F(SessionLoop, ThatOnlyExchangesKeepsALogOfItsEpochsAndOfThePartInWhichItEnds) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    if (ranks > 1 && !ucx_available()) GTEST_SKIP() << "this build has no UCX";
    // An epoch of 1,000 samples has 250 steps of 4, or 125 of 8.
    run(ranks, scalar_options(1'000'000), [](Blocking& blocking, Session& session, std::uint32_t rank) {
      for (int step = 0; step < 300; ++step) {
        session.report("calls", 2 * step + rank);
        if (!session.exchange(blocking, {.loss = 3, .samples = 1})) break;
      }
      return session.finish(blocking);
    });
    std::ifstream in{folder_.path() / "run/log"};
    const auto log = nlohmann::json::parse(in);
    const std::size_t epochs = ranks == 1 ? 1 : 2;
    ASSERT_EQ(log.size(), epochs + 1) << log.dump(2);
    EXPECT_EQ(log[0].at("iteration"), 250 / ranks);
    EXPECT_EQ(log[0].at("main/loss"), 3);
    EXPECT_EQ(log[0].at("calls"), ranks == 1 ? 249 : 124.5);
    EXPECT_GT(log[0].at("steps_per_s"), 0);
    EXPECT_GE(log.back().at("iteration"), 300);
    EXPECT_TRUE(log.back().contains("epoch_detail"));
    std::ifstream table{folder_.path() / "run/log.csv"};
    std::string names;
    std::getline(table, names);
    EXPECT_THAT(names, ::testing::EndsWith(",calls"));
  }
}

TEST_F(SessionLoop, KeepsOtherSessionsOutOfItsFolderUntilItsRunHasEnded) {
  run(1, scalar_options(3), [this](Blocking& blocking, Session& first, std::uint32_t) {
    const RunResult second = run(1, scalar_options(3), run_to_the_end)[0];
    EXPECT_EQ(second.status.code(), Code::environment);
    EXPECT_THAT(std::string{second.status.text()},
                ::testing::AllOf(::testing::HasSubstr("another job writes into this folder"),
                                 ::testing::HasSubstr("set report.dir to a folder of its own")));
    while (first.exchange(blocking, {.samples = 1})) {
    }
    RunResult result = first.finish(blocking);
    EXPECT_TRUE(result.status.ok()) << result.status.text();
    run(1, scalar_options(3), [](Blocking& blocking, Session& third, std::uint32_t) { return third.finish(blocking); });
    return result;
  });
}

TEST_F(SessionLoop, FindsInTheStepWhoseGradientIsNotFiniteThoughTheLossIs) {
  for (const char* policy : {"sync", "async", "local_sgd"}) {
    // Ranks that work locally hear of each other's steps at the end of a round, which has 8 of them.
    const int last_of_round = std::string{policy} == "local_sgd" ? 7 : 4;
    for (const std::uint32_t ranks : {1u, 2u}) {
      if (ranks > 1 && !ucx_available()) continue;
      SessionOptions made =
          options({"optimizer.rule=\"sgd\"", "train.steps=9", "data.batch=4", text("update.policy=\"", policy, "\"")});
      made.model = OwnModel{.name = "two", .parameters = {{"v", {3}}, {"w", {2}}}, .step = {}, .evaluate = {}};
      made.own_samples = 1000;
      const auto results = run(ranks, made, [&](Blocking& blocking, Session& session, std::uint32_t rank) {
        for (int step = 0; step < 9; ++step) {
          std::ranges::fill(session.tensors()[0].gradients, 1.0F);
          std::ranges::fill(session.tensors()[1].gradients, 1.0F);
          if (step == 4 && rank + 1 == ranks) session.tensors()[1].gradients[1] = std::nanf("");
          if (!session.exchange(blocking, {.loss = 1, .samples = 1})) break;
        }
        return session.finish(blocking);
      });
      EXPECT_EQ(results[ranks - 1].status.code(), Code::device_fault) << policy << results[ranks - 1].status.text();
      EXPECT_THAT(std::string{results[ranks - 1].status.text()},
                  ::testing::HasSubstr(
                      text("step ", last_of_round, ": the gradient of w, first at rank ", ranks - 1, " is not finite")))
          << policy;
    }
  }
}

TEST_F(SessionLoop, KeepsNoLogWhereNoneIsWanted) {
  SessionOptions made = scalar_options(3);
  made.log = false;
  run(1, made, [](Blocking& blocking, Session& session, std::uint32_t) {
    while (session.exchange(blocking, {.samples = 1})) {
    }
    return session.finish(blocking);
  });
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "run/log"));
}

TEST_F(SessionLoop, EndsForAllWhenOneRankFinishesEarly) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  std::atomic<std::uint64_t> wrong{0};
  const auto results = run(2, scalar_options(1'000'000), [&](Blocking& blocking, Session& session, std::uint32_t rank) {
    const SessionTensor& w = session.tensors().at(0);
    for (std::uint64_t step = 0; rank != 1 || step < 10; ++step) {
      w.gradients[0] = w.parameters[0] - 7;
      const auto sums = session.exchange(blocking, {.samples = 1});
      if (!sums) break;
      if (step < 10 && sums->samples != 2) ++wrong;
    }
    // The one that left took part with zeros: the other one's pull is all that counted.
    EXPECT_NEAR(w.parameters[0], 7, 0.05);
    return session.finish(blocking);
  });
  EXPECT_EQ(wrong, 0u);
  for (const RunResult& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.status.text();
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(result.total.steps, results[0].total.steps);
    EXPECT_LT(result.total.steps, 20u);
    EXPECT_EQ(result.parameters_hash, results[0].parameters_hash);
  }
}

/// Counts the session's calls of a model.
struct Asked {
  std::atomic<std::uint64_t> trained{0};
  std::atomic<std::uint64_t> tested{0};
};

OwnModel counting_model(Asked& asked) {
  const auto count = [](std::atomic<std::uint64_t>& counter) {
    return [&counter](const BatchView& batch, const std::vector<SessionTensor>&) {
      StepSums sums;
      for (const std::int32_t label : batch.values<std::int32_t>(kLabel)) sums.samples += label >= 0 ? 1 : 0;
      counter += sums.samples;
      return sums;
    };
  };
  return {"counting", {{"w", {3, 5}}}, count(asked.trained), count(asked.tested)};
}

TEST_F(SessionLoop, RunsAModelOfTheAppsOwnOverTrainingAndTestSets) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    if (ranks > 1 && !ucx_available()) GTEST_SKIP() << "this build has no UCX";
    Asked asked;
    SessionOptions own = options();
    own.model = counting_model(asked);
    const auto results = run(ranks, own, run_to_the_end);
    for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
    EXPECT_EQ(asked.trained, 2u * 2000);
    EXPECT_EQ(asked.tested, 2u * 200);
    EXPECT_EQ(results[0].epochs.size(), 2u);
  }
}

TEST_F(SessionLoop, EndsWithTheReasonWhenTheAppsModelThrows) {
  Asked asked;
  SessionOptions own = options();
  own.model = counting_model(asked);
  own.model->step = [](const BatchView&, const std::vector<SessionTensor>&) -> StepSums {
    throw std::runtime_error("no such kernel");
  };
  const auto results = run(1, own, run_to_the_end);
  EXPECT_EQ(results[0].status.code(), Code::device_fault);
  EXPECT_THAT(std::string{results[0].status.text()}, ::testing::HasSubstr("no such kernel"));
}

TEST_F(SessionLoop, NamesWhatTheAppsDataOrDeviceLack) {
  SessionOptions data = options();
  data.own_data = OwnData{.description = "nothing",
                          .facts = {.fields = {{"image", {{4}}, DType::f32}, {"label", {}, DType::i32, 2}}},
                          .read = [] { return DataSet{}; }};
  const auto no_data = run(1, data, run_to_the_end);
  EXPECT_EQ(no_data[0].status.code(), Code::invalid);
  EXPECT_THAT(std::string{no_data[0].status.text()}, ::testing::HasSubstr("read() returned no train set"));
  SessionOptions device = options();
  device.make_device = [](const DeviceContext&) -> std::unique_ptr<Device> { return nullptr; };
  const auto no_device = run(1, device, run_to_the_end);
  EXPECT_EQ(no_device[0].status.code(), Code::invalid);
  EXPECT_THAT(std::string{no_device[0].status.text()}, ::testing::HasSubstr("make_device returned no device"));
}

TEST_F(SessionLoop, SaysWhatIsMissingWhenNobodyCanCompute) {
  const auto exchanges = run(1, options(), [](Blocking& blocking, Session& session, std::uint32_t) {
    (void)session.next(blocking);
    (void)session.exchange(blocking, {});
    return session.finish(blocking);
  });
  EXPECT_EQ(exchanges[0].status.code(), Code::invalid);
  EXPECT_THAT(std::string{exchanges[0].status.text()}, ::testing::HasSubstr("call step()"));
  const auto steps = run(1, scalar_options(3), [](Blocking& blocking, Session& session, std::uint32_t) {
    (void)session.next(blocking);
    (void)session.step(blocking);
    return session.finish(blocking);
  });
  EXPECT_EQ(steps[0].status.code(), Code::invalid);
  EXPECT_THAT(std::string{steps[0].status.text()}, ::testing::HasSubstr("exchange()"));
  const auto runs = run(1, scalar_options(3), run_to_the_end);
  EXPECT_EQ(runs[0].status.code(), Code::invalid);
  const auto without_batch = run(1, options(), [](Blocking& blocking, Session& session, std::uint32_t) {
    (void)session.step(blocking);
    return session.finish(blocking);
  });
  EXPECT_THAT(std::string{without_batch[0].status.text()}, ::testing::HasSubstr("next()"));
}

constexpr const char* kTwoGroups =
    "update.group=[{ name = \"biases\", match = \"*.bias\" }, { name = \"last\", match = \"l3.weight\" }]";

TEST_F(SessionLoop, TrainsGroupsThatAreUpdatedAlikeToTheBitsOfOne) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    if (ranks > 1 && !ucx_available()) GTEST_SKIP() << "this build has no UCX";
    for (const char* policy : {"sync", "double_buffered", "local_sgd"}) {
      const std::vector<std::string> settings{"train.steps=12", text("update.policy=", policy)};
      std::vector<std::string> grouped = settings;
      grouped.emplace_back(kTwoGroups);
      EXPECT_EQ(weights(ranks, grouped), weights(ranks, settings)) << policy << " on " << ranks;
    }
  }
}

TEST_F(SessionLoop, GathersTheStateOfAGroupThatIsSmallerThanTheRanksLines) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  const std::vector<std::string> settings{"train.steps=12", "update.policy=post_local_sgd", "update.every_steps=2",
                                          "update.distributed_after=60"};
  std::vector<std::string> grouped = settings;
  grouped.emplace_back("update.group=[{ name = \"last\", match = \"l3.bias\" }]");
  EXPECT_EQ(weights(2, grouped), weights(2, settings));
}

TEST_F(SessionLoop, GoesOnFromACheckpointWithOtherGroups) {
  const std::uint32_t ranks = ucx_available() ? 2 : 1;
  const auto whole = weights(ranks, {"train.steps=12", "checkpoint.every_steps=0"});
  const auto resume_in = [&](const std::string& dir, std::vector<std::string> settings) {
    const std::string folder = text("checkpoint.dir=", (folder_.path() / "run" / dir).string());
    settings.insert(settings.end(), {"checkpoint.resume=auto", "checkpoint.every_steps=100", folder});
    return settings;
  };
  const auto saved_steps = [&](const std::string& dir) {
    return CheckpointStore((folder_.path() / "run" / dir).string()).list().at(0).steps;
  };
  (void)weights(ranks, resume_in("a", {"train.steps=5", kTwoGroups}));
  ASSERT_EQ(saved_steps("a"), 5u);
  EXPECT_EQ(weights(ranks, resume_in("a", {"train.steps=12"})), whole);
  (void)weights(ranks, resume_in("b", {"train.steps=5"}));
  ASSERT_EQ(saved_steps("b"), 5u);
  EXPECT_EQ(weights(ranks, resume_in("b", {"train.steps=12", kTwoGroups})), whole);
}

TEST_F(SessionLoop, RefusesACheckpointWhoseGroupsHadOtherRules) {
  const std::string group = "update.group=[{ name = \"biases\", match = \"*.bias\", optimizer = { rule = \"sgd\" } }]";
  (void)weights(1, {"train.steps=5", "checkpoint.every_steps=100", group});
  const auto results = run(1, options({"train.steps=9", "checkpoint.resume=auto"}), run_to_the_end);
  EXPECT_EQ(results[0].status.code(), Code::invalid);
  EXPECT_THAT(std::string{results[0].status.text()}, ::testing::HasSubstr("rule of l1.bias sgd, this job adam"));
}

TEST_F(SessionLoop, EndsWithTheLossWhenAnotherRankIsGoneBetweenTwoCalls) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  const auto results =
      run(2, options({"train.epochs=1000"}), [](Blocking& blocking, Session& session, std::uint32_t rank) {
        for (int step = 0; session.next(blocking); ++step) {
          if (rank == 1 && step == 3) return RunResult{};  // its session ends unfinished
          session.step(blocking);                          // nothing is not looked at: next() must tell
        }
        return session.finish(blocking);
      });
  EXPECT_EQ(results[0].status.code(), Code::peer_lost) << results[0].status.text();
}

TEST_F(SessionLoop, EndsWithAReasonWhateverTheAppsModelThrows) {
  Asked asked;
  SessionOptions own = options();
  own.model = counting_model(asked);
  own.model->step = [](const BatchView&, const std::vector<SessionTensor>&) -> StepSums { throw 42; };
  const auto results = run(1, own, run_to_the_end);
  EXPECT_EQ(results[0].status.code(), Code::device_fault);
  EXPECT_THAT(std::string{results[0].status.text()}, ::testing::HasSubstr("the app's model"));
}

TEST_F(SessionLoop, RefusesASwitchAtOnceWhenTheRunIsOver) {
  run(1, options({"train.steps=3"}), [](Blocking& blocking, Session& session, std::uint32_t) {
    RunResult result = session.run(blocking);
    Code code = Code::ok;
    try {
      session.switch_policy(blocking, {}, "of a test", Deadline::after(10s));
    } catch (const Error& error) {
      code = error.code();
    }
    EXPECT_EQ(code, Code::aborted);  // timeout: it waited for an answer that nobody could give
    return result;
  });
}

TEST_F(SessionLoop, MayBeginLongAfterItsStart) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  std::atomic<int> late{0};
  const auto results = run(2, options({"train.steps=3", "faults.start_s=0.5"}),
                           [&](Blocking& blocking, Session& session, std::uint32_t rank) {
                             // The time to join begins with the first call.
                             const Deadline start_has_passed = Deadline::after(std::chrono::milliseconds{700});
                             while (!start_has_passed.passed()) std::this_thread::yield();
                             for (++late; late < 2;) std::this_thread::yield();
                             return step_to_the_end(blocking, session, rank);
                           });
  for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
}

TEST_F(SessionLoop, MayBeGivenUpInTheMiddle) {
  const auto results = run(1, options(), [](Blocking& blocking, Session& session, std::uint32_t) {
    EXPECT_TRUE(session.next(blocking).has_value());
    EXPECT_TRUE(session.step(blocking).has_value());
    EXPECT_TRUE(session.next(blocking).has_value());
    return RunResult{};
  });
  EXPECT_TRUE(results[0].status.ok());
}

TEST_F(SessionLoop, SharesAProcessWithAnotherSession) {
  const RunResult alone = run(1, options(), run_to_the_end)[0];
  std::vector<RunResult> both(2);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < both.size(); ++i)
    threads.emplace_back(
        [&, i] { both[i] = run(1, options(), i == 0 ? Rank{run_to_the_end} : Rank{step_to_the_end})[0]; });
  for (std::thread& thread : threads) thread.join();
  for (const RunResult& result : both) {
    EXPECT_TRUE(result.status.ok()) << result.status.text();
    EXPECT_EQ(result.parameters_hash, alone.parameters_hash);
  }
}

}  // namespace
}  // namespace troupe::testing
