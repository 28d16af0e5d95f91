// model.layers: a model that is described in app.toml.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Layer> layers(const std::string& list) {
  return parse_configuration("[model]\nlayers = " + list + "\n", "app.toml", {}).settings.model.layers;
}

std::string refusal_of_layers(const std::string& list) {
  try {
    layers(list);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "accepted";
}

TEST(ConfigLayers, AreReadWithTheirAttributesNamesAndInputs) {
  const std::vector<Layer> found = layers(R"([
    { kind = "conv2d", filters = 20, kernel = [5, 3], padding = 2, name = "stem" },
    "tanh",
    { kind = "add", inputs = ["stem", "tanh_1"] },
    { kind = "dense", units = 10 },
    { kind = "softmax_cross_entropy", weight = 0.5, smoothing = 0.1, ignore = 7, inputs = ["dense_1", "label"] },
  ])");
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[0], (Layer{"stem", Conv2d{.filters = 20, .kernel = {5, 3}, .padding = {2, 2}}}));
  EXPECT_EQ(found[1], (Layer{"tanh_1", Tanh{}}));
  EXPECT_EQ(found[2], (Layer{"add_1", Add{}, {"stem", "tanh_1"}}));
  EXPECT_EQ(found[4], (Layer{"softmax_cross_entropy_1", SoftmaxCrossEntropy{0.5, 0.1, 7}, {"dense_1", "label"}}));
}

TEST(ConfigLayers, HaveListsAndWordsAsAttributes) {
  const std::string list = R"([{ kind = "transpose", order = [2, 0, 1] },
    { kind = "conv2d", filters = 4, bias = false }, { kind = "dense", units = 3, bias = true }])";
  const std::vector<Layer> found = layers(list);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0], (Layer{"transpose_1", Transpose{{2, 0, 1}}}));
  EXPECT_EQ(found[1], (Layer{"conv2d_1", Conv2d{.filters = 4, .bias = false}}));
  EXPECT_EQ(found[2], (Layer{"dense_1", Dense{.units = 3}}));
  const Configuration configuration = parse_configuration("[model]\nlayers = " + list + "\n", "app.toml", {});
  std::string shown;
  for (const EffectiveValue& value : configuration.values)
    if (value.key == "model.layers") shown = value.value;
  EXPECT_THAT(shown, HasSubstr("{ kind = \"transpose\", name = \"transpose_1\", order = [2, 0, 1] }"));
  EXPECT_THAT(shown, HasSubstr("filters = 4, bias = false }"));
  EXPECT_EQ(layers(shown), found);
}

TEST(ConfigLayers, EndWithALossWhereNoneIsWritten) {
  EXPECT_EQ(layers(R"([{ kind = "dense", units = 10 }])").back(), (Layer{"loss", SoftmaxCrossEntropy{}}));
  EXPECT_TRUE(layers("[]").empty()) << "the registered model";
}

TEST(ConfigLayers, AreShownSoThatTheyReadBackAsTheSame) {
  const std::string list =
      R"([{ kind = "conv2d", filters = 6, kernel = [5, 3], groups = 2 }, { kind = "max_pool", stride = 1 },
    "gelu", { kind = "dense", units = 4, name = "out" }, { kind = "softmax_cross_entropy", weight = 0.25, ignore = -1, inputs = ["out", "label"] }])";
  const Configuration configuration = parse_configuration("[model]\nlayers = " + list + "\n", "app.toml", {});
  std::string shown;
  for (const EffectiveValue& value : configuration.values)
    if (value.key == "model.layers") shown = value.value;
  EXPECT_THAT(shown,
              StartsWith("[{ kind = \"conv2d\", name = \"conv2d_1\", filters = 6, kernel = [5, 3], groups = 2 }, "));
  EXPECT_EQ(layers(shown), configuration.settings.model.layers);
}

