// `rtrun control` and a run of two processes.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/topology/machine_json.hpp"
#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

class ControlJob : public ClusterTest {
 protected:
  /// A job with memory for local_sgd, whose turn never comes by itself.
  std::vector<std::string> endless() const {
    auto arguments = JobFolder::endless();
    arguments.insert(
        arguments.end(),
        {"--set", "update.switch=[{ at_step = 1000000000, policy = \"local_sgd\", every_steps = 4 }]", "--set",
         "update.digest_steps=1"});  // all ranks' weights are compared before and after each switch
    return arguments;
  }
  struct Asked {
    int code = 0;
    std::string out;
    std::string err;
  };
  Asked ask(std::vector<std::string> words) const {
    ProgramStart start = folder_.rtrun();
    start.arguments = {start.arguments[0], "control", "run"};
    start.arguments.insert(start.arguments.end(), words.begin(), words.end());
    Program control{start};
    const int code = control.wait(30s);
    return {code, control.out(), control.err()};
  }
  std::string log() const {
    std::ifstream file{folder_.path() / "run/log"};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
};

TEST_F(ControlJob, SwitchesThePolicyOfARunThatGoesOnAndThenEndsIt) {
  Program rtrun{folder_.rtrun(endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  for (const std::string policy : {"local_sgd", "sync"}) {
    const Asked switched = ask({"switch", policy});
    EXPECT_EQ(switched.code, 0) << switched.err;
    EXPECT_NE(switched.out.find("from step "), std::string::npos) << switched.out;
    EXPECT_NE(switched.out.find(policy + ": "), std::string::npos) << switched.out;
    const auto told = [&](const Program& p) { return p.err().find("): " + policy + ": ") != std::string::npos; };
    ASSERT_TRUE(rtrun.wait_until(told, 30s)) << rtrun.err();
  }
  EXPECT_NE(rtrun.err().find("(asked for by rtrun control)"), std::string::npos) << rtrun.err();
  ASSERT_TRUE(
      becomes_true([&] { return log().find("\"reason\": \"asked for by rtrun control\"") != std::string::npos; }, 30s))
      << log();
  const Asked described = ask({"describe"});
  EXPECT_NE(described.out.find("rank 0 of 2"), std::string::npos) << described.out << described.err;
  const Asked machines = ask({"machines"});
  EXPECT_EQ(machines.code, 0) << machines.err;
  EXPECT_EQ(machines.out.rfind(R"({"schema":"troupe.cluster","version":1,"machines":[{"count":1,"source":"rank 0")", 0),
            0u)
      << machines.out.substr(0, 200);
  EXPECT_NE(machines.out.find("\"schema\":\"troupe.topology\""), std::string::npos);
  EXPECT_EQ(ask({"stop"}).code, 0);
  EXPECT_EQ(rtrun.wait(20s), 0) << rtrun.err();
  EXPECT_NE(rtrun.out().find("Stopped after"), std::string::npos) << rtrun.out();
  EXPECT_EQ(rtrun.err().find("error"), std::string::npos) << rtrun.err();
}

TEST_F(ControlJob, TellsWhereRanksAreWhatTheirStepsTakeAndHowClocksDiffer) {
  Program rtrun{folder_.rtrun(endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  topology::Machine machine;
  const auto knows_steps = [&] {
    const Asked asked = ask({"machines"});
    const auto all = nlohmann::json::parse(asked.out, nullptr, /*allow_exceptions=*/false);
    if (asked.code != 0 || !all.is_object()) return false;
    machine = topology::machine_from_json(all["machines"].at(0)["machine"].dump(), "the run");
    const auto steps = std::ranges::count_if(machine.ranks, [](const auto& rank) { return rank.steps.has_value(); });
    return steps == 2;  // ranks of other jobs may be there, too
  };
  ASSERT_TRUE(becomes_true(knows_steps, 60s)) << ask({"machines"}).out.substr(0, 2000);
  for (const topology::RankPlace& rank : machine.ranks) {
    if (!rank.steps) continue;
    EXPECT_GT(rank.steps->steps, 0u);
    EXPECT_GT(rank.steps->compute_ms, 0);
    ASSERT_TRUE(rank.placement) << rank.rank;
    EXPECT_FALSE(rank.placement->threads.empty());
    EXPECT_FALSE(rank.cpus.empty()) << "the same entry as /proc's";
  }
  // Both processes read one clock, so it is at most as far away as a reading may err.
  ASSERT_TRUE(machine.system.clock_ahead_ms);
  EXPECT_LE(std::abs(*machine.system.clock_ahead_ms), machine.system.clock_within_ms);
  EXPECT_GT(machine.system.clock_within_ms, 0);
  EXPECT_EQ(ask({"stop"}).code, 0);
  EXPECT_EQ(rtrun.wait(20s), 0) << rtrun.err();
}

TEST_F(ControlJob, RefusesAPolicyWithoutMemoryAndTrainsOn) {
  Program rtrun{folder_.rtrun(endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const Asked refused = ask({"switch", "diloco"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("rank 0 on node "), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("name the policy in update.switch"), std::string::npos) << refused.err;
  EXPECT_EQ(ask({"switch", "local_sgd", "every_step=4"}).code, 2);
  EXPECT_EQ(ask({"stop"}).code, 0);
  EXPECT_EQ(rtrun.wait(20s), 0) << rtrun.err();
}

TEST_F(ControlJob, SwitchesToAPolicyWhoseNumbersWereLeftOutAndAnswersWithThem) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "update.digest_steps=1", "--set",
                                     "update.switch=[{ at_step = 1000000000, policy = \"diloco\" }]"});
  Program rtrun{folder_.rtrun(arguments)};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const std::pair<std::vector<std::string>, std::string> switches[] = {
      {{"switch", "block_momentum", "block_samples=500"}, "momentum=0.5"},
      {{"switch", "diloco", "every_steps=4"}, "momentum=0.9"},
      {{"switch", "block_momentum", "block_samples=500", "time_constant=1000"}, "block_momentum: "}};
  for (const auto& [words, numbers] : switches) {
    const Asked switched = ask(words);
    ASSERT_EQ(switched.code, 0) << switched.err;
    EXPECT_NE(switched.out.find(numbers), std::string::npos) << switched.out;
    // The note of the switch says the same.
    const std::string policy = switched.out.substr(switched.out.find(" on: ") + 5);
    const auto told = [&](const Program& p) {
      return p.err().find(policy.substr(0, policy.find('\n'))) != p.err().npos;
    };
    ASSERT_TRUE(rtrun.wait_until(told, 30s)) << switched.out << rtrun.err();
  }
  EXPECT_EQ(ask({"stop"}).code, 0);
  EXPECT_EQ(rtrun.wait(30s), 0) << rtrun.err();
  EXPECT_EQ(rtrun.err().find("not finite"), std::string::npos) << rtrun.err();
}

TEST_F(ControlJob, LogsTheLearningRateOfThePolicyThatWasAskedFor) {
  auto arguments = endless();
  arguments.insert(arguments.end(),
                   {"--set", "optimizer.rate={ base = 0.001, schedule = \"constant\", scale = \"linear\" }"});
  Program rtrun{folder_.rtrun(arguments)};
  // An update has the samples of two ranks, then those of four steps of two ranks.
  const auto is_logged = [&](double rate) {
    const auto lines = nlohmann::json::parse(log(), nullptr, /*allow_exceptions=*/false);
    return lines.is_array() && !lines.empty() && std::abs(lines.back().value("lr", 0.0) - rate) < 1e-9;
  };
  ASSERT_TRUE(becomes_true([&] { return is_logged(0.002); }, 30s)) << log() << rtrun.err();
  const Asked switched = ask({"switch", "sync", "accumulate=4"});
  ASSERT_EQ(switched.code, 0) << switched.err;
  EXPECT_TRUE(becomes_true([&] { return is_logged(0.008); }, 30s)) << log();
  // Also after a rebuild, which goes on with that policy.
  const Asked rebuilt = ask({"rebuild"});
  ASSERT_EQ(rebuilt.code, 0) << rebuilt.err;
  std::size_t lines = 0;  // the log is written meanwhile, and may be read in the middle of that
  const auto has_more_than = [&](std::size_t before) {
    const auto now = nlohmann::json::parse(log(), nullptr, /*allow_exceptions=*/false);
    if (now.is_array()) lines = now.size();
    return now.is_array() && lines > before;
  };
  ASSERT_TRUE(becomes_true([&] { return has_more_than(0); }, 30s)) << log();
  const std::size_t before = lines + 1;
  ASSERT_TRUE(becomes_true([&] { return has_more_than(before); }, 30s)) << log();
  EXPECT_TRUE(becomes_true([&] { return is_logged(0.008); }, 30s)) << log();
  EXPECT_EQ(ask({"stop"}).code, 0);
  EXPECT_EQ(rtrun.wait(30s), 0) << rtrun.err();
}

TEST_F(ControlJob, SwitchesAsQuicklyAsItIsAskedBetweenHostedPoliciesAndStopsAmidThat) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "update.policy=\"ssp\"", "--set",
                                     "update.switch=[{ at_step = 1000000000, policy = \"async\" }]"});
  const auto start = [&](const std::vector<std::string>& words) {
    ProgramStart control = folder_.rtrun();
    control.arguments = {control.arguments[0], "control", "run"};
    control.arguments.insert(control.arguments.end(), words.begin(), words.end());
    return std::make_unique<Program>(control);
  };
  for (int round = 0; round < 3; ++round) {
    Program rtrun{folder_.rtrun(arguments)};
    ASSERT_TRUE(becomes_true([&] { return ask({"describe"}).code == 0; }, 30s)) << rtrun.out() << rtrun.err();
    for (int batch = 0; batch < 4; ++batch) {
      std::vector<std::unique_ptr<Program>> asked;
      for (const std::string policy : {"async", "ssp", "async", "ssp"}) asked.push_back(start({"switch", policy}));
      for (const auto& one : asked) ASSERT_EQ(one->wait(60s), 0) << one->err() << rtrun.err();
    }
    const auto first = start({"switch", "async"});
    const auto second = start({"switch", "ssp"});
    const auto stop = start({"stop"});
    const auto third = start({"switch", "async"});
    EXPECT_EQ(stop->wait(60s), 0) << stop->err();
    ASSERT_EQ(rtrun.wait(60s), 0) << "round " << round << ": " << rtrun.err();
    EXPECT_EQ(rtrun.err().find("error"), std::string::npos) << rtrun.err();
    for (const auto* one : {&first, &second, &third}) (*one)->wait(10s);  // refused, if the end came before
  }
}

TEST_F(ControlJob, SaysThatNoRunIsThere) {
  std::filesystem::create_directory(folder_.path() / "run");
  const Asked asked = ask({"stop"});
  EXPECT_EQ(asked.code, 3);
  EXPECT_NE(asked.err.find("no run that writes into run"), std::string::npos) << asked.err;
}

TEST_F(ControlJob, SwitchesByItselfOnceAStragglerHoldsTheOthersUp) {
  // Two ranks of one speed: any ratio above 1 is a straggler's, sooner or later.
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(),
                   {"--set", "update.switch=[{ at_straggler = 1.0001, policy = \"local_sgd\", every_steps = 4 }]"});
  Program rtrun{folder_.rtrun(arguments)};
  const auto told = [](const Program& p) { return p.err().find("(a straggler takes ") != std::string::npos; };
  EXPECT_TRUE(rtrun.wait_until(told, 60s)) << rtrun.out() << rtrun.err();
  EXPECT_EQ(ask({"stop"}).code, 0);
  EXPECT_EQ(rtrun.wait(20s), 0) << rtrun.err();
}

}  // namespace
}  // namespace troupe::testing
