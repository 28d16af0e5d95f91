// Other programs read the weights that a job saved: Python with only NumPy, and the safetensors package.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "devices/cpu/cpu_device.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/data/find_data.hpp"
#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::uint32_t kClasses = 10;

struct NoSink final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

/// The example's network, 784-1000-1000-10, with weights from a file, on the CPU device.
class Network {
 public:
  explicit Network(const std::string& file) {
    const SafetensorsFile weights(file);
    for (std::size_t i = 0; i < graph_.parameters().size(); ++i) {
      const Layout::Entry entry = layout_.entries()[i];
      auto* const to = space_.address_of<float>(memory_.parameters) + entry.first;
      const SafetensorsEntry* const tensor = weights.header().find(graph_.parameters()[i].name);
      if (tensor == nullptr) throw std::runtime_error("no " + graph_.parameters()[i].name);
      weights.read(*tensor, 0, std::as_writable_bytes(std::span(to, entry.count)));
    }
  }

  /// Log-probabilities of the classes: the loss that each of them would have as the label.
  std::vector<double> classify(const Source& samples, std::uint64_t index) {
    std::vector<double> found;
    const std::array one{Sample{.index = index}};
    fill_now(samples, {one, 0, &batch_, space_.address(slot_)});
    for (std::int32_t label = 0; label < static_cast<std::int32_t>(kClasses); ++label) {
      *space_.address_of<std::int32_t>(slice(slot_, batch_.entry(kLabel).offset, sizeof label)) = label;
      *space_.address_of<StepSums>(sums_) = {};
      replica_->evaluate(*stream_, slot_, batch_.rows(), sums_);
      const Point end = stream_->mark();
      Blocking blocking = Blocking::on_thread("test");
      const Status done = space_.timeline(end.line).wait(blocking, end.value, Deadline::after(30s), "an evaluation");
      EXPECT_TRUE(done.ok()) << done.text();
      found.push_back(-space_.address_of<StepSums>(sums_)->loss);
    }
    return found;
  }

 private:
  const Graph graph_{"mlp",
                     Shape{{28, 28, 1}},
                     DType::f32,
                     {{"l1", Dense{1000}},
                      {"relu1", Relu{}},
                      {"l2", Dense{1000}},
                      {"relu2", Relu{}},
                      {"l3", Dense{kClasses}},
                      {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout_{graph_};
  const BatchLayout batch_{1, graph_.fields()};
  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = [this] {
    auto arena = Arena::create(arena_id(Peer{0}, 1), 2 * layout_.count_elements() * sizeof(float) + (1 << 16));
    space_.map(arena);
    return arena;
  }();
  const ReplicaMemory memory_{arena_->allocate(layout_.count_elements() * sizeof(float)),
                              {},
                              arena_->allocate(layout_.count_elements() * sizeof(float))};
  const Memory slot_ = arena_->allocate(batch_.size_bytes());
  const Memory sums_ = arena_->allocate(sizeof(StepSums));
  std::unique_ptr<Device> device_ = make_cpu_device(space_, {});
  std::unique_ptr<Replica> replica_ =
      device_->compile(graph_, layout_, batch_, make_buckets(GroupId{}, graph_, layout_, 0), memory_);
  std::unique_ptr<Stream> stream_ = device_->stream();
};

class OtherReaders : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped()) return;
    if (python({"-c", "import numpy"}) != 0) GTEST_SKIP() << "no python3 with NumPy (python3-numpy): " << said_;
  }
  void TearDown() override {
    fs::remove_all(folder_.path() / "run" / "checkpoints");
    ClusterTest::TearDown();
  }

