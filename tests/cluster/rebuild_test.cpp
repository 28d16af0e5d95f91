// Sessions whose views are retired and replaced during the run: the result is that of an uninterrupted run.

#include <gmock/gmock.h>

#include <atomic>
#include <map>

#include "tests/cluster/session_threads.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

using Settings = std::vector<std::string>;
using ::testing::HasSubstr;

/// The notifications that rank 0 gets about a run.
class Told final : public SessionListener {
 public:
  void note(const std::string& text) override { notes += text + '\n'; }
  void started(const Plan&, const std::string&, const DataPlace&) override { ++starts; }
  void step(Step step, const StepSums& total) override {
    steps.push_back(step.value);
    if (total.samples != 0) losses[step.value] = total.loss / static_cast<double>(total.samples);
    samples += total.samples;
  }

  std::vector<std::uint64_t> steps;
  std::map<std::uint64_t, double> losses;
  std::uint64_t samples = 0;
  std::string notes;
  int starts = 0;
};

struct Ran {
  std::vector<RunResult> results;  // by rank
  Told told;
  std::vector<Rebuilt> rebuilt;
};

class RebuildSessions : public SessionThreads {
 protected:
  static constexpr std::uint32_t kRanks = 2;
  static constexpr std::size_t kRebuilds = 8;
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which ranks talk";
  }

  /// Trains to the end; meanwhile rank 0 asks for `rebuilds` new views, one when the one before stands.
  Ran train(Settings settings, std::size_t rebuilds) const {
    settings.insert(settings.end(), {"placement.cores=0", "faults.dead_ms=20000"});
    Ran ran;
    const SessionOptions common = options(settings);
    ran.results = run_sessions(
        kRanks,
        [&](std::uint32_t rank) {
          SessionOptions own = common;
          own.every_step = true;
          if (rank == 0) own.listener = &ran.told;
          return own;
        },
        [&](Blocking& blocking, Session& session, std::uint32_t rank) {
          if (rank != 0) return session.run(blocking);
          std::thread asks{[&] {
            Blocking waits = Blocking::on_thread("asks");
            for (std::size_t i = 0; i < rebuilds; ++i) {
              try {
                ran.rebuilt.push_back(session.rebuild(waits, "a test", Deadline::after(60s)));
              } catch (const Error& error) {
                ADD_FAILURE() << "rebuild " << i << ": " << error.what();
                return;
              }
            }
          }};
          RunResult result = session.run(blocking);
          asks.join();
          return result;
        });
    for (const RunResult& result : ran.results) EXPECT_TRUE(result.status.ok()) << result.status.text();
    return ran;
  }
};

struct Case {
  const char* name;
  Settings settings;
  std::uint64_t steps = 3000;
};
void PrintTo(const Case& given, std::ostream* out) { *out << given.name; }

const Settings kMomentum{"optimizer.rule=momentum", "optimizer.rate=0.02", "optimizer.momentum=0.9"};
const Settings kAdam{"optimizer.rule=adam", "optimizer.rate=0.001"};

Settings with(const Settings& rule, Settings more) {
  more.insert(more.begin(), rule.begin(), rule.end());
  return more;
}

const std::vector<Case> kCases{
    {"sync", with(kAdam, {})},
    {"bf16", with(kAdam, {"model.dtype=\"bf16\""})},
    {"accumulate", with(kAdam, {"update.accumulate=3"})},
    {"double_buffered", with(kAdam, {"update.policy=double_buffered"})},
    {"local_sgd", with(kAdam, {"update.policy=local_sgd", "update.every_steps=4"})},
    {"block_momentum", with(kMomentum, {"update.policy=block_momentum", "update.block_samples=480"})},
    {"diloco", with(kMomentum, {"update.policy=diloco", "update.every_steps=4"})},
    {"ssp_without_staleness", with(kAdam, {"update.policy=ssp", "update.staleness=0"})},
    {"switch", with(kMomentum, {"update.policy=local_sgd", "update.every_steps=4",
                                "update.switch=[{ at_step = 60, policy = \"diloco\", every_steps = 6 }, "
                                "{ at_step = 1200, policy = \"sync\" }]"})},
    {"one_loader_a_node", with(kAdam, {"data.loader=node", "data.scatter=exact", "data.batch=30"})},
    {"saved_on_the_way", with(kAdam, {"checkpoint.every_steps=70", "checkpoint.keep_best=true"})},
    {"patience", with(kAdam, {"evaluate.patience=50"}), 1500},
    {"rate_falls", with(kAdam, {"optimizer.rate.schedule=\"cosine\""})},
};

