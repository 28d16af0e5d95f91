// Jobs of rtrun whose ranks exchange over NCCL: they learn what other jobs learn, to the last bit, and end as others
// do.

#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "tests/cluster/cuda_job.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NcclJob : public CudaJob {
 protected:
  void TearDown() override {
    std::filesystem::remove_all(folder_.path() / "run" / "driver");
    CudaJob::TearDown();
  }

  static ProgramStart with_variable(ProgramStart start, const char* variable, const std::string& value) {
    std::erase_if(start.environment, [&](const auto& one) { return one.first == variable; });
    start.environment.emplace_back(variable, value);
    return start;
  }
  static Settings with(const char* collectives, Settings settings) {
    settings.emplace_back(collectives);
    return on("cuda", std::move(settings));
  }
  static Settings endless() { return {"train.epochs=100000", "data.batch=20", "evaluate.every_epochs=0", kNccl}; }

  /// Ranks with a GPU each.
  void expect_bits_of_own(std::uint32_t ranks, const Settings& settings) {
    std::string all;
    for (const std::string& setting : settings) all += ' ' + setting;
    SCOPED_TRACE(std::to_string(ranks) + " ranks" + all);
    const std::vector<double> wanted = train(job(ranks, ranks, with(kOwn, settings)));
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(train(job(ranks, ranks, with(kNccl, settings))), wanted);
  }
  /// A run that ends after half its steps and goes on from its checkpoint, with `collectives` or with our own, has the
  /// last loss of a run at once. `run` trains with collectives and settings and returns the losses.
  void expect_to_go_on(const char* collectives,
                       const std::function<std::vector<double>(const char*, const Settings&)>& run) {
    const auto run_to = [&](const char* means, const char* steps, const char* resume) {
      return run(means, {"evaluate.every_epochs=0", "checkpoint.every_steps=8", steps, resume});
    };
    const std::vector<double> at_once = run_to(collectives, "train.steps=16", "checkpoint.resume=never");
    ASSERT_FALSE(at_once.empty());
    for (const char* const second : {collectives, kOwn}) {
      std::filesystem::remove_all(folder_.path() / "run" / "checkpoints");
      (void)run_to(collectives, "train.steps=8", "checkpoint.resume=never");
      const std::vector<double> again = run_to(second, "train.steps=16", "checkpoint.resume=auto");
      ASSERT_FALSE(again.empty());
      EXPECT_EQ(again.back(), at_once.back());
    }
  }
  /// The losses of ranks with a GPU each, the first half of them on one node and the others on another.
  std::vector<double> losses_on(const NamespaceCluster& nodes, std::uint32_t ranks, const char* collectives,
                                Settings settings) {
    settings.insert(settings.begin(), "train.epochs=1");
    (void)run_ranks(std::vector<ProgramStart>(ranks, job(ranks, ranks, with(collectives, std::move(settings)))),
                    &nodes);
    return losses();
  }
  /// What rtrun prints, if it ends well, when it is called with this word.
  std::string told(const char* word, ProgramStart start) {
    start.arguments.insert(start.arguments.begin() + 1, word);
    Program rtrun{start};
    EXPECT_EQ(rtrun.wait(30s), 0) << rtrun.err();
    return rtrun.out();
  }
  /// With a driver from a folder whose NCCL is no library. The system may have another one, which is not looked for
  /// then.
  ProgramStart without_nccl(const ProgramStart& start) {
    const auto folder = folder_.path() / "run" / "driver";
    std::filesystem::create_directories(folder);
    std::filesystem::create_symlink(std::filesystem::path{CUDA_HOST_FOLDER} / "libcuda.so.1", folder / "libcuda.so.1");
    std::ofstream{folder / "libnccl.so.2"} << "this is no library\n";
    return with_variable(start, "LD_LIBRARY_PATH", folder.string());
  }
};

TEST_F(NcclJob, LearnsToTheLastBitWhatSharedMemoryLearns) {
  expect_bits_of_own(2, {});
  expect_bits_of_own(4, {"train.epochs=1"});
}

TEST_F(NcclJob, LearnsTheSameUnderOtherPoliciesRulesAndTypes) {
  for (Settings settings : std::vector<Settings>{
           {"update.policy=block_momentum", "update.block_samples=480"},
           {"update.policy=local_sgd", "update.every_steps=4", "optimizer.rule=adam", "optimizer.rate=0.001"},
           {"update.policy=double_buffered"},
           {"optimizer.rule=lamb", "optimizer.rate=0.001", "optimizer.clip_norm=1", "update.digest_steps=5"},
           {"model.dtype=bf16",
            "update.group=[{name=\"first\",match=[\"l1.*\"],policy=\"local_sgd\",every_steps=3}]"}}) {
    settings.emplace_back("train.epochs=1");
    expect_bits_of_own(2, settings);
  }
}

