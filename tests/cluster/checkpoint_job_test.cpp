// Jobs that save checkpoints, end in all possible ways, and are resumed.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "runtime/checkpoint/store.hpp"
#include "runtime/data/idx.hpp"
#include "tests/cluster/job_folder.hpp"
#include "tests/support/page_cache.hpp"

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kPreempted = 75;
constexpr std::uint64_t kSteps = 60;

class CheckpointedJob : public ClusterTest {
 protected:
  void TearDown() override {
    fs::remove_all(folder_.path() / "run" / "checkpoints");
    ClusterTest::TearDown();
  }
  /// rtrun on so many ranks, deterministic, with the same samples a step whatever the ranks.
  ProgramStart job(std::uint32_t ranks, std::vector<std::string> settings) const {
    std::vector<std::string> arguments;
    settings.insert(settings.end(), {"cluster.nodes=\"local:" + std::to_string(ranks) + '"', "train.deterministic=true",
                                     "evaluate.every_epochs=0", "data.batch=" + std::to_string(120 / ranks),
                                     "faults.dead_ms=20000", "placement.cores=0"});
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return folder_.rtrun(arguments);
  }
  static std::string steps(std::uint64_t count) { return "train.steps=" + std::to_string(count); }
  static std::string every(std::uint64_t count) { return "checkpoint.every_steps=" + std::to_string(count); }
  static std::vector<std::string> resume(std::vector<std::string> settings, const std::string& from = "auto") {
    settings.push_back("checkpoint.resume=\"" + from + '"');
    return settings;
  }

  CheckpointStore store() const { return CheckpointStore((folder_.path() / "run" / "checkpoints").string()); }
  /// The state of the newest checkpoint, which must be of step `steps`: all weights, then the optimizer's state.
  std::vector<float> state_at(std::uint64_t steps) const {
    Blocking blocking = Blocking::on_thread("test");
    const auto newest = store().newest_whole(blocking, [](const std::string& why) { ADD_FAILURE() << why; });
    if (!newest || newest->steps != steps) {
      ADD_FAILURE() << "the newest checkpoint is of step " << (newest ? newest->steps : 0);
      return {};
    }
    CheckpointReader reader(store(), *newest);
    std::vector<float> all;
    for (const CheckpointPart part : {CheckpointPart::parameters, CheckpointPart::state0, CheckpointPart::state1}) {
      for (const auto& [name, count] : kTensors) {
        all.resize(all.size() + count);
        reader.read({}, name, part, 0, std::span(all).last(count));
      }
    }
    return all;
  }
  void forget_checkpoints() const { fs::remove_all(store().folder()); }

  std::vector<float> uninterrupted(std::uint32_t ranks) {
    Program whole(job(ranks, {steps(kSteps), every(1000)}));
    EXPECT_EQ(whole.wait(60s), 0) << whole.err();
    std::vector<float> state = state_at(kSteps);
    forget_checkpoints();
    return state;
  }

  /// Of the folder's model, 784-32-32-10.
  static constexpr std::array<std::pair<const char*, std::size_t>, 6> kTensors{{{"l1.weight", 784 * 32},
                                                                                {"l1.bias", 32},
                                                                                {"l2.weight", 32 * 32},
                                                                                {"l2.bias", 32},
                                                                                {"l3.weight", 320},
                                                                                {"l3.bias", 10}}};
};

class CheckpointedJobOn : public CheckpointedJob, public ::testing::WithParamInterface<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CheckpointedJobOn, ::testing::Values(1u, 2u, 3u), ::testing::PrintToStringParamName());

TEST_P(CheckpointedJobOn, EndsWithTheSameBitsWhenItIsKilledAndGoesOn) {
  const std::vector<float> expected = uninterrupted(GetParam());
  std::mt19937 dice(GetParam());
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::string> settings{steps(kSteps), every(1 + dice() % 50)};
    {
      Program job_to_die(job(GetParam(), settings));
      const auto moment = std::chrono::milliseconds(dice() % 400);
      becomes_true([this] { return !store().list().empty(); }, 2s);
      job_to_die.wait(moment);
      job_to_die.signal(SIGKILL);
      job_to_die.wait(10s);
    }
    Program rest(job(GetParam(), resume(settings)));
    ASSERT_EQ(rest.wait(60s), 0) << rest.err();
    EXPECT_EQ(state_at(kSteps), expected) << settings[1];
    forget_checkpoints();
  }
}

