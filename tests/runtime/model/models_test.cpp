#include "apps/models/models.hpp"

#include <gmock/gmock.h>

#include "runtime/base/error.hpp"
#include "runtime/config/config.hpp"

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
    EXPECT_THAT(error.what(), HasSubstr("model.width = 12: is no multiple of model.heads = 5"));
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

}  // namespace
}  // namespace troupe
