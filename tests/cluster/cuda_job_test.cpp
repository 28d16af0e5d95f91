// Jobs of rtrun whose ranks compute on GPUs, over the stand-in for the CUDA driver: they learn what CPUs learn, end as
// they should, and the stand-in, which then makes a process fail, has nothing to report.

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/random.hpp"
#include "tests/cluster/cuda_job.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Words one behind the other, in an order that can be learned in part.
std::string text_of_words() {
  constexpr const char* kWords[]{"actors ", "send ", "tensors ", "wait.\n"};
  std::string words;
  for (std::uint64_t i = 0; words.size() < 8000; ++i) words += kWords[random_below(7, i, 4)];
  return words;
}

TEST_F(CudaJob, OfOneRankLearnsWhatACpuLearns) { expect_as_on_cpus(1, 1, {}); }

TEST_F(CudaJob, OfRanksThatShareAGpuLearnsWhatCpusLearn) { expect_as_on_cpus(1, 2, {}); }

TEST_F(CudaJob, OfRanksWithGpusOfTheirOwnLearnsWhatCpusLearn) { expect_as_on_cpus(2, 2, {kOwn}); }

TEST_F(CudaJob, OfGpusThatDoNotReachEachOtherLearnsWhatCpusLearn) {
  const Settings settings{"train.epochs=1", kOwn};
  const std::vector<double> wanted = train(job(0, 2, on("cpu", settings)));
  ProgramStart start = job(2, 2, on("cuda", settings));
  start.environment.emplace_back("TROUPE_CUDA_HOST_FAULT",
                                 "cuDeviceCanAccessPeer=invalid_device,cuIpcOpenMemHandle_v2=invalid_value");
  expect_near(train(start), wanted);
}

TEST_F(CudaJob, OfFourRanksLearnsWhatCpusLearn) {
  expect_as_on_cpus(2, 4, {});
  expect_as_on_cpus(4, 4, {"train.epochs=1", kOwn});
}

TEST_F(CudaJob, LearnsWhatCpusLearnUnderOtherPoliciesRulesAndTypes) {
  const Settings short_one{"train.epochs=1", kOwn};
  for (Settings settings : std::vector<Settings>{
           {"update.policy=block_momentum", "update.block_samples=480"},
           {"update.policy=local_sgd", "update.every_steps=4"},
           {"update.policy=double_buffered"},
           {"optimizer.rule=adam", "optimizer.rate=0.001", "optimizer.clip_norm=1", "update.digest_steps=5"}}) {
    settings.insert(settings.end(), short_one.begin(), short_one.end());
    expect_as_on_cpus(2, 2, settings);
  }
}

TEST_F(CudaJob, LearnsWhatCpusLearnWhateverComputesItsLayers) {
  std::ofstream{folder_.path() / "data" / "words.txt"} << text_of_words();
  const Settings lenet{"model.name=lenet", "model.units=[1000,1000]", "data.batch=8"};
  const Settings gpt{
      "model.name=gpt",   "model.units=[1000,1000]",      "model.depth=1",  "model.width=32", "model.heads=2",
      "data.source=text", "data.path=\"data/words.txt\"", "data.length=32", "data.batch=4"};
  for (Settings settings : {Settings{}, lenet, gpt}) {
    settings.insert(settings.end(), {"train.steps=6", "evaluate.every_epochs=0"});
    SCOPED_TRACE(settings.front());
    const std::vector<double> wanted = train(job(0, 2, on("cpu", settings)));
    for (const auto& [products, convolutions] : {std::pair{"cublaslt", "cudnn"}, {"own", "own"}}) {
      SCOPED_TRACE(products);
      ProgramStart start = job(2, 2, on("cuda", settings));
      start.environment.emplace_back("TROUPE_CUDA_PRODUCTS", products);
      start.environment.emplace_back("TROUPE_CUDA_CONVOLUTIONS", convolutions);
      start.environment.emplace_back("TROUPE_CUDA_HOST_PREPARED", "troupe_wait");  // no memory is taken in a step
      expect_near(train(start), wanted);
    }
  }
}