/// Buckets are exchanged beside the backward pass of the layers before them, which the stand-in's search for races
/// follows.
TEST_F(NcclJob, WithSeveralBucketsLearnsWhatSharedMemoryLearns) {
  const Settings settings{"model.units=[600, 600]", "train.steps=8", "evaluate.every_epochs=0"};
  EXPECT_THAT(told("plan", job(2, 2, with(kNccl, settings))), HasSubstr("2 buckets of 1."));
  expect_bits_of_own(2, settings);
  for (const char* const rule : {"optimizer.clip_norm=1", "update.policy=double_buffered"}) {
    Settings all = settings;
    all.emplace_back(rule);
    expect_bits_of_own(2, all);
  }
}

TEST_F(NcclJob, ShowsItsExchangeBesideTheBackwardPass) {
  const std::filesystem::path file = folder_.path() / "trace.json";
  Program rtrun{job(2, 2,
                    with(kNccl, {"model.units=[600, 600]", "train.steps=8", "evaluate.every_epochs=0",
                                 "report.trace=\"" + file.string() + '"'}))};
  EXPECT_EQ(rtrun.wait(90s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("the exchange over NCCL took "));
  EXPECT_THAT(rtrun.err(), HasSubstr(" of it beside forward and backward passes"));
  std::ifstream in{file};
  std::map<std::pair<int, int>, std::string> rows;
  std::set<std::string> beside, compute;
  const nlohmann::json events = nlohmann::json::parse(in, nullptr, false);
  for (const auto& event : events)
    if (event.value("name", "") == "thread_name")
      rows[{event.at("pid"), event.at("tid")}] = event.at("args").at("name").get<std::string>();
  for (const auto& event : events) {
    if (event.value("ph", "") != "X") continue;
    const std::string& row = rows[{event.at("pid"), event.at("tid")}];
    if (row == "exchange's stream") beside.insert(event.at("name").get<std::string>());
    if (row == "compute stream") compute.insert(event.at("name").get<std::string>());
  }
  for (const char* const name : {"collective, step 5, bucket 0", "collective, step 5, bucket 1"}) {
    EXPECT_TRUE(beside.contains(name)) << name;
    EXPECT_FALSE(compute.contains(name)) << name;
  }
  EXPECT_TRUE(compute.contains("wait for exchange, step 5")) << "the last bucket's exchange comes behind all layers";
  std::filesystem::remove(file);
}

TEST_F(NcclJob, SwitchesItsPolicyInARun) {
  expect_bits_of_own(2, {"update.switch=[{ at_step = 10, policy = \"local_sgd\", every_steps = 3 }, { at_step = 20, "
                         "policy = \"sync\" }]"});
}

TEST_F(NcclJob, OfSeveralNodesLearnsWhatOtherMeansLearn) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  const auto on_nodes = [&](std::uint32_t ranks, const char* collectives, Settings settings) {
    return losses_on(nodes, ranks, collectives, std::move(settings));
  };
  const std::vector<double> of_two = on_nodes(2, kOwn, {});
  EXPECT_FALSE(of_two.empty());
  EXPECT_EQ(on_nodes(2, kNccl, {}), of_two);
  // Means with two levels add up in another order, one node's shared memory does not.
  const std::vector<double> of_four = train(job(4, 4, with(kOwn, {"train.epochs=1"})));
  EXPECT_EQ(on_nodes(4, kNccl, {}), of_four);
  expect_near(on_nodes(4, kNccl, {"train.deterministic=false"}), of_four);
}

/// Both add up within the nodes first, in the same order.
TEST_F(NcclJob, WithinNodesLearnsToTheLastBitWhatTheirSharedMemoryLearns) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  for (const Settings& settings : std::vector<Settings>{
           {"model.dtype=bf16", "optimizer.clip_norm=1"},
           {"model.units=[600, 600]", "train.steps=8", "evaluate.every_epochs=0", "update.compress=bf16"},
           {"update.policy=local_sgd", "update.every_steps=4", "optimizer.rule=adam", "optimizer.rate=0.001"}}) {
    SCOPED_TRACE(settings.front());
    const std::vector<double> wanted = losses_on(nodes, 4, kOwn, settings);
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(losses_on(nodes, 4, kNcclInNodes, settings), wanted);
  }
}