TEST(ConfigLayers, NameWhatIsWrongAndWhatWasMeant) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"(["conv3d"])",
       "app.toml:2:11: model.layers has the layer \"conv3d\", which is not a kind of layer; did you mean conv2d?"},
      {R"([{ kind = "linear", units = 3 }])", "did you mean dense?"},
      {R"(["zzz"])", "which is not a kind of layer; there are dense, "},
      {R"(["transpose"])",
       "has a transpose without order: the input's extents, each once, as in [2, 0, 1]; write "
       "{ kind = \"transpose\", order = [2, 0, 1] }"},
      {R"([{ kind = "transpose", order = 2 }])",
       "whose order is the integer 2, but takes a list of integers: the input's extents, each once"},
      {R"([{ kind = "transpose", order = [1, -1] }])", "whose order is "},
      {R"([{ kind = "permute", order = [0] }])", "did you mean transpose?"},
      {R"([{ kind = "dense", units = 3, bias = 1 }])", "whose bias is the integer 1, but takes true or false: whether"},
      {R"(["dense"])", "has a dense without units: number of outputs; write { kind = \"dense\", units = 32 }"},
      {R"([{ kind = "dense", unit = 3 }])", "has a dense with the unknown key \"unit\"; did you mean units?"},
      {R"([{ kind = "conv2d", out_channels = 3 }])", "did you mean filters?"},
      {R"([{ kind = "relu", slope = 3 }])", "has a relu with the unknown key \"slope\"; it takes name and inputs only"},
      {R"([{ units = 3 }])", "has a table, which names no kind of layer, as in { kind = \"conv2d\""},
      {R"([3])", "has the integer 3, which names no kind of layer"},
      {R"([{ kind = "dense", units = 0 }])",
       "app.toml:2:37: model.layers has a dense whose units is 0; it must be at least 1"},
      {R"([{ kind = "dense", units = -1 }])",
       "has a dense whose units is the integer -1, but takes an integer of at least 1"},
      {R"([{ kind = "dense", units = "ten" }])", "has a dense whose units is the text \"ten\""},
      {R"([{ kind = "conv2d", filters = 2, kernel = [3] }])",
       "whose kernel is the array [3], but takes an integer, or [height, width]"},
      {R"([{ kind = "conv2d", filters = 2, stride = [1, 0] }])",
       "has a conv2d whose stride is 1x0; it must be at least 1"},
      {R"([{ kind = "relu", name = "" }])", "has a relu whose name is the text \"\""},
      {R"([{ kind = "relu", name = "a" }, { kind = "tanh", name = "a" }])", "give each layer a name of its own"},
      {R"([{ kind = "add", inputs = "a" }])", "has a add whose inputs are the text \"a\", but takes names"},
      {R"("tanh")", "model.layers is the text \"tanh\", but takes an array of layers"},
  };
  for (const auto& [list, answer] : cases) EXPECT_THAT(refusal_of_layers(list), HasSubstr(answer)) << list;
}

TEST(ConfigLayers, SynchronizedOverRanksAreRefusedWhereRanksDoNotTakeTheirStepsTogether) {
  const std::string list = R"([{ kind = "batch_norm", synchronized = true }, { kind = "dense", units = 10 }])";
  for (const char* const update : {"[update]\npolicy = \"async\"", "[update]\npolicy = \"ssp\"",
                                   "[update]\nswitch = [{ at_step = 5, policy = \"easgd\" }]"})
    EXPECT_THAT(refusal_of_layers(list + '\n' + update), HasSubstr("synchronized = true")) << update;
  EXPECT_EQ(refusal_of_layers(list + "\n[update]\npolicy = \"local_sgd\""), "accepted");
}

TEST(ConfigLayers, SynchronizedOverRanksAreRefusedWhereSeveralRanksWouldComputeThemAgain) {
  const std::string list = R"([{ kind = "batch_norm", synchronized = true, name = "b.norm" },
    { kind = "dense", name = "b.dense", units = 10 }, { kind = "dense", name = "top", units = 10 }])";
  const auto answer = [&](const char* range, const char* nodes) {
    return refusal_of_layers(text(list, "\n[train]\nrecompute = [\"", range, "\"]\n[cluster]\n", nodes));
  };
  for (const char* const range : {"b", "b.norm", "b.norm..top"}) {
    EXPECT_THAT(answer(range, "nodes = \"local:2\""), HasSubstr("the layer b.norm, in which ranks wait")) << range;
    EXPECT_THAT(answer(range, "nodes = [\"one:1\", \"two:1\"]"), HasSubstr("the layer b.norm")) << range;
    EXPECT_EQ(answer(range, "nodes = \"local:1\""), "accepted") << range;
  }
  EXPECT_EQ(answer("b.dense..top", "nodes = \"local:2\""), "accepted");
}

TEST(ConfigLayers, StandInsteadOfARegisteredModel) {
  EXPECT_THAT(
      refusal_of_layers("[{ kind = \"dense\", units = 10 }]\nunits = [500]"),
      HasSubstr("model.units cannot be used together with model.layers, which is the whole model; leave it out"));
  EXPECT_THAT(refusal_of_layers("[{ kind = \"dense\", units = 10 }]\nname = \"lenet\""),
              HasSubstr("model.name cannot be used together with model.layers"));
}

}  // namespace
}  // namespace troupe