TEST_F(CudaJob, SaysWhatComputesItsLayers) {
  const auto said = [this](const char* products, const char* convolutions, Settings settings) {
    settings.emplace_back("train.steps=2");
    ProgramStart start = job(1, 1, on("cuda", settings));
    start.environment.emplace_back("TROUPE_CUDA_PRODUCTS", products);
    start.environment.emplace_back("TROUPE_CUDA_CONVOLUTIONS", convolutions);
    Program rtrun{start};
    EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
    return rtrun.out();
  };
  EXPECT_THAT(said("cublaslt", "cudnn", {}),
              HasSubstr("products by cuBLASLt 13.1.0, convolutions and 16-bit attention by cuDNN 9.19.0\n"));
  EXPECT_THAT(said("cublaslt", "cudnn", {"model.tf32=true"}),
              HasSubstr("products by cuBLASLt 13.1.0 in TF32, convolutions and 16-bit attention by "
                        "cuDNN 9.19.0 in TF32\n"));
  EXPECT_THAT(said("own", "own", {}),
              HasSubstr("products by own kernels (as TROUPE_CUDA_PRODUCTS or the device's options ask), convolutions "
                        "and 16-bit attention by own kernels (as TROUPE_CUDA_CONVOLUTIONS"));
}

TEST_F(CudaJob, SwitchesItsPolicyInARun) {
  expect_as_on_cpus(2, 2,
                    {kOwn,
                     "update.switch=[{ at_step = 10, policy = \"local_sgd\", every_steps = 3 }, { at_step = 20, policy "
                     "= \"sync\" }]"});
}

/// Shards on CPUs and replicas on GPUs, in the hosts' memory. Nobody promises an order of the contributions.
TEST_F(CudaJob, TrainsWithHostedShards) {
  const std::vector<double> losses = train(job(2, 2, on("cuda", {"update.policy=async"})));
  ASSERT_GE(losses.size(), 2U);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST_F(CudaJob, GoesOnFromACheckpointAsIfItHadNotEnded) {
  const Settings whole{"evaluate.every_epochs=0", "train.steps=40"};
  const std::vector<double> at_once = train(job(1, 2, on("cuda", whole)));
  Settings first = whole, second = whole;
  first.insert(first.end(), {"train.steps=24", "checkpoint.every_steps=8"});
  second.insert(second.end(), {"checkpoint.every_steps=8", "checkpoint.resume=auto"});
  (void)train(job(1, 2, on("cuda", first)));
  const std::vector<double> again = train(job(1, 2, on("cuda", second)));
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.back(), at_once.back());
}

TEST_F(CudaJob, EndsWithin4SecondsAndWithCode4WhenOneOfTwoRanksOnAGpuIsKilled) {
  expect_end_within_4_seconds_of_a_kill(
      job(1, 2, on("cuda", {"train.epochs=100000", "data.batch=20", "evaluate.every_epochs=0"})));
}

