// Sessions under policies whose stripes shards host: asynchronous updates, bounded staleness, elastic averaging.

#include <atomic>
#include <filesystem>

#include "runtime/base/random.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/data/idx.hpp"
#include "tests/cluster/session_threads.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

class HostedSession : public SessionThreads {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  }
  SessionOptions shared(std::vector<std::string> settings) const {
    settings.emplace_back("placement.cores=0");  // more ranks than cores
    return options(std::move(settings));
  }
  std::vector<RunResult> run_all(std::uint32_t ranks, const std::vector<std::string>& settings) const {
    auto results = run(ranks, shared(settings), run_to_the_end);
    for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
    return results;
  }

  /// Makes the job's training set one of 61 samples.
  void write_few_samples() const {
    constexpr std::uint32_t kSamples = 61, kSide = 28;
    std::vector<std::uint8_t> images(std::size_t{kSamples} * kSide * kSide), labels(kSamples);
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<std::uint8_t>(random_below(1, i, 256));
    for (std::uint32_t i = 0; i < kSamples; ++i) labels[i] = static_cast<std::uint8_t>(i % 10);
    const std::filesystem::path data = folder_.path() / "data";
    write_idx(data / "train-images-idx3-ubyte", {IdxKind::images, kSamples, kSide, kSide}, images);
    write_idx(data / "train-labels-idx1-ubyte", {IdxKind::labels, kSamples}, labels);
  }

  /// Three ranks take so many steps, count every sample, and end with weights of the same bits.
  void expect_equal_weights(std::vector<std::string> settings, std::uint64_t steps) const {
    settings.push_back(text("train.steps=", steps));
    std::vector<std::vector<float>> weights(3);
    const auto results = run(3, shared(settings), [&](Blocking& blocking, Session& session, std::uint32_t rank) {
      RunResult result = session.run(blocking);
      for (const SessionTensor& tensor : session.tensors())
        weights[rank].insert(weights[rank].end(), tensor.parameters.begin(), tensor.parameters.end());
      return result;
    });
    for (std::size_t r = 0; r < results.size(); ++r) {
      EXPECT_TRUE(results[r].status.ok()) << results[r].status.text();
      EXPECT_EQ(results[r].total.steps, steps);
      EXPECT_EQ(weights[r], weights[0]);
    }
    EXPECT_EQ(results[0].total.samples, steps * 3 * 20);
  }
};

TEST_F(HostedSession, WithoutStalenessEndsWithTheBitsOfSync) {
  for (const std::uint32_t ranks : {1u, 2u, 3u}) {
    for (const bool falls : {false, true}) {
      std::vector<std::string> settings{"train.epochs=2"};
      if (falls)
        settings.insert(settings.end(), {"optimizer.rate.schedule=\"exponential\"", "optimizer.rate.factor=0.5",
                                         "optimizer.rate.every_samples=100"});
      const auto sync = run_all(ranks, settings);
      settings.insert(settings.end(), {"update.policy=\"ssp\"", "update.staleness=0"});
      const auto ssp = run_all(ranks, settings);
      ASSERT_EQ(ssp[0].epochs.size(), sync[0].epochs.size());
      EXPECT_EQ(ssp[0].parameters_hash, sync[0].parameters_hash) << ranks << " ranks";
      for (std::size_t e = 0; e < sync[0].epochs.size(); ++e) {
        EXPECT_EQ(ssp[0].epochs[e].test_accuracy, sync[0].epochs[e].test_accuracy);
        EXPECT_EQ(ssp[0].epochs[e].samples, sync[0].epochs[e].samples);
      }
    }
  }
}

TEST_F(HostedSession, WithoutStalenessFollowsTheScheduleOfSyncWhereEpochsAreFilledUp) {
  // At three ranks the last step of an epoch of 61 samples takes one sample and, to fill up, two others again.
  write_few_samples();
  std::vector<std::string> settings{"train.epochs=3",
                                    "data.batch=10",
                                    "data.scatter=\"equal\"",
                                    "optimizer.rule=\"sgd\"",
                                    "optimizer.rate.base=0.1",
                                    "optimizer.rate.schedule=\"exponential\"",
                                    "optimizer.rate.factor=0.5",
                                    "optimizer.rate.every_samples=20",
                                    "optimizer.rate.scale=\"linear\""};
  const auto sync = run_all(3, settings);
  settings.insert(settings.end(), {"update.policy=\"ssp\"", "update.staleness=0"});
  EXPECT_EQ(run_all(3, settings)[0].parameters_hash, sync[0].parameters_hash);
}

