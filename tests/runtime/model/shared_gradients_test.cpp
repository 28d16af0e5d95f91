#include "runtime/model/shared_gradients.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

/// A network of dense layers of five units, sums, norms and curves, by the names of its layers.
class SharedGradientsOf {
 public:
  explicit SharedGradientsOf(std::vector<Layer> layers) {
    layers.insert(layers.begin(), {"a", Dense{5}, {std::string{kImage}}});
    const std::string last = layers.back().name;
    layers.push_back({"out", Dense{3}, {last}});
    layers.push_back({"loss", SoftmaxCrossEntropy{}, {"out", std::string{kLabel}}});
    for (const Layer& layer : layers) names_.push_back(layer.name);
    const Graph graph{"net",
                      {{std::string{kImage}, Shape{{6}}, DType::f32}, {std::string{kLabel}, {}, DType::i32, 3}},
                      DType::f32,
                      std::move(layers)};
    memory_ = SharedGradients{graph}.by_tensor();
  }
  bool have_one_memory(std::string_view one, std::string_view other) const { return at(one) == at(other); }

 private:
  std::uint32_t at(std::string_view name) const {
    return memory_.at(2 + static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin()));
  }

  std::vector<std::string> names_;
  std::vector<std::uint32_t> memory_;
};

TEST(SharedGradients, AreThoseOfTermsThatNothingElseReads) {
  const SharedGradientsOf net{
      {{"b", Dense{5}, {"a"}}, {"c", Dense{5}, {"a"}}, {"d", Dense{5}, {"a"}}, {"sum", Add{}, {"b", "c", "d"}}}};
  for (const char* const term : {"b", "c", "d"}) EXPECT_TRUE(net.have_one_memory(term, "sum")) << term;
  EXPECT_FALSE(net.have_one_memory("a", "sum"));
}

TEST(SharedGradients, AreThoseOfATermThatIsAddedToOnceTheOthersAreRead) {
  const SharedGradientsOf net{
      {{"b", Dense{5}, {"a"}}, {"t", Tanh{}, {"b"}}, {"c", Dense{5}, {"t"}}, {"sum", Add{}, {"a", "c"}}}};
  EXPECT_TRUE(net.have_one_memory("a", "sum"));
  EXPECT_TRUE(net.have_one_memory("c", "sum"));
  EXPECT_FALSE(net.have_one_memory("b", "sum"));
}

TEST(SharedGradients, AreNotThoseOfATermThatIsAddedToBeforeAnotherIsRead) {
  const SharedGradientsOf other{{{"b", Dense{5}, {"a"}}, {"sum", Add{}, {"a", "b"}}}};  // by the layer that reads it
  EXPECT_TRUE(other.have_one_memory("b", "sum"));
  EXPECT_FALSE(other.have_one_memory("a", "sum"));
  const SharedGradientsOf between{
      {{"b", Dense{5}, {"a"}}, {"c", Dense{5}, {"b"}}, {"d", Dense{5}, {"b"}}, {"sum", Add{}, {"b", "c", "d"}}}};
  EXPECT_FALSE(between.have_one_memory("b", "sum"));
}

TEST(SharedGradients, AreNotThoseOfATermThatALaterLayerReads) {
  const SharedGradientsOf net{
      {{"b", Dense{5}, {"a"}}, {"c", Dense{5}, {"b"}}, {"sum", Add{}, {"b", "c"}}, {"last", Multiply{}, {"sum", "b"}}}};
  EXPECT_FALSE(net.have_one_memory("b", "sum"));
  EXPECT_TRUE(net.have_one_memory("c", "sum"));
}

TEST(SharedGradients, AreNotThoseOfATermThatIsThereTwice) {
  const SharedGradientsOf net{{{"b", Dense{5}, {"a"}}, {"sum", Add{}, {"b", "b"}}}};
  EXPECT_FALSE(net.have_one_memory("b", "sum"));
}

// The gradient to `inner` is read where `c` is, before which the layer `d` adds to that to `b`.
TEST(SharedGradients, SeeWhatReadsTheMemoryOfSumsWithinSums) {
  const SharedGradientsOf net{{{"b", Dense{5}, {"a"}},
                               {"c", Dense{5}, {"a"}},
                               {"d", Dense{5}, {"b"}},
                               {"inner", Add{}, {"c", "d"}},
                               {"sum", Add{}, {"inner", "b"}}}};
  EXPECT_TRUE(net.have_one_memory("inner", "sum"));
  EXPECT_TRUE(net.have_one_memory("c", "sum"));
  EXPECT_FALSE(net.have_one_memory("b", "sum"));
}

TEST(SharedGradients, AreThoseOfAllLayersBetweenANormAndItsRelu) {
  const SharedGradientsOf net{{{"n", BatchNorm{}, {"a"}},
                               {"r", Relu{}, {"n"}},
                               {"b", Dense{5}, {"r"}},
                               {"m", BatchNorm{}, {"b"}},
                               {"sum", Add{}, {"r", "m"}},
                               {"s", Relu{}, {"sum"}}}};
  for (const char* const one : {"n", "r", "m", "sum"}) EXPECT_TRUE(net.have_one_memory(one, "s")) << one;
  for (const char* const one : {"a", "b"}) EXPECT_FALSE(net.have_one_memory(one, "s")) << one;
}

// The layer `b` adds to the gradient to `a` before the norm reads that to what its ReLU has put out.
TEST(SharedGradients, SeeThatANormReadsTheGradientOfItsRelu) {
  const SharedGradientsOf net{{{"c", Dense{5}, {"a"}},
                               {"n", BatchNorm{}, {"c"}},
                               {"b", Dense{5}, {"a"}},
                               {"t", Tanh{}, {"b"}},
                               {"r", Relu{}, {"n"}},
                               {"inner", Multiply{}, {"t", "b"}},
                               {"sum", Add{}, {"a", "r"}},
                               {"last", Add{}, {"sum", "inner"}}}};
  EXPECT_TRUE(net.have_one_memory("r", "sum"));
  EXPECT_FALSE(net.have_one_memory("a", "sum"));
}

}  // namespace
}  // namespace troupe