/// In a launch, in a kernel, which the stream finds when it asks, and while a step is recorded.
TEST_F(CudaJob, EndsInOneLineWithTheReasonAndWhatToDoWhenAGpuFails) {
  struct Failure {
    const char *fault, *advice;
  };
  for (const auto& [fault, advice] :
       {Failure{"troupe_cross_entropy:20=illegal_address", "compute-sanitizer names the kernel"},
        Failure{"cuGraphLaunch:9=ecc_uncorrectable", "reset or replace the GPU"},
        Failure{"troupe_cross_entropy:20=ecc_uncorrectable", "reset or replace the GPU"},
        Failure{"troupe_cross_entropy:20=contained", "reset or replace the GPU if it comes again"},
        Failure{"troupe_cross_entropy:20=unknown", "dmesg"}, Failure{"cuGraphLaunch:9=launch_failed", "dmesg"},
        Failure{"cuGraphLaunch:9=device_unavailable", "nvidia-smi lists the GPUs that are left"},
        Failure{"cuGraphInstantiateWithFlags=out_of_memory", "use a smaller batch"}}) {
    SCOPED_TRACE(fault);
    ProgramStart start = job(1, 1, on("cuda", {"train.steps=200"}));
    start.environment.emplace_back("TROUPE_CUDA_HOST_FAULT", fault);
    Program rtrun{start};
    EXPECT_EQ(rtrun.wait(60s), 1) << rtrun.err();
    EXPECT_THAT(rtrun.err(), HasSubstr("Stand-in at 0000:10:00.0"));
    EXPECT_THAT(rtrun.err(), HasSubstr(std::string{fault}.substr(std::string{fault}.find('=') + 1)));
    EXPECT_THAT(rtrun.err(), HasSubstr(advice));
    EXPECT_EQ(std::ranges::count(rtrun.err(), '\n'), 1) << "more than one line: " << rtrun.err();
  }
}

TEST_F(CudaJob, Ends130AfterCtrlC) {
  expect_end_by_ctrl_c(job(2, 2, on("cuda", {"train.epochs=100000", "data.batch=20", "evaluate.every_epochs=0"})));
}

TEST_F(CudaJob, GoesOnInNewViews) {
  expect_new_views(job(2, 2, on("cuda", {"train.epochs=100000", "data.batch=20", "evaluate.every_epochs=0", kOwn})));
}

TEST_F(CudaJob, TakesAGpuWhereThereIsOneAndTheCpuOtherwise) {
  Program on_gpu{job(1, 1, {"train.steps=3"})}, on_cpu{job(0, 1, {"train.steps=3", "report.dir=\"run/cpu\""})};
  EXPECT_EQ(on_gpu.wait(60s), 0) << on_gpu.err();
  EXPECT_EQ(on_cpu.wait(60s), 0) << on_cpu.err();
  EXPECT_THAT(on_gpu.out(), HasSubstr("Using CUDA"));
  EXPECT_THAT(on_cpu.out(), HasSubstr("Using CPU"));
  EXPECT_EQ(on_cpu.err(), "");
  std::filesystem::remove_all(folder_.path() / "run" / "cpu");
}

/// As another launcher would start it: one of the ranks sees a GPU.
TEST_F(CudaJob, OfAGpuAndACpuLearnsWhatCpusLearn) {
  const Settings settings{"train.epochs=1"};
  const std::vector<double> wanted = train(job(0, 2, on("cpu", settings)));
  const std::vector<std::string> out = run_ranks({job(1, 2, settings), job(0, 2, settings)});
  EXPECT_THAT(out[0], HasSubstr("Using CPU, CUDA"));
  expect_near(losses(), wanted);
}

TEST_F(CudaJob, OfSeveralNodesLearnsWhatCpusLearn) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  struct Case {
    std::uint32_t ranks;
    Settings settings;
  };
  for (const Case& one : {Case{2, {}}, Case{2, {"update.compress=bf16"}}, Case{4, {"optimizer.clip_norm=0.5"}}}) {
    Settings settings = one.settings;
    settings.insert(settings.end(), {"train.epochs=1", kOwn});
    std::vector<std::vector<double>> found;
    for (const char* const device : {"cpu", "cuda"}) {
      const std::vector<ProgramStart> starts(one.ranks, job(2, one.ranks, on(device, settings)));
      (void)run_ranks(starts, &nodes);
      found.push_back(losses());
    }
    expect_near(found[1], found[0]);
  }
}

std::string libraries_of(pid_t pid) {
  std::ifstream maps{"/proc/" + std::to_string(pid) + "/maps"};
  return {std::istreambuf_iterator<char>{maps}, {}};
}