TEST_F(HostedSession, CountsNoUpdateOfTheRuleForAPushWithoutSamples) {
  write_few_samples();  // the last step of an epoch takes one, at one of three ranks
  run_all(
      3, {"train.epochs=2", "data.batch=10", "data.scatter=\"exact\"", "update.policy=\"async\"",
          "checkpoint.every_steps=100", "update.switch=[{at_step=3, policy=\"sync\"}, {at_step=4, policy=\"async\"}]"});
  const CheckpointStore store((folder_.path() / "run" / "checkpoints").string());
  ASSERT_FALSE(store.list().empty());
  EXPECT_EQ(store.read(store.list().front()).groups.front().updates, (3u + 3 + 1) + 1 + (3 + 1))
      << "three steps of async, one of sync, two of async";
}

TEST_F(HostedSession, EndsWithEverySampleCountedAndTheSameWeightsAtAllRanks) {
  for (const std::string policy : {"async", "ssp", "easgd"}) {
    const std::vector<std::string> settings{"train.steps=37", "update.policy=\"" + policy + "\""};
    std::vector<std::vector<float>> weights(3);
    const auto results = run(3, shared(settings), [&](Blocking& blocking, Session& session, std::uint32_t rank) {
      RunResult result = session.run(blocking);
      weights[rank] = session.parameters();
      return result;
    });
    for (std::size_t r = 0; r < results.size(); ++r) {
      EXPECT_TRUE(results[r].status.ok()) << results[r].status.text();
      EXPECT_EQ(results[r].total.steps, 37u);
      EXPECT_EQ(weights[r], weights[0]) << policy;
    }
    EXPECT_EQ(results[0].total.samples, 37u * 3 * 20) << policy;
  }
}

TEST_F(HostedSession, SwitchesToAndFromThePoliciesThatLendTheirStripes) {
  const std::string switches =
      "update.switch=[{at_step=5, policy=\"async\"}, {at_step=11, policy=\"local_sgd\", every_steps=3}, "
      "{at_step=16, policy=\"easgd\", every_steps=2}, {at_step=21, policy=\"ssp\", staleness=1}, "
      "{at_step=26, policy=\"ssp\", staleness=0}, {at_step=31, policy=\"sync\"}]";
  expect_equal_weights({switches}, 40);
}

TEST_F(HostedSession, AreReplayedBitByBitFromTheirLogs) {
  for (const std::string policy : {"async\"", "ssp\", update.staleness=2", "easgd\", update.every_steps=2"}) {
    SCOPED_TRACE(policy);
    std::vector<std::string> settings{"train.epochs=3"};
    std::string rest = "update.policy=\"" + policy;
    for (std::size_t comma = rest.find(", "); comma != std::string::npos; comma = rest.find(", ")) {
      settings.push_back(rest.substr(0, comma));
      rest = rest.substr(comma + 2);
    }
    settings.push_back(rest);
    const std::string logs = (folder_.path() / ("updates-" + policy.substr(0, policy.find('"')))).string();
    std::vector<std::string> first = settings, again = settings;
    first.push_back("update.log=\"" + logs + "\"");
    again.push_back("update.replay=\"" + logs + "\"");
    const auto run = run_all(3, first);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(logs), {}), 3);
    for (int turn = 0; turn < 3; ++turn) {
      const auto replayed = run_all(3, again);
      EXPECT_EQ(replayed[0].parameters_hash, run[0].parameters_hash);
      ASSERT_EQ(replayed[0].epochs.size(), run[0].epochs.size());
      for (std::size_t e = 0; e < run[0].epochs.size(); ++e)
        EXPECT_EQ(replayed[0].epochs[e].test_accuracy, run[0].epochs[e].test_accuracy);
    }
  }
}

TEST_F(HostedSession, AreReplayedThroughSwitchesFromOnePolicyToAnother) {
  const std::string logs = (folder_.path() / "updates").string();
  const std::vector<std::string> settings{
      "train.steps=50", "update.policy=\"easgd\"", "update.every_steps=1",
      "update.switch=[{at_step=10, policy=\"async\"}, {at_step=20, policy=\"sync\"}, {at_step=25, policy=\"ssp\", "
      "staleness=2}, {at_step=40, policy=\"easgd\", every_steps=2}]"};
  std::vector<std::string> first = settings, again = settings;
  first.push_back("update.log=\"" + logs + "\"");
  again.push_back("update.replay=\"" + logs + "\"");
  const auto run = run_all(3, first);
  for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(run_all(3, again)[0].parameters_hash, run[0].parameters_hash);
}

TEST_F(HostedSession, RefuseALogThatIsThereAndAReplayWithoutLogs) {
  const std::string logs = (folder_.path() / "updates").string();
  const std::vector<std::string> settings{"train.steps=3", "update.policy=\"async\"", "update.log=\"" + logs + "\""};
  run_all(1, settings);
  const auto again = run(1, shared(settings), run_to_the_end);
  EXPECT_EQ(again[0].status.code(), Code::invalid);
  EXPECT_THAT(std::string{again[0].status.text()}, ::testing::HasSubstr("there is a log already"));
  const auto none = run(1, shared({"update.policy=\"async\"", "update.replay=\"" + logs + "/none\""}), run_to_the_end);
  EXPECT_EQ(none[0].status.code(), Code::invalid);
  EXPECT_THAT(std::string{none[0].status.text()}, ::testing::HasSubstr("cannot be read"));
}

