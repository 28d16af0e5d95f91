#include "apps/models/models.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "runtime/base/error.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/dropout.hpp"
#include "tests/runtime/data/corpus.hpp"
#include "tests/runtime/onnx/hand_made_file.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Layer& layer : graph.layers()) names.push_back(layer.name);
  return names;
}

std::vector<Field> samples_of(Shape image, std::uint32_t classes) {
  return {{"image", std::move(image), DType::f32}, {"label", {}, DType::i32, classes}};
}

TEST(Models, MlpIsTheNetworkOfTheMnistExample) {
  const Graph graph = build_model(Settings{}, samples_of(Shape{{28, 28, 1}}, 10));
  EXPECT_EQ(graph.name(), "mlp");
  EXPECT_THAT(names_of(graph), ElementsAre("l1", "relu1", "l2", "relu2", "l3", "loss"));
  EXPECT_EQ(graph.count_parameters(), 784U * 1000 + 1000 + 1000 * 1000 + 1000 + 1000 * 10 + 10);
  EXPECT_EQ(graph.count_classes(), 10U);
  EXPECT_EQ(graph.dtype(), DType::f32);
}

TEST(Models, MlpFollowsTheSettings) {
  Settings settings;
  settings.model.units = {7};
  settings.model.dtype = DType::bf16;
  const Graph graph = build_model(settings, samples_of(Shape{{5}}, 3));
  EXPECT_EQ(graph.count_parameters(), 5U * 7 + 7 + 7 * 3 + 3);
  EXPECT_EQ(graph.dtype(), DType::bf16);
}

TEST(Models, MlpWithoutHiddenLayersIsALinearClassifier) {
  Settings settings;
  settings.model.units.clear();
  EXPECT_THAT(names_of(build_model(settings, samples_of(Shape{{5}}, 3))), ElementsAre("l1", "loss"));
}

TEST(Models, GptHasABlockForEachOfItsDepthAndALabelForEachByte) {
  Settings settings;
  settings.model.name = "gpt";
  settings.model.width = 12;
  settings.model.heads = 3;
  settings.model.depth = 2;
  const std::vector<Field> fields{{"tokens", {{16}}, DType::i32, 256}, {"label", {{16}}, DType::i32, 256}};
  const Graph graph = build_model(settings, fields);
  const std::uint64_t block = 2 * 2 * 12 + 12 * 36 + 36 + 12 * 12 + 12 + 12 * 48 + 48 + 48 * 12 + 12;
  EXPECT_EQ(graph.count_parameters(), 256 * 12 + 16 * 12 + 2 * block + 2 * 12 + 12 * 256 + 256);
  EXPECT_EQ(graph.count_classes(), 256U);
  EXPECT_EQ(graph.layers()[4].name, "block_1.attention");
  settings.model.heads = 5;
  try {
    build_model(settings, fields);
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.width = 12: is not a multiple of model.heads = 5"));
  }
}

/// Without the running statistics of batch norms.
std::uint64_t count_trained(const Graph& graph) {
  std::uint64_t count = 0;
  for (const Parameter& parameter : graph.parameters())
    if (!parameter.is_statistic()) count += parameter.count_elements();
  return count;
}

TEST(Models, ResnetsHaveTheParametersOfTheirPaper) {
  Settings settings;
  settings.model.name = "resnet";
  const auto parameters_of = [&](std::uint32_t depth, Shape image, std::uint32_t classes) {
    settings.model.depth = depth;
    return count_trained(build_model(settings, samples_of(std::move(image), classes)));
  };
  const Shape large{{224, 224, 3}};
  EXPECT_EQ(parameters_of(18, large, 1000), 11'689'512U);
  EXPECT_EQ(parameters_of(34, large, 1000), 21'797'672U);
  EXPECT_EQ(parameters_of(50, large, 1000), 25'557'032U);
  EXPECT_EQ(parameters_of(101, large, 1000), 44'549'160U);
  EXPECT_EQ(parameters_of(152, large, 1000), 60'192'808U);
  EXPECT_EQ(parameters_of(20, {{32, 32, 3}}, 10), 272'474U);
  for (const std::uint32_t depth : {2, 19, 51}) {
    try {
      parameters_of(depth, large, 10);
      FAIL() << depth << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text("model.depth = ", depth, ": a ResNet has 18, 34, 50, 101 or 152")));
    }
  }
}

TEST(Models, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  Settings settings;
  settings.model.name = "mpl";
  try {
    build_model(settings, samples_of(Shape{{5}}, 3));
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_THAT(error.what(), HasSubstr("mpl"));
    EXPECT_THAT(error.what(), HasSubstr("there are: mlp"));
  }
}

