#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "devices/reference/reference_device.hpp"
#include "runtime/data/source.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/f16.hpp"
#include "tests/contracts/device_world.hpp"
#include "tests/contracts/gradient_distance.hpp"
#include "tests/contracts/layer_graphs.hpp"

namespace troupe::contracts {

/// What a replica does with each kind of layer: as the reference device does, up to rounding. For devices that compute
/// graphs; what one of them has no implementation for is refused with Code::unsupported, and passed over here. See
/// device_world.hpp for how to run it on a device.
class LayerContract : public DeviceWorld {
 protected:
  struct Run {
    std::vector<float> gradients;
    StepSums sums, evaluated;
  };

  /// Memory that every run of a device uses from its start.
  class Room {
   public:
    explicit Room(Memory whole) : whole_(whole) {}
    Memory take(std::uint64_t size_bytes) {
      const std::uint64_t first = used_;
      used_ += (size_bytes + 63) / 64 * 64;
      TROUPE_CHECK(used_ <= whole_.size_bytes, Code::out_of_memory, "a graph takes more than ", whole_.size_bytes,
                   " bytes");
      return slice(whole_, first, size_bytes);
    }

   private:
    Memory whole_;
    std::uint64_t used_ = 0;
  };

  /// The results of one step and one evaluation of the graph; nothing if the device refuses the graph.
  std::optional<Run> run(Device& on, Room room, const Graph& graph, const BatchLayout& batch_layout,
                         std::uint64_t key) {
    const Layout layout{graph};
    std::vector<float> parameters(layout.count_elements());
    fill_initial(graph, layout, key, parameters);
    for (const Layout::Entry& entry : layout.entries()) {  // biases too are to matter
      for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i)
        if (parameters[i] == 0) parameters[i] = static_cast<float>(0.2 * random_normal(sub_key(key, 5), i));
    }
    const auto fill = [&]<class T>(const std::vector<T>& values) {
      const Memory to = room.take(values.size() * sizeof(T));
      write(to, values);
      return to;
    };
    ReplicaMemory memory;
    memory.parameters = fill(parameters);
    memory.gradients = fill(std::vector<float>(parameters.size()));
    if (has_16_bits(graph.dtype())) {
      std::vector<std::uint16_t> copy;
      for (const float value : parameters) copy.push_back(graph.dtype() == DType::f16 ? to_f16(value) : to_bf16(value));
      memory.half = fill(copy);
    }
    // Whatever the scale is, it is not seen in the gradients.
    if (graph.dtype() == DType::f16 && on.traits().f16) {
      const LossScale scale = first_scale({.start = std::ldexp(1.0, static_cast<int>(random_below(key, 11, 14)))});
      memory.loss_scale = fill(std::vector{LossScaleState{scale, scale}});
    }
    const std::vector<StepSums> none(1);
    const Memory sums = fill(none), evaluated = fill(none);
    std::vector<std::byte> rows(batch_layout.size_bytes());
    fill_batch(batch_layout, rows.data(), key);
    const Memory batch = fill(rows);
    struct NoSink final : BucketSink {
      void ready(const Bucket&, Stream&) noexcept override {}
    } sink;
    std::unique_ptr<Replica> replica;
    try {
      const auto buckets = make_buckets(GroupId{}, graph, layout, random_below(key, 9, 2) * 2048);
      replica = on.compile(graph, layout, batch_layout, buckets, memory);
    } catch (const Error& error) {
      if (error.code() != Code::unsupported) throw;
      return std::nullopt;
    }
    const auto stream = on.stream();
    replica->step(*stream, batch, batch_layout.rows(), sums, sink);
    replica->evaluate(*stream, batch, batch_layout.rows(), evaluated);
    finish(*stream);
    return Run{get(memory.gradients), value<StepSums>(sums), value<StepSums>(evaluated)};
  }

  static void fill_batch(const BatchLayout& layout, std::byte* first, std::uint64_t key) {
    for (const BatchLayout::Entry& entry : layout.entries()) {
      std::byte* const to = first + entry.offset;
      if (entry.field.name == kSampleKey) continue;  // below
      const bool targets = entry.field.name == kTarget;
      const std::uint32_t classes = entry.field.classes == 0 ? kLayerClasses : entry.field.classes;
      for (std::uint64_t i = 0; i < layout.rows() * entry.row_elements(); ++i) {
        if (entry.field.dtype == DType::i32) {  // -1: does not count, is no token
          reinterpret_cast<std::int32_t*>(to)[i] =
              static_cast<std::int32_t>(random_below(sub_key(key, 4), i, classes + 1)) - 1;
          continue;
        }
        const auto value =
            static_cast<float>(targets ? drawn_target(sub_key(key, 6), i) : random_normal(sub_key(key, 3), i));
        if (entry.field.dtype == DType::f32)
          reinterpret_cast<float*>(to)[i] = value;
        else
          reinterpret_cast<std::uint16_t*>(to)[i] = to_bf16(value);
      }
    }
    std::vector<Sample> samples;
    for (std::uint32_t row = 0; row < layout.rows(); ++row) samples.push_back({.index = 7 * row, .epoch = 1});
    write_sample_keys({samples, key, &layout, first});
  }

