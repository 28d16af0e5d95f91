#include "runtime/onnx/detail/arrangement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/fuzz/seed.hpp"

namespace troupe::detail {
namespace {

/// The array itself: of each element, in the array's order, its place in the tensor.
struct Array {
  std::vector<std::int64_t> dims;
  std::vector<std::size_t> places;

  explicit Array(const Shape& shape)
      : dims(shape.extents.begin(), shape.extents.end()), places(shape.count_elements()) {
    std::iota(places.begin(), places.end(), 0);
  }
  void permute(const std::vector<std::size_t>& order) {
    std::vector<std::int64_t> strides(dims.size(), 1), to, moved;
    for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    for (const std::size_t one : order) {
      to.push_back(dims[one]);
      moved.push_back(strides[one]);
    }
    std::vector<std::size_t> made;
    for (std::size_t i = 0; i < places.size(); ++i) {
      std::size_t rest = i, from = 0;
      for (std::size_t k = to.size(); k-- > 0;) {
        from += rest % static_cast<std::size_t>(to[k]) * static_cast<std::size_t>(moved[k]);
        rest /= static_cast<std::size_t>(to[k]);
      }
      made.push_back(places[from]);
    }
    dims = to;
    places = made;
  }
};

Shape drawn_shape(std::mt19937& dice) {
  Shape shape;
  for (std::uint32_t i = 1 + dice() % 3; i > 0; --i) shape.extents.push_back(std::vector{1U, 2U, 4U, 6U}[dice() % 4]);
  return shape;
}

/// As many elements in other extents.
std::vector<std::int64_t> drawn_dims(std::size_t count, std::mt19937& dice) {
  std::vector<std::int64_t> dims;
  while (count > 1) {
    std::size_t dim = 1 + dice() % count;
    while (count % dim != 0) --dim;
    if (dim == 1 && dice() % 4 != 0) continue;
    dims.push_back(static_cast<std::int64_t>(dim));
    count /= dim;
  }
  return dims;
}

TEST(Arrangement, SaysWhereElementsLieAfterAnyReshapesAndTranspositions) {
  std::mt19937 dice{testing::chosen_seed()};
  std::size_t followed = 0;
  for (int round = 0; round < 2000; ++round) {
    const Shape shape = drawn_shape(dice);
    const std::uint64_t rows = round % 3 == 0 ? 1 : 0;
    Array array{shape};
    Arrangement arranged{shape, rows};
    bool can = true;
    for (int step = 0; step < 4 && can; ++step) {
      if (dice() % 2 == 0) {
        std::vector<OnnxExtent> to{{1, rows == 0}};
        array.dims = drawn_dims(array.places.size(), dice);
        for (const std::int64_t dim : array.dims) to.push_back({dim});
        if (dice() % 2 == 0) to[dice() % to.size()] = {-1};
        if (rows == 0 && to[0].count != -1) to[0].of_rows = true;
        can = arranged.reshape(to);
      } else {
        std::vector<std::size_t> order(array.dims.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::shuffle(order, dice);
        array.permute(order);
        std::vector<std::int64_t> axes{0};
        for (const std::size_t one : order) axes.push_back(static_cast<std::int64_t>(one) + 1);
        ASSERT_TRUE(arranged.permute(axes));
      }
    }
    if (!can) continue;  // an extent that is cut where no tensor's is
    ASSERT_EQ(arranged.count_axes(), array.dims.size() + 1);
    for (std::size_t i = 0; i < array.dims.size(); ++i) ASSERT_EQ(arranged.extent(i + 1).count, array.dims[i]);
    ASSERT_TRUE(arranged.reshape({{1, rows == 0}, {-1}}));
    ASSERT_EQ(arranged.places(), array.places) << shape.to_string() << " round " << round;
    ++followed;
  }
  EXPECT_GT(followed, 800U);
}

TEST(Arrangement, IsEqualHoweverItCameToBe) {
  const Shape image{{4, 6, 3}};
  Arrangement cut{image, 0};
  ASSERT_TRUE(cut.reshape({{1, true}, {2}, {2}, {6}, {3}}));
  ASSERT_TRUE(cut.permute(std::vector<std::int64_t>{0, 4, 1, 2, 3}));
  ASSERT_TRUE(cut.reshape({{-1}, {3}, {4}, {6}}));
  EXPECT_EQ(cut, Arrangement::channels_first(image, 0));
  EXPECT_FALSE(cut.is_plain());
  EXPECT_EQ(cut.layers(image)->order, (std::vector<std::uint32_t>{2, 0, 1}));
  ASSERT_TRUE(cut.permute(std::vector<std::int64_t>{0, 2, 3, 1}));
  EXPECT_TRUE(cut.is_exactly_plain(image));
}

TEST(Arrangement, KeepsRowsApartFromOtherExtents) {
  Arrangement any{Shape{{6}}, 0};
  EXPECT_FALSE(Arrangement{any}.reshape({{1}, {6}})) << "the number of rows is fixed";
  EXPECT_FALSE(Arrangement{any}.reshape({{2}, {-1}}));
  EXPECT_TRUE(Arrangement{any}.reshape({{2, true}, {3}})) << "heads of all rows in one extent";
  Arrangement four{Shape{{6}}, 4};
  EXPECT_TRUE(Arrangement{four}.reshape({{8}, {3}}));
  EXPECT_FALSE(Arrangement{four}.reshape({{3}, {8}})) << "rows would be cut";
}

TEST(Arrangement, FindsTheHeadsOfAnAttention) {
  Arrangement heads{Shape{{5, 24}}, 0};
  ASSERT_TRUE(heads.take(2, 8, 8));
  ASSERT_TRUE(heads.reshape({{-1}, {5}, {2}, {4}}));
  ASSERT_TRUE(heads.permute(std::vector<std::int64_t>{0, 2, 1, 3}));
  const auto found = heads.heads(false);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->heads, 2U);
  EXPECT_EQ(found->width, 8U);
  EXPECT_EQ(found->part, 1U);
  EXPECT_FALSE(heads.heads(true));
  Arrangement back = Arrangement::of_heads(5, *found, 0);
  ASSERT_TRUE(back.permute(std::vector<std::int64_t>{0, 2, 1, 3}));
  ASSERT_TRUE(back.reshape({{-1}, {5}, {8}}));
  EXPECT_TRUE(back.is_exactly_plain(Shape{{5, 8}}));
}

}  // namespace
}  // namespace troupe::detail