TEST(Models, MlpSaysWhichFieldTheDataLack) {
  try {
    build_model(Settings{}, {{"image", {{5}}, DType::f32}, {"boxes", {{4}}, DType::f32}});
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_THAT(error.what(),
                HasSubstr("model mlp reads a field \"label\"; the data set has image [5] f32, boxes [4] f32"));
  }
}

TEST(Models, LenetIsWhatItsAppTomlSpells) {
  const std::vector<Field> digits = samples_of(Shape{{28, 28, 1}}, 10);
  const Graph written =
      build_model(read_configuration(TROUPE_SOURCE_FOLDER "/apps/mnist/lenet.toml", {}).settings, digits);
  Settings settings;
  settings.model.name = "lenet";
  const Graph registered = build_model(settings, digits);
  EXPECT_EQ(written.layers(), registered.layers());
  EXPECT_EQ(registered.count_parameters(), 20U * 25 + 20 + 50 * 500 + 50 + 800 * 500 + 500 + 500 * 10 + 10);
}

TEST(Models, HaveTheLabelSmoothingOfTheSettingsInTheirLastLoss) {
  const std::vector<Field> fields = samples_of(Shape{{28, 28, 1}}, 10);
  const Layer smoothed{"loss", SoftmaxCrossEntropy{.smoothing = 0.1}};
  Settings settings;
  settings.model.label_smoothing = 0.1;
  for (const char* name : {"mlp", "lenet", "convnet"}) {
    settings.model.name = name;
    EXPECT_EQ(build_model(settings, fields).layers().back(), smoothed) << name;
  }
  settings.model.layers = {{"a", Dense{10}}, {"loss", SoftmaxCrossEntropy{}}};
  EXPECT_EQ(build_model(settings, fields).layers().back(), smoothed);
  const auto refusal = [&](Operation loss, const char* targets = "label") {
    settings.model.layers.back() = {"loss", std::move(loss), {"a", targets}};
    try {
      build_model(settings, fields);
    } catch (const Error& error) {
      return std::string{error.what()};
    }
    return std::string{"accepted"};
  };
  EXPECT_EQ(refusal(SoftmaxCrossEntropy{.smoothing = 0.1}), "accepted");
  EXPECT_THAT(refusal(SoftmaxCrossEntropy{.smoothing = 0.2}), HasSubstr("but layer loss has smoothing = 0.2"));
  settings.model.layers.front() = {"a", Dense{784}};
  EXPECT_THAT(refusal(SmoothL1{}, "image"), HasSubstr("the last layer, loss, is not a softmax_cross_entropy"));
}