/// Last batches of an epoch have fewer rows: of 2,000 samples 72 are left for 4 ranks of 37 each.
TEST_F(NcclJob, WithinNodesLearnsTheSameWithSwitchesSeveralGroupsAndSmallerLastBatches) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  for (const Settings& settings : std::vector<Settings>{
           {"update.switch=[{ at_step = 4, policy = \"local_sgd\", every_steps = 3 }, { at_step = 11, policy = "
            "\"sync\" }, { at_step = 13, policy = \"double_buffered\" }]"},
           {"update.group=[{name=\"first\",match=[\"l1.*\"],policy=\"local_sgd\",every_steps=3}]"},
           {"data.batch=37", "train.epochs=2", "optimizer.rule=lamb", "optimizer.rate=0.001"},
           {"model.dtype=f16", "model.loss_scale_start=16777216", "data.batch=37"}}) {
    SCOPED_TRACE(settings.front());
    const std::vector<double> wanted = losses_on(nodes, 4, kOwn, settings);
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(losses_on(nodes, 4, kNcclInNodes, settings), wanted);
  }
}

/// A step is made of replayed graphs, those of the node's exchange, too: NCCL is called when a form of step is
/// recorded, and by what is exchanged between steps. Of 80 steps call by call each would make two calls at least.
TEST_F(NcclJob, WithinNodesRepeatsStepsWithoutCallingNccl) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  const ProgramStart start = with_variable(job(4, 4, with(kNcclInNodes, {"train.steps=80", "evaluate.every_epochs=0"})),
                                           "TROUPE_CUDA_HOST_FAULT", "ncclGroupEnd:80=nccl_internal_error");
  (void)run_ranks(std::vector<ProgramStart>(4, start), &nodes);
}

/// Three ranks are two on one node and one on the other.
TEST_F(NcclJob, WithinNodesLearnsWhatRanksOnCpusLearn) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  for (const std::uint32_t ranks : {3U, 4U}) {
    const std::vector<double> of_gpus = losses_on(nodes, ranks, kNcclInNodes, {});
    (void)run_ranks(std::vector<ProgramStart>(ranks, job(0, ranks, on("cpu", {"train.epochs=1"}))), &nodes);
    expect_near(of_gpus, losses());
  }
}

TEST_F(NcclJob, WithinNodesGoesOnInANewView) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  Settings settings{"train.epochs=100000", "data.batch=20", "evaluate.every_epochs=0", kNcclInNodes};
  const auto ranks = start_ranks(std::vector<ProgramStart>(4, job(4, 4, on("cuda", settings))), &nodes);
  ASSERT_TRUE(ranks[0]->wait_until(trains, 60s)) << ranks[0]->out() << ranks[0]->err();
  for (const char* const request : {"rebuild", "stop"}) {
    ProgramStart start = folder_.rtrun();
    start.arguments = {RTRUN_PROGRAM, "control", "run", request};
    start.run_by(nodes.enter(0));
    Program control{start};
    EXPECT_EQ(control.wait(30s), 0) << control.err();
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(20s), 0) << rank->err();
    EXPECT_THAT(rank->err(), Not(HasSubstr("cuda stand-in")));
  }
  EXPECT_THAT(ranks[0]->err(), HasSubstr("in a new view (number 2)"));
}

TEST_F(NcclJob, WithinNodesLearnsTheSameInANewView) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  const Settings settings{"train.epochs=8", "data.batch=20", "optimizer.rule=adam", "optimizer.rate=0.001"};
  const std::vector<double> wanted = losses_on(nodes, 4, kNcclInNodes, settings);
  const auto ranks = start_ranks(std::vector<ProgramStart>(4, job(4, 4, with(kNcclInNodes, settings))), &nodes);
  ASSERT_TRUE(ranks[0]->wait_until(trains, 60s)) << ranks[0]->out() << ranks[0]->err();
  ProgramStart start = folder_.rtrun();
  start.arguments = {RTRUN_PROGRAM, "control", "run", "rebuild"};
  start.run_by(nodes.enter(0));
  Program control{start};
  EXPECT_EQ(control.wait(30s), 0) << control.err();
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(90s), 0) << rank->err();
    EXPECT_THAT(rank->err(), Not(HasSubstr("cuda stand-in")));
  }
  EXPECT_THAT(ranks[0]->err(), HasSubstr("in a new view (number 2)"));
  EXPECT_EQ(losses(), wanted);
}

TEST_F(NcclJob, GoesOnFromACheckpointAlsoWithOtherMeans) {
  expect_to_go_on(kNccl, [&](const char* collectives, const Settings& settings) {
    return train(job(2, 2, with(collectives, settings)));
  });
}