  /// Whether the device computes the graph at all.
  bool compare(const Graph& graph, std::uint64_t key) { return compare(graph, key, tolerance_of(graph.dtype())); }
  bool compare(const Graph& graph, std::uint64_t key, const Tolerance& within) {
    SCOPED_TRACE(text("key ", key, ": ", graph.to_string()));
    // What 16 bits round weighs less where more rows are added up.
    const std::uint32_t least = has_16_bits(graph.dtype()) ? 4 : 1;
    const BatchLayout batch{least + static_cast<std::uint32_t>(random_below(key, 8, 9)), graph.fields()};
    if (!room_) room_.emplace(take(kRunBytes));
    const auto found = run(device(), *room_, graph, batch, key);
    if (!found) return false;
    if (!reference_) {
      reference_ = make_reference_device(space());
      reference_room_.emplace(arena()->allocate(kRunBytes));
    }
    const auto wanted = run(*reference_, *reference_room_, graph, batch, key);
    const double loss = std::max(wanted->sums.loss, static_cast<double>(wanted->sums.samples));
    EXPECT_NEAR(found->sums.loss, wanted->sums.loss, within.loss * loss);
    EXPECT_NEAR(found->evaluated.loss, wanted->evaluated.loss, within.loss * std::max(loss, wanted->evaluated.loss));
    EXPECT_EQ(found->sums.samples, wanted->sums.samples);
    EXPECT_EQ(found->evaluated.samples, wanted->evaluated.samples);
    if (graph.dtype() == DType::f32) {
      EXPECT_EQ(found->sums.correct, wanted->sums.correct);
      EXPECT_EQ(found->evaluated.correct, wanted->evaluated.correct);
    }
    const Layout layout{graph};
    if (has_16_bits(graph.dtype())) {
      EXPECT_LE(distance(*found, *wanted, {0, layout.count_elements()}), within.gradient) << batch.rows() << " rows";
      return true;
    }
    for (std::size_t p = 0; p < layout.entries().size(); ++p)
      EXPECT_LE(distance(*found, *wanted, layout.entries()[p]), within.gradient)
          << graph.parameters()[p].name << " of " << batch.rows() << " rows";
    return true;
  }

  static double distance(const Run& found, const Run& wanted, const Layout::Entry& entry) {
    return gradient_distance(std::span{found.gradients}, std::span{wanted.gradients}, entry);
  }

  void compare_kinds(DType dtype) {
    std::uint32_t computed = 0;
    for (const LayerKind* kind : kinds_of_layers())
      for (std::uint64_t key = 0; key < 12; ++key) computed += compare(graph_with(*kind, key, dtype), key) ? 1 : 0;
    if (computed == 0) GTEST_SKIP() << "the device computes none of them in " << name_of(dtype);
  }
  void compare_losses(DType dtype) {
    std::uint32_t computed = 0;
    for (const LayerKind* kind : kinds_of_losses())
      for (std::uint64_t key = 0; key < 24; ++key) computed += compare(graph_with_loss(*kind, key, dtype), key) ? 1 : 0;
    if (computed == 0) GTEST_SKIP() << "the device computes none of them in " << name_of(dtype);
  }
  void compare_networks(DType dtype) {
    std::uint32_t computed = 0;
    for (std::uint64_t key = 0; key < 40; ++key) computed += compare(random_network(key, dtype), key) ? 1 : 0;
    if (computed == 0) GTEST_SKIP() << "the device computes none of them in " << name_of(dtype);
  }
  void compare_few_channels(DType dtype) {
    std::uint32_t computed = 0;
    for (std::uint64_t key = 0; key < 40; ++key) computed += compare(network_of_few_channels(key, dtype), key) ? 1 : 0;
    if (computed == 0) GTEST_SKIP() << "the device computes none of them in " << name_of(dtype);
  }
  void compare_many_channels() {
    // Winograd's transforms add and subtract numbers that are larger than what comes out.
    constexpr Tolerance kByTransforms{5e-5, 5e-6};
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "one step of the reference takes half a minute here; networks of few channels are compared";
#endif
    std::uint32_t computed = 0;
    for (std::uint64_t key = 0; key < 16; ++key)
      computed += compare(network_of_many_channels(key), key, kByTransforms) ? 1 : 0;
    if (computed == 0) GTEST_SKIP() << "the device computes none of them";
  }

 private:
  static constexpr std::uint64_t kRunBytes = 7 << 20;
  std::optional<Room> room_, reference_room_;
  std::unique_ptr<Device> reference_;
};

TEST_P(LayerContract, HasTheGradientsOfTheReferenceForEachKindOfLayer) { compare_kinds(DType::f32); }
TEST_P(LayerContract, HasNearlyTheGradientsOfTheReferenceForEachKindOfLayerInBf16) { compare_kinds(DType::bf16); }
TEST_P(LayerContract, HasNearlyTheGradientsOfTheReferenceForEachKindOfLayerInF16) { compare_kinds(DType::f16); }
TEST_P(LayerContract, HasTheGradientsOfTheReferenceForEachLoss) { compare_losses(DType::f32); }
TEST_P(LayerContract, HasNearlyTheGradientsOfTheReferenceForEachLossInBf16) { compare_losses(DType::bf16); }
TEST_P(LayerContract, HasNearlyTheGradientsOfTheReferenceForEachLossInF16) { compare_losses(DType::f16); }
TEST_P(LayerContract, HasTheGradientsOfTheReferenceOnRandomNetworks) { compare_networks(DType::f32); }
TEST_P(LayerContract, HasTheGradientsOfTheReferenceOnNetworksOfFewChannels) { compare_few_channels(DType::f32); }
TEST_P(LayerContract, HasNearlyTheGradientsOfTheReferenceOnNetworksOfFewChannelsInBf16) {
  compare_few_channels(DType::bf16);
}
TEST_P(LayerContract, HasTheGradientsOfTheReferenceOnNetworksOfManyChannels) { compare_many_channels(); }
TEST_P(LayerContract, HasNearlyTheGradientsOfTheReferenceOnRandomNetworksInBf16) { compare_networks(DType::bf16); }
TEST_P(LayerContract, HasNearlyTheGradientsOfTheReferenceOnRandomNetworksInF16) { compare_networks(DType::f16); }

}  // namespace troupe::contracts