/// A sequence of `count` places that goes once from each place to each other one, and back to the first.
std::vector<std::size_t> every_pair(std::size_t count) {
  std::vector<std::size_t> way, open{0};
  std::vector<std::size_t> next(count, 0);  // by place: the neighbours that it has led to
  while (!open.empty()) {
    const std::size_t at = open.back();
    if (next[at] == at) ++next[at];
    if (next[at] < count) {
      open.push_back(next[at]++);
    } else {
      way.push_back(at);
      open.pop_back();
    }
  }
  return {way.rbegin(), way.rend()};
}

TEST_F(HostedSession, SwitchesFromEachPolicyToEachOther) {
  const std::vector<std::string> policies{"sync\"",
                                          "double_buffered\"",
                                          "local_sgd\", every_steps=2",
                                          "model_averaging\", block_samples=100",
                                          "block_momentum\", block_samples=100",
                                          "diloco\", every_steps=2",
                                          "easgd\", every_steps=2",
                                          "async\"",
                                          "ssp\", staleness=1"};
  const std::vector<std::size_t> way = every_pair(policies.size());
  ASSERT_EQ(way.size(), policies.size() * (policies.size() - 1) + 1);
  std::string switches = "update.switch=[";
  for (std::size_t i = 1; i < way.size(); ++i)
    switches += text(i == 1 ? "" : ", ", "{at_step=", i, ", policy=\"", policies[way[i]], "}");
  expect_equal_weights({switches + "]", "optimizer.rate=0.0001", "update.digest_steps=1"}, way.size());
}

TEST_F(HostedSession, EndsForAllAtOneStepWhenOneRankIsAskedToStop) {
  for (const std::string policy : {"async", "ssp", "easgd"}) {
    // If the end waited for a deadline, it would not come within the test's time.
    const auto results =
        run(3, shared({"train.steps=1000000", "faults.exchange_s=600", "update.policy=\"" + policy + "\""}),
            [&](Blocking& blocking, Session& session, std::uint32_t rank) {
              for (std::uint64_t step = 0; session.next(blocking); ++step) {
                if (rank == 1 && step == 10) session.request_stop();
                if (!session.step(blocking)) break;
              }
              return session.finish(blocking);
            });
    for (const RunResult& result : results) {
      EXPECT_TRUE(result.status.ok()) << result.status.text();
      EXPECT_TRUE(result.stopped);
      EXPECT_EQ(result.total.steps, results[0].total.steps) << policy;
      EXPECT_GT(result.total.steps, 10u);
    }
  }
}

TEST_F(HostedSession, GoesOnFromItsCheckpointOnAnyNumberOfRanks) {
  for (const std::string policy : {"async", "ssp", "easgd"}) {
    JobFolder saved;
    const std::vector<std::string> settings{"update.policy=\"" + policy + "\"", "checkpoint.every_steps=4",
                                            "checkpoint.resume=auto",
                                            "checkpoint.dir=\"" + (saved.path() / "ck").string() + "\""};
    std::vector<std::string> first = settings;
    first.emplace_back("train.steps=10");
    const std::uint64_t end = run_all(2, first)[0].parameters_hash;
    for (const std::uint32_t ranks : {1u, 2u, 3u}) {
      const auto loaded = run_all(ranks, first);  // nothing is left to train
      EXPECT_EQ(loaded[0].parameters_hash, end) << policy << " on " << ranks << " ranks";
    }
    std::vector<std::string> more = settings;
    more.emplace_back("train.steps=20");
    const auto gone_on = run_all(3, more);
    EXPECT_EQ(gone_on[0].total.steps, 20u);
    EXPECT_EQ(gone_on[0].saved_steps, 20u);
    EXPECT_NE(gone_on[0].parameters_hash, end);
  }
}

TEST_F(HostedSession, WithoutStalenessGoesOnFromItsCheckpointWithTheSameBits) {
  JobFolder saved;
  std::vector<std::string> settings{"update.policy=\"ssp\"", "update.staleness=0", "train.steps=20"};
  const std::uint64_t whole = run_all(2, settings)[0].parameters_hash;
  settings.insert(settings.end(), {"checkpoint.every_steps=4", "checkpoint.resume=auto",
                                   "checkpoint.dir=\"" + (saved.path() / "ck").string() + "\""});
  settings[2] = "train.steps=10";
  run_all(2, settings);
  settings[2] = "train.steps=20";
  const auto gone_on = run_all(2, settings);
  EXPECT_EQ(gone_on[0].total.samples, 10u * 2 * 20) << "it did not go on";
  EXPECT_EQ(gone_on[0].parameters_hash, whole);
}

}  // namespace
}  // namespace troupe::testing