TEST_P(CheckpointedJobOn, SavesOnSigtermAndEndsWithTheSameBitsWhenItGoesOn) {
  const std::vector<float> expected = uninterrupted(GetParam());
  std::uint64_t from = 0;
  {
    Program preempted(job(GetParam(), {steps(1'000'000), every(20)}));
    ASSERT_TRUE(becomes_true([this] { return !store().list().empty(); }, 20s)) << preempted.err();
    preempted.signal(SIGTERM);
    ASSERT_EQ(preempted.wait(20s), kPreempted) << preempted.err();
    from = store().list().front().steps;
  }
  const std::uint64_t end = std::max(kSteps, from + 10);
  Program rest(job(GetParam(), resume({steps(end), every(1000)})));
  ASSERT_EQ(rest.wait(60s), 0) << rest.err();
  EXPECT_THAT(rest.err() + rest.out(), HasSubstr("going on from"));
  if (end == kSteps) {
    EXPECT_EQ(state_at(kSteps), expected);
  } else {
    const std::vector<float> resumed = state_at(end);
    forget_checkpoints();
    Program whole(job(GetParam(), {steps(end), every(1'000'000)}));
    ASSERT_EQ(whole.wait(120s), 0) << whole.err();
    EXPECT_EQ(state_at(end), resumed);
  }
}

TEST_F(CheckpointedJob, EndsALongBlockOnSigtermAndSavesIt) {
  Program preempted(
      job(2, {steps(1'000'000), every(20), "update.policy=\"block_momentum\"", "update.block_samples=1000000000"}));
  ASSERT_TRUE(preempted.wait_until(trains, 30s)) << preempted.err();
  preempted.signal(SIGTERM);
  ASSERT_EQ(preempted.wait(30s), kPreempted) << preempted.err();
  EXPECT_EQ(store().list().size(), 1u) << "saves wait for the end of a block";
}