TEST_F(CudaJob, OpensTheDriverOnlyWhereItUsesGpus) {
  for (const char* const device : {"cpu", "cuda"}) {
    Program rtrun{job(1, 2, on(device, {"train.epochs=100000", "data.batch=20", "evaluate.every_epochs=0"}))};
    ASSERT_TRUE(rtrun.wait_until(trains, 60s)) << rtrun.out() << rtrun.err();
    std::vector<pid_t> all = children_of(rtrun.pid());
    all.push_back(rtrun.pid());
    ASSERT_EQ(all.size(), 3U);
    for (const pid_t pid : all) EXPECT_EQ(libraries_of(pid).find("libcuda") != std::string::npos, device[1] == 'u');
    rtrun.signal(SIGINT);
    EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
  }
}

/// Batch norms that gather numbers of several ranks are for CPUs.
TEST_F(CudaJob, SaysWhichLayerKeepsItFromTheGpuAndTakesTheCpu) {
  const Settings net{"train.steps=2", "model.units=[1000,1000]",
                     "model.layers=[{kind=\"dense\",units=16},{kind=\"batch_norm\",synchronized=true},{kind=\"dense\","
                     "units=10}]"};
  Program rtrun{job(1, 2, net)};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.out(), HasSubstr("Using CPU"));
  EXPECT_THAT(rtrun.err(), HasSubstr("GPUs are not used: a cuda device cannot compute layer batch_norm"));
  expect_refused(job(1, 2, on("cuda", net)), 2,
                 "placement.device = \"cuda\": a cuda device cannot compute layer batch_norm");
}

TEST_F(CudaJob, IsRefusedInOneLineWhereItCannotHaveGpus) {
  const auto with = [this](const char* variable, const char* value, Settings settings = {}) {
    ProgramStart start = job(1, 2, on("cuda", std::move(settings)));
    std::erase_if(start.environment, [&](const auto& one) { return one.first == variable; });
    start.environment.emplace_back(variable, value);
    return start;
  };
  expect_refused(job(0, 2, on("cuda", {})), 3, "placement.device = \"cuda\": there is no usable CUDA driver");
  expect_refused(with("TROUPE_CUDA_HOST_FAULT", "cuInit=no_device"), 3, "nvidia-smi lists the GPUs");
  expect_refused(with("TROUPE_CUDA_HOST_FAULT", "cuInit=system_driver_mismatch"), 3, "restart the machine");
  expect_refused(with("TROUPE_CUDA_HOST_MODE", "prohibited"), 3, "nvidia-smi -c DEFAULT");
  expect_refused(with("TROUPE_CUDA_HOST_MODE", "exclusive"), 2, "2 ranks on node");
  expect_refused(with("TROUPE_CUDA_HOST_DRIVER", "11040"), 3, "update it");
  expect_refused(with("TROUPE_CUDA_HOST_FAULT", "cuInit=not_permitted"), 3, "/dev/nvidia");
  expect_refused(with("TROUPE_CUDA_HOST_DEVICES", "0"), 3,
                 "a GPU with MIG enabled shows none before an instance is made");
  expect_refused(with("TROUPE_CUDA_HOST_MEMORY", "100000"), 2, "of memory, and its 2 ranks take");
}

/// A build without kernels finds out before it starts ranks, one with kernels when a rank makes its device.
TEST_F(CudaJob, IsRefusedWhereThereAreNoKernelsForAGpu) {
  ProgramStart start = job(1, 1, on("cuda", {}));
  start.environment.emplace_back("TROUPE_CUDA_HOST_FAULT", "cuModuleLoadData=no_binary_for_gpu");
  expect_refused(start, 2, "build Troupe with a CUDA toolkit that knows the GPU");
}