  /// Runs a program in the job's folder; what it printed is said().
  int run(std::vector<std::string> arguments) {
    ProgramStart start = folder_.rtrun();
    start.arguments = std::move(arguments);
    Program program(start);
    const int code = program.wait(60s);
    said_ = program.out() + program.err();
    return code;
  }
  int python(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"/usr/bin/env", "python3"});
    return run(std::move(arguments));
  }
  const std::string& said() const { return said_; }
  std::string checkpoints() const { return folder_.path() / "run" / "checkpoints"; }

  /// MNIST where TROUPE_DATA or the folder beside the repository has it, otherwise digits drawn for this test.
  DataPlace data() const {
    const char* const set = std::getenv("TROUPE_DATA");
    const fs::path beside = fs::path{TROUPE_SHARED_FOLDER} / "data";
    if (set != nullptr || fs::exists(beside / "mnist"))
      return find_data({.environment = set != nullptr ? set : beside.string()});
    return find_data({.source = "generated", .cache = (folder_.path() / "tmp" / "digits").string()});
  }
  /// One of its files, packed or not.
  static std::string file_of(const DataPlace& place, const std::string& name) {
    const std::string plain = fs::path(place.folder) / name;
    return fs::exists(plain) ? plain : plain + ".gz";
  }

  std::string said_;
};

TEST_F(OtherReaders, GiveTheSameLogitsAndAccuracyFromTheWeightsFile) {
  const DataPlace place = data();
  ProgramStart start = folder_.rtrun({"--set", "train.epochs=1", "--set", "data.path=\"" + place.folder + '"'});
  start.arguments[1] = EXAMPLE_CONFIGURATION;
  Program rtrun{start};
  ASSERT_EQ(rtrun.wait(100s), 0) << rtrun.err();
  std::ifstream log{folder_.path() / "run/log"};
  const nlohmann::json epoch = nlohmann::json::parse(log).back();
  const std::string weights = checkpoints() + "/weights.safetensors";
  ASSERT_EQ(run({CKPT_PROGRAM, "weights", checkpoints(), "-o", weights}), 0) << said();
  ASSERT_EQ(python({READER, "test", weights, file_of(place, "t10k-images-idx3-ubyte"),
                    file_of(place, "t10k-labels-idx1-ubyte")}),
            0)
      << said();
  const nlohmann::json found = nlohmann::json::parse(said());
  const double samples = found.at("samples");
  EXPECT_NEAR(found.at("loss").get<double>() / epoch.at("validation/main/loss").get<double>(), 1, 1e-5);
  // A sample whose two best classes are as good as equal may go to either.
  EXPECT_NEAR(found.at("correct").get<double>(), epoch.at("validation/main/accuracy").get<double>() * samples, 1.5);
  std::cout << place.description << ": loss " << found.at("loss") << " and " << epoch.at("validation/main/loss")
            << ", correct " << found.at("correct") << " of " << samples << '\n';
  Network network(weights);
  const DataSet set = read_data(place);
  double greatest = 0;
  for (std::uint64_t image = 0; image < found.at("first").size(); ++image) {
    const std::vector<double> ours = network.classify(*set.test, image);
    for (std::uint32_t label = 0; label < kClasses; ++label)
      greatest = std::max(greatest, std::abs(found.at("first")[image][label].get<double>() - ours[label]));
  }
  EXPECT_LT(greatest, 1e-4) << "the greatest difference of a log-probability";
  std::cout << "the greatest difference of a log-probability: " << greatest << '\n';
  fs::remove_all(folder_.path() / "tmp" / "digits");
}

TEST_F(OtherReaders, OfThePackageFindTheSameTensorsInEveryFile) {
  if (python({"-c", "import safetensors.numpy"}) != 0) GTEST_SKIP() << "python3 has no safetensors: " << said();
  Program rtrun{folder_.rtrun({"--set", "train.epochs=1", "--set", "checkpoint.every_steps=1000"})};
  ASSERT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  const CheckpointStore store(checkpoints());
  const std::string weights = checkpoints() + "/weights.safetensors";
  ASSERT_EQ(run({CKPT_PROGRAM, "weights", checkpoints(), "-o", weights}), 0) << said();
  ASSERT_FALSE(store.list().empty());
  const std::string newest = store.folder_of(store.list().front());
  ASSERT_EQ(
      python({READER, "compare", weights, newest + "/rank-00000.safetensors", newest + "/rank-00001.safetensors"}), 0)
      << said();
  EXPECT_THAT(said(), HasSubstr("weights.safetensors 6 tensors the same"));
  EXPECT_THAT(said(), HasSubstr("rank-00001.safetensors"));
  EXPECT_THAT(said(), ::testing::Not(HasSubstr("NOT"))) << said();
}

}  // namespace
}  // namespace troupe::testing