TEST_F(CheckpointedJob, GoesOnAtAnotherWorldSizeWithTheSameSamples) {
  Program first(job(2, {steps(20), every(10)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  Program second(job(2, resume({steps(40), every(1000)})));
  ASSERT_EQ(second.wait(60s), 0) << second.err();
  const std::vector<float> expected = state_at(40);
  for (const std::uint32_t ranks : {1u, 3u}) {
    store().remove(store().list().front());
    Program rest(job(ranks, resume({steps(40), every(1000)})));
    ASSERT_EQ(rest.wait(60s), 0) << rest.err();
    const std::vector<float> found = state_at(40);
    ASSERT_EQ(found.size(), expected.size());
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < found.size() / 3; ++i) {  // the weights
      difference += std::pow(double{found[i]} - expected[i], 2);
      norm += std::pow(double{expected[i]}, 2);
    }
    EXPECT_LT(std::sqrt(difference / norm), 1e-4) << ranks << " ranks";
    EXPECT_GT(norm, 0);
  }
}

TEST_F(CheckpointedJob, WritesPastThePageCache) {
  if (!has_direct_writes(folder_.path())) GTEST_SKIP() << "the file system of " << folder_.path() << " has no O_DIRECT";
  Program program(job(2, {steps(10), every(1000), "model.units=[128]"}));
  ASSERT_EQ(program.wait(60s), 0) << program.err();
  ASSERT_EQ(store().list().size(), 1u);
  for (const char* rank : {"/rank-00000.safetensors", "/rank-00001.safetensors"}) {
    const std::string file = store().folder_of(store().list().front()) + rank;
    EXPECT_GT(fs::file_size(file), 500'000u);
    const long cached = cached_pages(file);
    EXPECT_GE(cached, 0);
    EXPECT_LE(cached, 2) << "all but the header and the rest of a block: " << file;
  }
}

TEST_F(CheckpointedJob, GoesOnWithTheLogOfTheRunThatItGoesOn) {
  const auto iterations = [&] {
    std::ifstream in{folder_.path() / "run/log"};
    const auto log = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    std::vector<std::uint64_t> all;
    for (const auto& line : log) all.push_back(line.at("iteration"));
    return all;
  };
  const auto rows = [&] {
    std::ifstream in{folder_.path() / "run/log.csv"};
    return std::count(std::istreambuf_iterator<char>{in}, {}, '\n');
  };
  // An epoch of 2,000 samples has 17 steps of 120, the next two end with steps 34 and 50.
  Program first(job(2, {steps(40), every(38)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  EXPECT_EQ(iterations(), (std::vector<std::uint64_t>{17, 34, 40}));
  store().remove(store().list().front());
  Program rest(job(2, resume({steps(60), every(1000)})));
  ASSERT_EQ(rest.wait(60s), 0) << rest.err();
  EXPECT_EQ(iterations(), (std::vector<std::uint64_t>{17, 34, 50, 60}));
  EXPECT_EQ(rows(), 5);
  Program anew(job(2, {steps(20), every(1000)}));
  ASSERT_EQ(anew.wait(60s), 0) << anew.err();
  EXPECT_EQ(iterations(), (std::vector<std::uint64_t>{17, 20}));
}

/// A job in which only the first evaluation counts as an improvement, so that it ends after epoch 4.
class ImpatientJob : public CheckpointedJob {
 protected:
  ProgramStart impatient(std::vector<std::string> settings, std::uint32_t ranks = 2) const {
    settings.insert(settings.end(),
                    {"cluster.nodes=\"local:" + std::to_string(ranks) + '"', "train.deterministic=true",
                     "train.epochs=50", "evaluate.min_change=1000", "faults.dead_ms=20000", "placement.cores=0"});
    std::vector<std::string> arguments{"--set", "evaluate.patience=3"};  // what follows counts
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return folder_.rtrun(arguments);
  }
  nlohmann::json log() const {
    std::ifstream in{folder_.path() / "run/log"};
    return nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  }
  static constexpr const char* kReason = "Stopped at epoch 4: the test loss has not improved for 3 evaluations; best ";
};

TEST_F(ImpatientJob, EndsWellAfterSoManyEvaluationsWithoutImprovementAndSaysWhy) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    Program program(impatient({every(1000)}, ranks));
    ASSERT_EQ(program.wait(60s), 0) << program.err();
    EXPECT_THAT(program.out(), HasSubstr(kReason));
    EXPECT_THAT(program.out(), HasSubstr(" at epoch 1\nStopped after " + std::to_string(400 / ranks) + " steps in "));
    ASSERT_EQ(log().size(), 4u) << log().dump(2);
    EXPECT_EQ(log().back().at("iteration"), 400 / ranks);
    EXPECT_EQ(store().list().front().steps, 400 / ranks);
    forget_checkpoints();
  }
}

TEST_F(ImpatientJob, EndsUnderEveryPolicyWhereTheRanksAgree) {
  // Three steps are a block: the 200 steps of four epochs end inside of one.
  for (const std::string policy : {"double_buffered", "local_sgd", "async"}) {
    std::vector<std::string> settings{every(1000), "update.policy=" + policy, "optimizer.rule=sgd"};
    if (policy == "local_sgd") settings.emplace_back("update.every_steps=3");
    Program program(impatient(settings));
    ASSERT_EQ(program.wait(60s), 0) << policy << program.err();
    EXPECT_THAT(program.out(), HasSubstr(kReason)) << policy;
    const std::uint64_t steps = policy == "local_sgd" ? 201 : 200;
    EXPECT_EQ(store().list().front().steps, steps) << policy;
    forget_checkpoints();
  }
}

TEST_F(ImpatientJob, EndsAtTheSameStepWithTheSameBitsWhereverItWasKilledAndWentOn) {
  // No checkpoint is of a step that is evaluated: a job that is killed during an evaluation repeats it when it is
  // resumed.
  const std::vector<std::string> settings{every(33), "checkpoint.keep_best=false", "evaluate.patience=30"};
  constexpr std::uint64_t kEnd = 31 * 50;
  Program whole(impatient(settings));
  ASSERT_EQ(whole.wait(60s), 0) << whole.err();
  const std::vector<float> expected = state_at(kEnd);
  const auto lines = log();
  forget_checkpoints();
  std::mt19937 dice(1);
  for (int round = 0; round < 4; ++round) {
    Program begun(impatient(settings));
    const std::string row = "\n" + std::to_string(1 + dice() % 25) + ' ';
    EXPECT_TRUE(begun.wait_until([&](const Program& p) { return p.out().find(row) != std::string::npos; }, 30s));
    begun.signal(SIGKILL);
    begun.wait(10s);
    Program rest(impatient(resume(settings)));
    ASSERT_EQ(rest.wait(60s), 0) << rest.err();
    EXPECT_EQ(state_at(kEnd), expected) << row;
    ASSERT_EQ(log().size(), lines.size());
    EXPECT_EQ(log().back().at("validation/main/loss"), lines.back().at("validation/main/loss")) << row;
    forget_checkpoints();
  }
}

TEST_F(ImpatientJob, HasNothingLeftToDoWhenItGoesOnBehindItsEnd) {
  Program first(impatient({every(1000)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  Program again(impatient(resume({every(1000)})));
  ASSERT_EQ(again.wait(60s), 0) << again.err();
  EXPECT_THAT(again.err(), HasSubstr(kReason));
  EXPECT_THAT(again.err(), HasSubstr("nothing is left to train after step 200 (raise evaluate.patience)"));
  EXPECT_THAT(again.out(), HasSubstr("Nothing to train: all 200 steps were done before"));
}

TEST_F(ImpatientJob, IsRefusedWhereNothingIsEvaluated) {
  Program program(impatient({"evaluate.every_epochs=0", every(0)}));
  EXPECT_EQ(program.wait(60s), 2) << program.err();
  EXPECT_THAT(program.err(), HasSubstr("evaluate.patience = 3 counts evaluations"));
}

TEST_F(CheckpointedJob, HasNothingToDoWhenAllStepsAreDone) {
  Program first(job(2, {steps(10), every(5)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  Program again(job(2, resume({steps(10), every(5)})));
  ASSERT_EQ(again.wait(60s), 0) << again.err();
  EXPECT_THAT(again.err(), HasSubstr("nothing is left to train"));
  EXPECT_THAT(again.out(), HasSubstr("Nothing to train: all 10 steps were done before, results in run\n"));
}

TEST_F(CheckpointedJob, KeepsTheNewestAndWhatTheyAreCalledGoesOn) {
  Program first(job(1, {steps(50), every(10), "checkpoint.keep=2"}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  const auto kept = store().list();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].steps, 50u);
  Program second(job(1, {steps(10), every(10)}));
  ASSERT_EQ(second.wait(60s), 0) << second.err();
  EXPECT_EQ(store().list().front().steps, 10u) << "the newest is that of the newest run";
  EXPECT_EQ(store().list().size(), 3u) << "another run's are left alone";
}

TEST_F(CheckpointedJob, SaysWhyItCannotGoOn) {
  Program first(job(1, {steps(10), every(10)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  const auto error_of = [&](const std::vector<std::string>& settings) {
    Program program(job(1, settings));
    EXPECT_EQ(program.wait(60s), 2) << program.err();
    return program.err();
  };
  EXPECT_THAT(error_of(resume({steps(20)}, "data")), HasSubstr("no checkpoint is in that folder"));
  EXPECT_THAT(error_of(resume({steps(20), "model.units=[16]"})), HasSubstr("set [model] back"));
  EXPECT_THAT(error_of(resume({steps(20), "train.seed=8"})), HasSubstr("set train.seed back"));
  EXPECT_THAT(error_of(resume({steps(20), "optimizer.rule=\"sgd\""})), HasSubstr("set optimizer.rule back"));
}

TEST_F(CheckpointedJob, StartsNoRankToResumeFromAFolderWithoutCheckpoints) {
  for (const auto& [folder, why] :
       {std::pair{"nowhere", "there is no such folder"}, std::pair{"data", "no checkpoint is in that folder"}}) {
    Program program(job(2, resume({steps(20)}, folder)));
    EXPECT_EQ(program.wait(60s), 2) << program.err();
    EXPECT_THAT(program.err(), StartsWith(text("rtrun: error: --resume (checkpoint.resume): ", folder, ": ", why)));
    EXPECT_EQ(std::ranges::count(program.err(), '\n'), 1) << program.err();
  }
}

TEST_F(CheckpointedJob, NamesTheDataAndOnceWhatDiffersWhenTheModelIsTheSame) {
  Program first(job(2, {steps(10), every(10)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  fs::create_directories(folder_.path() / "data/small");
  for (const std::string part : {"train", "t10k"}) {
    std::vector<std::uint8_t> labels(300);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::uint8_t>(i % 3);
    const std::string stem = (folder_.path() / "data/small" / part).string();
    write_idx(stem + "-images-idx3-ubyte", {IdxKind::images, 300, 16, 16}, std::vector<std::uint8_t>(300 * 256));
    write_idx(stem + "-labels-idx1-ubyte", {IdxKind::labels, 300}, labels);
  }
  Program again(job(2, resume({steps(20), "data.path=data/small"})));
  EXPECT_EQ(again.wait(60s), 2);
  const std::string said =
      "this checkpoint was trained with other data: samples of [28, 28, 1] where this job has [16, 16, 1], "
      "\"l3\"=dense(10) where this job has \"l3\"=dense(3); let data.path name the data set that it was trained on, ";
  EXPECT_THAT(again.err(), HasSubstr("[rank 0] rtrun: error: "));
  EXPECT_THAT(again.err(), HasSubstr(said));
  EXPECT_THAT(again.err(), Not(HasSubstr("graph \"mlp\"")));
  const std::string behind = again.err().substr(again.err().find(said) + said.size());
  EXPECT_EQ(behind.find("rank 1] rtrun: error: run/checkpoints"), std::string::npos) << "rank 1 says it too";
}

TEST_F(CheckpointedJob, SaysThatAnEarlierRunsCheckpointsAreThereWhenItStartsAnew) {
  Program first(job(1, {steps(30), every(10)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  EXPECT_THAT(first.err(), Not(HasSubstr("warning")));
  Program trial(job(1, {steps(10), every(10)}));
  ASSERT_EQ(trial.wait(60s), 0) << trial.err();
  EXPECT_THAT(trial.err(), HasSubstr("warning: run/checkpoints holds checkpoints of an earlier run, the newest of step "
                                     "30; this run starts from the beginning and saves into the same folder."));
}

TEST_F(CheckpointedJob, AsksWhichRunIsMeantWhenATrialIsNewerThanALongerRun) {
  Program first(job(1, {steps(30), every(10)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  Program trial(job(1, {steps(10), every(10)}));
  ASSERT_EQ(trial.wait(60s), 0) << trial.err();
  Program doubt(job(1, resume({steps(40), every(10)})));
  EXPECT_EQ(doubt.wait(60s), 2) << doubt.err();
  // How many were saved before depends on the speed of the disk.
  const std::regex said(
      "the newest has 10 steps, one of another run has 30; say which one to resume from: --resume "
      "(run/checkpoints/\\d+-step-30), or --resume run/checkpoints/\\d+-step-10; and give runs "
      "folders of their own");
  std::smatch which;
  const std::string error = doubt.err();
  ASSERT_TRUE(std::regex_search(error, which, said)) << error;
  Program longer(job(1, resume({steps(40), every(10)}, which[1])));
  ASSERT_EQ(longer.wait(60s), 0) << longer.err();
  EXPECT_THAT(longer.err(), HasSubstr("step 30 of 40"));
  Program again(job(1, resume({steps(50), every(10)})));
  ASSERT_EQ(again.wait(60s), 0) << again.err();
  EXPECT_THAT(again.err(), HasSubstr("step 40 of 50"));
}

TEST_F(CheckpointedJob, GoesOnFromTheNewestOfItsOwnRunsThoughAnEarlierOneWasFurther) {
  Program first(job(1, {steps(30), every(10)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  Program back(job(1, resume({steps(20), every(5)}, "run/checkpoints/000001-step-10")));
  ASSERT_EQ(back.wait(60s), 0) << back.err();
  Program again(job(1, resume({steps(40), every(10)})));
  ASSERT_EQ(again.wait(60s), 0) << again.err();
  EXPECT_THAT(again.err(), HasSubstr("step 20 of 40"));
}

TEST_F(CheckpointedJob, LeavesACheckpointWithoutManifestToWhoeverAsksForIt) {
  Program first(job(1, {steps(10), every(10)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  const std::string folder = store().folder_of(store().list().front());
  fs::remove(folder + "/manifest.json");
  Program again(job(1, resume({steps(20), every(10)}, folder)));
  EXPECT_EQ(again.wait(60s), 2);
  EXPECT_THAT(again.err(), HasSubstr("manifest.json: cannot be opened: this is not a checkpoint, or it is incomplete"));
  EXPECT_THAT(again.err(), HasSubstr("--resume auto resumes from the newest complete checkpoint"));
  EXPECT_TRUE(fs::exists(folder + "/rank-00000.safetensors")) << "somebody may want to look at it";
}

TEST_F(CheckpointedJob, GoesOnFromTheOneBeforeWhenTheNewestIsDamaged) {
  Program first(job(2, {steps(20), every(10)}));
  ASSERT_EQ(first.wait(60s), 0) << first.err();
  fs::resize_file(store().folder_of(store().list().front()) + "/rank-00001.safetensors", 1000);
  Program again(job(2, resume({steps(20), every(10)})));
  ASSERT_EQ(again.wait(60s), 0) << again.err();
  EXPECT_THAT(again.err(), HasSubstr("is passed over: "));
  EXPECT_THAT(again.err(), HasSubstr("going on from"));
  EXPECT_THAT(again.err(), HasSubstr("step 10 of 20"));
}

/// A disk of so many KiB at a folder of the job.
class SmallDisk {
 public:
  SmallDisk(fs::path folder, int kib) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    const std::string size = "size=" + std::to_string(kib) + "k";
    mounted_ = geteuid() == 0 && ::mount("none", folder_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const noexcept { return mounted_; }
  /// Fills the rest of the disk.
  void fill() const {
    std::ofstream filler{folder_ / "filler", std::ios::app | std::ios::binary};
    const std::string page(4096, 'x');
    while (filler.write(page.data(), 4096).flush()) {
    }
  }

 private:
  const fs::path folder_;
  bool mounted_ = false;
};
constexpr const char* kNoSmallDisk = "cannot mount a small disk here: that needs root, and mounts that are allowed";

TEST_F(CheckpointedJob, TrainsToTheEndWhenTheDiskIsFullAndEndsWithAnErrorSinceItsEndIsNotSaved) {
  const SmallDisk disk{folder_.path() / "tmp", 64};
  if (!disk.mounted()) GTEST_SKIP() << kNoSmallDisk;
  Program program(job(2, {steps(20), every(10), "checkpoint.dir=\"tmp/checkpoints\""}));
  EXPECT_EQ(program.wait(60s), 3) << program.err();
  EXPECT_THAT(program.err(), HasSubstr("the checkpoint of step 10 was not saved: rank"));
  EXPECT_THAT(program.err(), HasSubstr("is the disk full?"));
  EXPECT_THAT(program.err(), HasSubstr("the run ended after step 20, but its state is not saved: rank"));
  EXPECT_THAT(program.err(), HasSubstr("; this run has saved none"));
  EXPECT_THAT(program.out(), HasSubstr("\n1.2        ")) << "the epoch under way is told too";
}

TEST_F(CheckpointedJob, ThatSigtermEndsAsksForNoOtherTurnWhenItsEndIsNotSaved) {
  const SmallDisk disk{folder_.path() / "tmp", 1000};
  if (!disk.mounted()) GTEST_SKIP() << kNoSmallDisk;
  Program program(job(2, {steps(1'000'000), every(20), "checkpoint.dir=\"tmp/checkpoints\""}));
  const CheckpointStore there((folder_.path() / "tmp/checkpoints").string());
  ASSERT_TRUE(becomes_true([&] { return !there.list().empty(); }, 30s)) << program.err();
  disk.fill();
  const auto full = [](const Program& p) { return p.err().find("was not saved: ") != std::string::npos; };
  ASSERT_TRUE(program.wait_until(full, 30s)) << program.err();
  disk.fill();  // what that save had taken
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(30s), 128 + SIGTERM) << program.err();
  EXPECT_THAT(program.err(), HasSubstr("but its state is not saved: rank"));
  EXPECT_THAT(program.err(), HasSubstr("; the newest checkpoint of this run is of step "));
}

TEST_F(CheckpointedJob, DoesNotSaveWeightsThatAreNotFiniteAndEndsWithAnErrorWhereTheyAreTheLast) {
  // Each step makes the weights about 1,000 times as large, whatever the gradient; tanh keeps the loss finite.
  Program program(
      job(2, {steps(13), every(1), "optimizer.rule=\"sgd\"", "optimizer.rate=1000", "optimizer.weight_decay=1",
              "model.units=[1000,1000]", R"(model.layers=["global_average_pool",{kind="dense",units=10},"tanh"])"}));
  EXPECT_EQ(program.wait(60s), 1) << program.err();
  EXPECT_THAT(program.err(), HasSubstr("but its state is not saved: rank "));
  EXPECT_THAT(program.err(), HasSubstr("\" is infinite or not a number"));
  Blocking blocking = Blocking::on_thread("test");
  EXPECT_FALSE(store().list().empty());
  for (const CheckpointId id : store().list()) EXPECT_TRUE(store().verify(blocking, id).ok()) << id.steps;
}

TEST_F(CheckpointedJob, RefusesASecondJobInTheSameFoldersAndNamesTheFirst) {
  Program first(job(2, {steps(1'000'000), every(20)}));
  ASSERT_TRUE(becomes_true([this] { return !store().list().empty(); }, 30s)) << first.err();
  // One process fewer or as many, in the same report folder or with the same checkpoints only. Each waits for the first
  // job a while, so all of them at once.
  std::deque<Program> same, saves;
  for (const std::uint32_t ranks : {1U, 2U}) {
    same.emplace_back(job(ranks, {steps(20), every(10)}));
    saves.emplace_back(job(ranks, {steps(20), every(10), "report.dir=\"tmp/" + std::to_string(ranks) + "\"",
                                   "checkpoint.dir=\"run/checkpoints\""}));
  }
  for (Program& refused : same) {
    EXPECT_EQ(refused.wait(60s), 3) << refused.err();
    EXPECT_THAT(refused.err(), HasSubstr("run: another job writes into this folder: process "));
    EXPECT_THAT(refused.err(), HasSubstr("app.toml, since 20"));
    EXPECT_THAT(refused.err(), HasSubstr("set report.dir to a folder of its own"));
  }
  for (Program& refused : saves) {
    EXPECT_EQ(refused.wait(60s), 3) << refused.err();
    EXPECT_THAT(refused.err(), HasSubstr("run/checkpoints: another job writes into this folder: process "));
    EXPECT_THAT(refused.err(), HasSubstr(", run "));
    EXPECT_THAT(refused.err(), HasSubstr("set checkpoint.dir to a folder of its own"));
  }
  fs::remove_all(folder_.path() / "tmp");
  first.signal(SIGKILL);
  first.wait(10s);
  // A killed job does not block the folder.
  const std::uint64_t end = store().list().front().steps + 1000;
  Program next(job(2, resume({steps(end), every(10'000)})));
  EXPECT_EQ(next.wait(60s), 0) << next.err();
  EXPECT_EQ(store().list().front().steps, end);
  Blocking blocking = Blocking::on_thread("test");
  for (const CheckpointId id : store().list()) EXPECT_TRUE(store().verify(blocking, id).ok()) << id.steps;
}

}  // namespace
}  // namespace troupe::testing