/// A rank finds it out when it opens the GPU that its plan gave it.
TEST_F(CudaJob, EndsInOneLineWhereAnotherProcessHasItsGpuInExclusiveMode) {
  ProgramStart start = job(1, 1, on("cuda", {}));
  start.environment.emplace_back("TROUPE_CUDA_HOST_FAULT", "cuDevicePrimaryCtxRetain=device_unavailable");
  expect_refused(start, 3, "another process has it in exclusive mode: end that one, or nvidia-smi -c DEFAULT");
}

TEST_F(CudaJob, IsRefusedInOneLineWhereNothingComputesItsProductsAsAskedFor) {
  ProgramStart start = job(1, 1, on("cuda", {}));
  start.environment.emplace_back("TROUPE_CUDA_PRODUCTS", "tensor");
  expect_refused(start, 2, "TROUPE_CUDA_PRODUCTS is \"tensor\": write \"cublaslt\" or \"own\"");
  start.environment.back().second = "cublaslt";
  start.environment.emplace_back("TROUPE_CUDA_HOST_FAULT", "cublasLtCreate=cublaslt_not_initialized");
  expect_refused(start, 3, "there is no usable cuBLASLt (cuBLASLt, a handle on Stand-in");
}

TEST_F(CudaJob, GoesOnOnTheCpuWithALineWhereItsGpusAreBroken) {
  ProgramStart start = job(1, 1, {"train.steps=2"});
  start.environment.emplace_back("TROUPE_CUDA_HOST_FAULT", "cuInit=system_driver_mismatch");
  Program rtrun{start};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.out(), HasSubstr("Using CPU"));
  EXPECT_THAT(rtrun.err(), HasSubstr("GPUs are not used: "));
}

nlohmann::json read_json(const std::filesystem::path& file) {
  std::ifstream in{file};
  return nlohmann::json::parse(in, nullptr, false);
}

TEST_F(CudaJob, ReportsThePartsOfItsStepsTime) {
  (void)train(job(1, 2, on("cuda", {"train.epochs=2"})));
  const nlohmann::json report = read_json(folder_.path() / "run" / "report.json");
  for (const char* const part : {"compute", "update", "exchange"})
    EXPECT_GT(report.at("mean_step_ms").at(part).get<double>(), 0) << part << report;
  EXPECT_GT(report.at("rank_0_s").at("evaluate").get<double>(), 0) << report;
}

TEST_F(CudaJob, IsComparedPartByPartWithWhatIsPredictedOfIt) {
  for (const std::uint32_t ranks : {1U, 2U}) {
    SCOPED_TRACE(ranks);
    const Settings settings = on("cuda", {"train.epochs=2"});
    (void)train(job(ranks, ranks, settings));
    ProgramStart start = job(ranks, ranks, settings, {"--json", "--compare", folder_.path() / "run" / "report.json"});
    start.arguments.insert(start.arguments.begin() + 1, "plan");
    Program plan{start};
    ASSERT_EQ(plan.wait(30s), 0) << plan.err();
    const nlohmann::json said = nlohmann::json::parse(plan.out(), nullptr, false);
    for (const char* const part : {"all", "load", "compute", "update", "copy", "exchange"}) {
      EXPECT_TRUE(said["predicted"]["ms"].contains(part)) << part << said;
      EXPECT_TRUE(said["measured"]["ms"].contains(part)) << part << said;
    }
    for (const char* const part : {"all", "compute", "update"}) {
      EXPECT_GT(said["predicted"]["ms"][part].get<double>(), 0) << part;
      EXPECT_TRUE(said["predicted"]["modelled"][part].get<bool>()) << "nothing was measured: " << part;
    }
    EXPECT_EQ(said["predicted"]["ms"]["exchange"].get<double>() > 0, ranks > 1) << said;
  }
}

