#include "runtime/model/dropout.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/data/source.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kElements = 20000;

std::uint64_t count_equal(const DroppedElements& a, const DroppedElements& b) {
  std::uint64_t equal = 0;
  for (std::uint64_t i = 0; i < kElements; ++i) equal += a.drops(i) == b.drops(i) ? 1 : 0;
  return equal;
}

TEST(Dropout, DropsAsManyElementsAsItsRateSays) {
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    const DroppedElements dropped{sample_key(7, 1, 3), 2, rate};
    double count = 0;
    for (std::uint64_t i = 0; i < kElements; ++i) count += dropped.drops(i) ? 1 : 0;
    EXPECT_NEAR(count / kElements, rate, 0.012) << "over three deviations off";
  }
}

TEST(Dropout, DrawsOthersForAnotherSeedEpochSampleOrLayer) {
  const DroppedElements one{sample_key(7, 1, 3), 2, 0.5};
  EXPECT_EQ(count_equal(one, {sample_key(7, 1, 3), 2, 0.5}), kElements);
  for (const DroppedElements& other :
       {DroppedElements{sample_key(8, 1, 3), 2, 0.5}, DroppedElements{sample_key(7, 2, 3), 2, 0.5},
        DroppedElements{sample_key(7, 1, 4), 2, 0.5}, DroppedElements{sample_key(7, 1, 3), 3, 0.5}})
    EXPECT_NEAR(static_cast<double>(count_equal(one, other)), kElements / 2.0, 300);
}

TEST(Dropout, GivesItsGraphAFieldOfKeysThatNoLayerReads) {
  const std::vector<Layer> layers{{"d", Dropout{}}, {"a", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}};
  const Graph graph{"g", Shape{{4}}, DType::f32, layers};
  ASSERT_EQ(graph.fields().size(), 3U);
  EXPECT_EQ(graph.fields().back(), sample_key_field());
  EXPECT_EQ(graph.count_readers(2), 0U);
  EXPECT_EQ(Graph("again", graph.fields(), DType::f32, layers).fields(), graph.fields());
}

TEST(Dropout, HasTheKeysOfABatchesSamplesRowByRow) {
  const BatchLayout batch{3, {{"image", {{4}}, DType::f32}, sample_key_field()}};
  std::vector<std::byte> slot(batch.size_bytes());
  const std::vector<Sample> samples{{.index = 5, .epoch = 2}, {.index = 9, .epoch = 2}};
  write_sample_keys({samples, 7, &batch, slot.data()});
  const auto* keys = reinterpret_cast<const std::int32_t*>(slot.data() + batch.entry(kSampleKey).offset);
  EXPECT_EQ(joined_key(keys), sample_key(7, 2, 5));
  EXPECT_EQ(joined_key(keys + 2), sample_key(7, 2, 9));
  EXPECT_EQ(joined_key(keys + 4), 0U) << "there is no third sample";
}

}  // namespace
}  // namespace troupe