/// Also with what compression has held back.
TEST_F(NcclJob, WithinNodesGoesOnFromACheckpointAlsoWithOtherMeans) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  expect_to_go_on(kNcclInNodes, [&](const char* collectives, Settings settings) {
    settings.emplace_back("update.compress=bf16");
    return losses_on(nodes, 4, collectives, std::move(settings));
  });
}

TEST_F(NcclJob, EndsWithin4SecondsAndWithCode4WhenARankIsKilled) {
  expect_end_within_4_seconds_of_a_kill(job(2, 2, on("cuda", endless())));
}

/// No lines of NCCL's calls reach from one node to another.
TEST_F(NcclJob, NamesTheRankOfAnotherNodeThatIsKilled) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  const auto ranks = start_ranks(std::vector<ProgramStart>(2, job(2, 2, on("cuda", endless()))), &nodes);
  ASSERT_TRUE(ranks[0]->wait_until(trains, 60s)) << ranks[0]->out() << ranks[0]->err();
  ranks[1]->signal(SIGKILL);
  EXPECT_EQ(ranks[0]->wait(10s), 4) << ranks[0]->err();
  EXPECT_THAT(ranks[0]->err(), HasSubstr("rank 1"));
  EXPECT_THAT(ranks[0]->err(), Not(HasSubstr("cuda stand-in")));
}

/// The node's other rank waits in NCCL for the one that has lost its counterpart; of the other node's ranks one has.
TEST_F(NcclJob, WithinNodesEndsAllRanksWhenAnyOfThemIsKilled) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  Settings settings{"train.epochs=100000", "data.batch=20", "evaluate.every_epochs=0", kNcclInNodes};
  for (std::size_t victim = 0; victim < 4; ++victim) {
    SCOPED_TRACE("rank " + std::to_string(victim) + " is killed");
    const auto ranks = start_ranks(std::vector<ProgramStart>(4, job(4, 4, on("cuda", settings))), &nodes);
    ASSERT_TRUE(ranks[0]->wait_until(trains, 60s)) << ranks[0]->out() << ranks[0]->err();
    ranks[victim]->signal(SIGKILL);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[rank]->wait(10s), 4) << ranks[rank]->err();
      EXPECT_THAT(ranks[rank]->err(), HasSubstr("rank " + std::to_string(victim)));
      EXPECT_THAT(ranks[rank]->err(), Not(HasSubstr("cuda stand-in")));
    }
  }
}

/// Each of the calls of a step. A call that fails may have written some of the new parameters, which no rank may use.
TEST_F(NcclJob, WithinNodesEndsWithTheReasonWhicheverCallOfAStepFails) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  const Settings settings{"train.epochs=100000", "data.batch=20", "evaluate.every_epochs=0", kNcclInNodes};
  for (int call = 40; call < 45; ++call) {
    const std::string fault = "nccl_collective:" + std::to_string(call) + "=nccl_remote_error";
    SCOPED_TRACE(fault);
    const ProgramStart start = with_variable(job(4, 4, on("cuda", settings)), "TROUPE_CUDA_HOST_FAULT", fault);
    std::string told;
    for (const auto& rank : start_ranks(std::vector<ProgramStart>(4, start), &nodes)) {
      EXPECT_EQ(rank->wait(60s), 4) << rank->err();
      told += rank->err();
    }
    EXPECT_THAT(told, HasSubstr("NCCL, in the background: "));
    EXPECT_THAT(told, Not(HasSubstr("cuda stand-in")));
  }
}

TEST_F(NcclJob, EndsWithTheReasonWhenNcclReportsAnError) {
  Program rtrun{with_variable(job(2, 2, on("cuda", endless())), "TROUPE_CUDA_HOST_FAULT",
                              "nccl_collective:40=nccl_remote_error")};
  EXPECT_EQ(rtrun.wait(60s), 4) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("NCCL, in the background: "));
  EXPECT_THAT(rtrun.err(), HasSubstr("NCCL_DEBUG=INFO"));
  EXPECT_THAT(rtrun.err(), Not(HasSubstr("cuda stand-in")));
}

/// Under a policy whose exchange is enqueued call by call in each step.
TEST_F(NcclJob, EndsWithTheReasonWhenNcclDoesNotTakeAGroup) {
  Settings settings = endless();
  settings.emplace_back("update.policy=\"double_buffered\"");
  Program rtrun{
      with_variable(job(2, 2, on("cuda", settings)), "TROUPE_CUDA_HOST_FAULT", "ncclGroupEnd:26=nccl_system_error")};
  EXPECT_EQ(rtrun.wait(20s), 4) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("NCCL, a group of calls: "));
  EXPECT_THAT(rtrun.err(), Not(HasSubstr("cuda stand-in")));
}