class RebuildOf : public RebuildSessions, public ::testing::WithParamInterface<Case> {};

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Runs, RebuildOf, ::testing::ValuesIn(kCases), name_of_case);

TEST_P(RebuildOf, GivesTheBitsAndTheReportOfTheRunWithoutIt) {
  const Settings settings = with(GetParam().settings, {text("train.steps=", GetParam().steps)});
  const Ran plain = train(settings, 0);
  std::filesystem::remove_all(folder_.path() / "run");
  const Ran rebuilt = train(settings, kRebuilds);

  ASSERT_EQ(rebuilt.rebuilt.size(), kRebuilds);
  for (std::size_t i = 0; i < kRebuilds; ++i) {
    EXPECT_EQ(rebuilt.rebuilt[i].view, i + 2);
    EXPECT_THAT(rebuilt.told.notes, HasSubstr(to_string(rebuilt.rebuilt[i]) + " (a test)"));
    if (i != 0) {
      EXPECT_GT(rebuilt.rebuilt[i].step, rebuilt.rebuilt[i - 1].step);
    }
  }
  EXPECT_EQ(rebuilt.told.starts, 1);
  EXPECT_EQ(rebuilt.results[0].parameters_hash, plain.results[0].parameters_hash);
  EXPECT_EQ(rebuilt.told.steps, plain.told.steps) << "each step once, in order";
  EXPECT_EQ(rebuilt.told.samples, plain.told.samples);
  EXPECT_EQ(rebuilt.told.losses, plain.told.losses);
  EXPECT_EQ(rebuilt.results[0].total.samples, plain.results[0].total.samples);
  ASSERT_EQ(rebuilt.results[0].epochs.size(), plain.results[0].epochs.size());
  for (std::size_t e = 0; e < plain.results[0].epochs.size(); ++e) {
    const EpochReport& now = rebuilt.results[0].epochs[e];
    const EpochReport& then = plain.results[0].epochs[e];
    EXPECT_EQ(now.epoch, then.epoch);
    EXPECT_EQ(now.steps, then.steps);
    EXPECT_EQ(now.samples, then.samples);
    EXPECT_EQ(now.loss, then.loss);
    EXPECT_EQ(now.test_loss, then.test_loss);
    EXPECT_EQ(now.rate, then.rate);
  }
}

TEST_F(RebuildSessions, OfPoliciesWithoutAnOrderLosesNoSample) {
  for (const char* policy : {"async", "ssp", "easgd"}) {
    const Ran ran = train({text("update.policy=", policy), "train.steps=3000", "optimizer.rule=sgd"}, kRebuilds);
    EXPECT_EQ(ran.rebuilt.size(), kRebuilds) << policy;
    EXPECT_EQ(ran.results[0].total.steps, 3000u);
    EXPECT_EQ(ran.results[0].total.samples, 3000u * 2 * 20) << policy;
    std::filesystem::remove_all(folder_.path() / "run");
  }
}

TEST_F(RebuildSessions, WithMeasuredSharesLosesNoSample) {
  const Ran ran = train({"placement.split=measured", "train.deterministic=false", "train.steps=6000"}, kRebuilds);
  EXPECT_EQ(ran.rebuilt.size(), kRebuilds);
  EXPECT_EQ(ran.results[0].total.samples, 6000u * 2 * 20);
}