TEST_F(CudaJob, HasTheWorkOfItsStreamsInATrace) {
  const std::filesystem::path file = folder_.path() / "trace.json";
  ProgramStart start = job(2, 2, on("cuda", {"train.steps=8", "report.trace=\"" + file.string() + '"'}));
  (void)train(start);
  std::set<std::string> found;
  const nlohmann::json events = read_json(file);
  for (const auto& event : events)
    if (event.value("ph", "") == "X") found.insert(event.at("name").get<std::string>());
  for (int step = 0; step < 8; ++step)
    for (const char* const phase : {"forward, step ", "update, step "})
      EXPECT_TRUE(std::ranges::any_of(
          found, [&](const std::string& name) { return name.starts_with(phase + std::to_string(step)); }))
          << phase << step;
  std::filesystem::remove(file);
}

/// The stand-in is many times slower than the CPU that plays it.
TEST_F(CudaJob, OfAGpuAndACpuSharesSamplesByMeasuredSpeed) {
  const Settings settings{"placement.split=\"measured\"", "train.deterministic=false", "train.steps=800",
                          "evaluate.every_epochs=0"};
  (void)run_ranks({job(1, 2, settings), job(0, 2, settings)});
  const nlohmann::json log = read_json(folder_.path() / "run" / "log");
  ASSERT_FALSE(log.empty());
  const nlohmann::json& ranks = log.back().at("ranks");
  ASSERT_EQ(ranks.size(), 2U) << log;
  EXPECT_LT(ranks[0].at("samples_per_step").get<double>(), ranks[1].at("samples_per_step").get<double>()) << ranks;
}

/// A driver may wait for all work of a GPU before it gives memory, and that work may wait for another rank's.
TEST_F(CudaJob, TakesNoMemoryOnceAStreamMayWait) {
  for (const Settings& settings :
       std::vector<Settings>{{},
                             {"optimizer.rule=adamw", "optimizer.weight_decay=0.01", "optimizer.no_decay=[\"*.bias\"]"},
                             {"optimizer.rule=lamb"}}) {
    Settings all = settings;
    all.insert(all.end(), {"train.epochs=1", "checkpoint.every_steps=10"});
    ProgramStart start = job(2, 2, on("cuda", all));
    start.environment.emplace_back("TROUPE_CUDA_HOST_PREPARED", "troupe_wait");
    (void)train(start);
    std::filesystem::remove_all(folder_.path() / "run" / "checkpoints");
  }
}

#ifdef NVTX_RANGES
TEST_F(CudaJob, NamesActorsStepsAndLayersForAProfiler) {
  const std::string file = folder_.path() / "ranges";
  ProgramStart start = job(2, 2, on("cuda", {"train.steps=5"}));
  start.environment.insert(start.environment.end(),
                           {{"NVTX_INJECTION64_PATH", NVTX_RANGES}, {"TROUPE_NVTX_RANGES", file}});
  (void)train(start);
  std::set<std::string> ranges;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) ranges.insert(line);
  for (const char* const wanted :
       {"Loader: fill batch, step 2", "Device: enqueue step, step 3", "Device: enqueue step, step 0 > forward l1",
        "Device: enqueue step, step 0 > backward l1", "Device: enqueue step, step 0 > exchange bucket 0",
        "Membership: count step, step 4"})
    EXPECT_TRUE(ranges.contains(wanted)) << wanted << " is not in\n" << ::testing::PrintToString(ranges);
  std::filesystem::remove(file);
}
#endif

TEST_F(CudaJob, HasItsGpusInItsPlan) {
  ProgramStart start = job(2, 4, on("cuda", {}));
  start.arguments.insert(start.arguments.begin() + 1, "plan");
  Program rtrun{start};
  EXPECT_EQ(rtrun.wait(30s), 0) << rtrun.err();
  for (const char* const part : {"cuda 0000:10:00.0", "cuda 0000:11:00.0", "Stand-in", "4 ranks compute on 2 GPUs",
                                 "step     predicted ~", "takes of its GPU's memory"})
    EXPECT_THAT(rtrun.out(), HasSubstr(part));
}

}  // namespace
}  // namespace troupe::testing