TEST(Models, TheConvNetOfAllItsAppsIsCntks) {
  const std::vector<Field> images = samples_of(Shape{{32, 32, 3}}, 10);
  const auto net_of = [&](const char* file) {
    return build_model(read_configuration(text(TROUPE_SOURCE_FOLDER "/apps/cifar10/", file), {}).settings, images);
  };
  const Graph net = net_of("convnet.toml");
  EXPECT_EQ(net.layers(), net_of("block_momentum.toml").layers());
  EXPECT_EQ(net.layers(), net_of("quantized.toml").layers());
  EXPECT_EQ(net.count_parameters(),
            64U * 27 + 64 + 3 * (64 * 64 * 9 + 64) + 4096 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
  const auto drops = [](const Layer& layer) { return std::holds_alternative<Dropout>(layer.operation); };
  EXPECT_EQ(std::ranges::count_if(net.layers(), drops), 2);
  EXPECT_EQ(net.fields().back().name, kSampleKey);
}

TEST(Models, AnAppTrainsTheConvNetWithABatchNormBehindEachConvolution) {
  const std::vector<Field> images = samples_of(Shape{{32, 32, 3}}, 10);
  const auto net_of = [&](const char* file) {
    return build_model(read_configuration(text(TROUPE_SOURCE_FOLDER "/apps/cifar10/", file), {}).settings, images);
  };
  const Graph plain = net_of("convnet.toml"), normed = net_of("batch_norm.toml");
  const auto norms = [](const Layer& layer) { return std::holds_alternative<BatchNorm>(layer.operation); };
  EXPECT_EQ(std::ranges::count_if(normed.layers(), norms), 4);
  EXPECT_EQ(normed.count_parameters(), plain.count_parameters() + 4 * 4 * 64) << "scale, shift, mean and variance";
}

TEST(Models, ResNet20HasTheWeightsThatItsPaperCounts) {
  const Graph graph = build_model(read_configuration(TROUPE_SOURCE_FOLDER "/apps/cifar10/resnet20.toml", {}).settings,
                                  samples_of({{32, 32, 3}}, 10));
  std::uint64_t weights = 0, deep = 0, norms = 0;
  for (const Parameter& parameter : graph.parameters()) {
    const bool counted = parameter.extents.size() == 2 || (parameter.extents.size() == 4 && parameter.extents[3] == 3);
    deep += counted ? 1 : 0;
    weights += counted ? parameter.count_elements() : 0;
    norms += parameter.name.ends_with("running_var") ? 1 : 0;
  }
  EXPECT_EQ(deep, 20U) << "6n + 2 layers, n = 3";
  EXPECT_EQ(norms, 19U + 2U) << "behind each convolution, and behind the two beside a block that halves the image";
  EXPECT_EQ(weights, 432U + 6 * 2304 + 4608 + 5 * 9216 + 18432 + 5 * 36864 + 640);
}

TEST(Models, LayersReadTheFieldsThatTheyNameInTheModelsType) {
  Settings settings;
  settings.model.dtype = DType::bf16;
  settings.model.layers = {{"a", Dense{6}}, {"b", Dense{3}, {"a"}}, {"loss", SoftmaxCrossEntropy{}}};
  std::vector<Field> fields = samples_of(Shape{{5}}, 3);
  fields.push_back({"boxes", {{4}}, DType::f32});
  EXPECT_EQ(build_model(settings, fields).fields().size(), 2U) << "nobody reads boxes";
  EXPECT_EQ(build_model(settings, fields).fields()[0].dtype, DType::bf16);
  settings.model.layers[0].inputs = {"boxes"};
  EXPECT_EQ(build_model(settings, fields).fields()[0].name, "label");
  EXPECT_EQ(build_model(settings, fields).fields()[1].name, "boxes");
}

/// A file of a dense layer and of what stands at its end.
class ModelsOfAFile : public ::testing::Test {
 protected:
  void write(std::string_view last) {
    const std::string bytes = testing::File{}
                                  .input("x", {0, 4})
                                  .f32("a.weight", {3, 4}, testing::counted(12))
                                  .node("Gemm", {"x", "a.weight"}, "logits", {testing::number("transB", 1)})
                                  .node(last, {"logits"}, "end")
                                  .output("logits")
                                  .output("end")
                                  .bytes();
    std::ofstream{settings_.model.onnx_file, std::ios::binary} << bytes;
  }
  std::string refusal() const {
    try {
      build_model(settings_, fields_);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  static Settings settings_of(const std::string& file) {
    Settings settings;
    settings.model.onnx = settings.model.onnx_file = file;
    settings.model.onnx_output = "end";
    return settings;
  }

  testing::TempFolder folder_;
  Settings settings_ = settings_of(folder_.file("m.onnx"));
  std::vector<Field> fields_ = samples_of(Shape{{4}}, 3);
};

TEST_F(ModelsOfAFile, AreFollowedByTheLossOfClassifiersOrByLayersOfTheirOwn) {
  write("Relu");
  EXPECT_THAT(names_of(build_model(settings_, fields_)), ElementsAre("a", "end", "loss"));
  settings_.model.layers = {{"head", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}};
  const Graph graph = build_model(settings_, fields_);
  EXPECT_THAT(names_of(graph), ElementsAre("a", "end", "head", "loss"));
  EXPECT_EQ(graph.parameters()[1].name, "head.weight");
  settings_.model.onnx_output = "logits";
  EXPECT_THAT(names_of(build_model(settings_, fields_)), ElementsAre("a", "head", "loss"));
  settings_.model.layers[0].name = "a";
  EXPECT_THAT(refusal(), HasSubstr("model.layers has a layer a, and so has "));
}

TEST_F(ModelsOfAFile, LeaveOutWhatTheLossHas) {
  write("Softmax");
  EXPECT_THAT(names_of(build_model(settings_, fields_)), ElementsAre("a", "loss"));
  fields_[1] = {"label", {{3}}, DType::f32};
  settings_.model.layers = {{"loss", SigmoidCrossEntropy{}}};
  EXPECT_THAT(refusal(), HasSubstr("m.onnx: ends with a softmax, node node_end, which is left out only for "));
  write("Sigmoid");
  EXPECT_THAT(names_of(build_model(settings_, fields_)), ElementsAre("a", "loss"));
  settings_.model.layers = {{"loss", SmoothL1{}}};
  EXPECT_THAT(names_of(build_model(settings_, fields_)), ElementsAre("a", "end", "loss"));
}

}  // namespace
}  // namespace troupe