TEST_F(RebuildSessions, StopsWhereverItIsAskedTo) {
  for (const char* policy : {"sync", "local_sgd", "ssp"}) {
    std::atomic<bool> ended{false};
    const auto results =
        run(kRanks, options({"placement.cores=0", "train.epochs=100000", text("update.policy=", policy)}),
            [&](Blocking& blocking, Session& session, std::uint32_t rank) {
              if (rank != 0) return session.run(blocking);
              std::thread asks{[&] {
                Blocking waits = Blocking::on_thread("asks");
                for (int i = 0; !ended; ++i) {
                  if (i == 3) session.request_stop();
                  try {
                    (void)session.rebuild(waits, "a test", Deadline::after(60s));
                  } catch (const Error&) {  // the run ends
                  }
                }
              }};
              RunResult result = session.run(blocking);
              ended = true;
              asks.join();
              return result;
            });
    for (const RunResult& result : results) {
      EXPECT_TRUE(result.status.ok()) << policy << ": " << result.status.text();
      EXPECT_TRUE(result.stopped) << policy;
    }
    EXPECT_EQ(results[0].total.steps, results[1].total.steps) << policy;
  }
}

/// The result of rebuild() at rank 0 while the ranks of `settings` execute `rank`.
class RefusedRebuild : public RebuildSessions {
 protected:
  std::string refusal(Settings settings, const Rank& rank) const {
    settings.emplace_back("placement.cores=0");
    std::string why;
    const auto results =
        run(kRanks, options(settings), [&](Blocking& blocking, Session& session, std::uint32_t number) {
          if (number != 0) return rank(blocking, session, number);
          std::thread asks{[&] {
            Blocking waits = Blocking::on_thread("asks");
            try {
              (void)session.rebuild(waits, "a test", Deadline::after(60s));
            } catch (const Error& error) {
              why = error.what();
            }
            session.request_stop();
          }};
          RunResult result = rank(blocking, session, number);
          asks.join();
          return result;
        });
    for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
    return why;
  }
};

TEST_F(RefusedRebuild, WhereAnAppOwnsTheLoop) {
  EXPECT_THAT(refusal({"train.epochs=100000"},
                      [](Blocking& blocking, Session& session, std::uint32_t) {
                        while (session.next(blocking)) session.step(blocking);
                        return session.finish(blocking);
                      }),
              HasSubstr("the app owns the loop"));
}

TEST_F(RefusedRebuild, WhereAnAppHoldsTheTensors) {
  EXPECT_THAT(refusal({"train.epochs=100000"},
                      [](Blocking& blocking, Session& session, std::uint32_t rank) {
                        if (rank == 1) (void)session.tensors();
                        return session.run(blocking);
                      }),
              HasSubstr("rank 1 on node "));
}

TEST_F(RefusedRebuild, WhereTheUpdatesAreLogged) {
  EXPECT_THAT(refusal({"train.epochs=100000", "update.policy=async",
                       "update.log=\"" + (folder_.path() / "run/updates").string() + '"'},
                      run_to_the_end),
              HasSubstr("update.log"));
}

TEST_F(RefusedRebuild, AtOtherRanksThanTheFirst) {
  const auto results = run(kRanks, options({"placement.cores=0", "train.steps=50"}),
                           [&](Blocking& blocking, Session& session, std::uint32_t rank) {
                             if (rank == 1) try {
                                 (void)session.rebuild(blocking, "a test", Deadline::after(1s));
                                 ADD_FAILURE() << "it was not refused";
                               } catch (const Error& error) {
                                 EXPECT_THAT(error.what(), HasSubstr("ask rank 0"));
                               }
                             return session.run(blocking);
                           });
  for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
}

}  // namespace
}  // namespace troupe::testing