/// Of one of the ranks, so the other one waits for it in vain.
TEST_F(NcclJob, EndsAtItsDeadlineWithAWayOutWhenAPeerNeverConnects) {
  Settings settings = endless();
  settings.emplace_back("faults.start_s=3");
  const ProgramStart start = job(2, 2, on("cuda", settings));
  const auto ranks =
      start_ranks({start, with_variable(start, "TROUPE_CUDA_HOST_FAULT", "ncclCommInitRankConfig=nccl_in_progress")});
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(20s), 4) << rank->err();
    EXPECT_THAT(rank->err(), Not(HasSubstr("cuda stand-in")));
  }
  const std::string told = ranks[0]->err() + ranks[1]->err();  // the first one to give up tells why
  for (const char* const part : {"waited for NCCL to connect 2 ranks", "NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME",
                                 "cluster.collectives = \"own\" uses no NCCL"})
    EXPECT_THAT(told, HasSubstr(part));
}

TEST_F(NcclJob, EndsWithTheReasonAndAWayOutWhenNcclCannotConnect) {
  Program rtrun{with_variable(job(2, 2, on("cuda", endless())), "TROUPE_CUDA_HOST_FAULT",
                              "ncclCommInitRankConfig=nccl_internal_error")};
  EXPECT_EQ(rtrun.wait(60s), 1) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("NCCL, connecting: "));
  EXPECT_THAT(rtrun.err(), HasSubstr("cluster.collectives = \"own\" uses no NCCL"));
  EXPECT_THAT(rtrun.err(), Not(HasSubstr("cuda stand-in")));
}

TEST_F(NcclJob, GoesOnInNewViews) { expect_new_views(job(2, 2, on("cuda", endless()))); }

TEST_F(NcclJob, Ends130AfterCtrlC) { expect_end_by_ctrl_c(job(2, 2, on("cuda", endless()))); }

/// Also where GPUs do not reach each other's memory, which NCCL does not need.
TEST_F(NcclJob, IsWhatJobsAreWithoutASettingIfEachRankHasAGpu) {
  const ProgramStart start = with_variable(job(2, 2, on("cuda", {"train.steps=3"})), "TROUPE_CUDA_HOST_FAULT",
                                           "cuDeviceCanAccessPeer=invalid_device");
  const std::string plan = told("plan", start);
  EXPECT_THAT(plan, HasSubstr("route    nccl"));
  EXPECT_THAT(plan, HasSubstr("Each of the 2 ranks has a GPU of its own: NCCL exchanges their gradients"));
  (void)train(start);
  EXPECT_THAT(told("plan", job(1, 2, on("cuda", {}))), HasSubstr("NCCL is not used: it takes one rank for each GPU"));
}

TEST_F(NcclJob, UsesItsOwnCollectivesWhereThereIsNoNccl) {
  const ProgramStart start = without_nccl(job(2, 2, on("cuda", {"train.steps=3"})));
  EXPECT_THAT(told("plan", start), HasSubstr("NCCL is not used: rank 0 on node "));
  (void)train(start);
}

TEST_F(NcclJob, IsRefusedInOneLineWhereItCannotBe) {
  const std::string wanted = "cluster.collectives = \"nccl\": ";
  expect_refused(job(1, 2, with(kNccl, {})), 2, wanted + "NCCL cannot be used: it takes one rank for each GPU");
  expect_refused(job(0, 2, on("cpu", {kNccl})), 2, "computes on a CPU");
  expect_refused(job(2, 2, with(kNccl, {"update.policy=async"})), 2, "hosting shards");
  expect_refused(job(2, 2, with(kNccl, {"update.compress=bf16"})), 2, "is compressed (update.compress)");
  expect_refused(job(2, 2, with(kNcclInNodes, {})), 2,
                 "cluster.collectives = \"nccl_in_nodes\": NCCL cannot be used: all ranks are on one node");
  expect_refused(without_nccl(job(2, 2, with(kNccl, {}))), 3, wanted + "there is no usable NCCL");
  expect_refused(with_variable(job(2, 2, with(kNccl, {})), "TROUPE_CUDA_HOST_NCCL", "21704"), 3,
                 wanted + "libnccl.so.2 is NCCL 2.17, Troupe needs 2.18 at least");
}

}  // namespace
}  // namespace troupe::testing
