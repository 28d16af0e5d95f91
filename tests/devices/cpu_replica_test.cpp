#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <span>
#include <sstream>

#include "apps/models/models.hpp"
#include "devices/cpu/cpu_device.hpp"
#include "devices/cpu/image_layouts.hpp"
#include "devices/cpu/kernels/dense.hpp"
#include "devices/cpu/kernels/image_lanes.hpp"
#include "devices/cpu/kernels/one_channel_gradient.hpp"
#include "devices/cpu/kernels/panels.hpp"
#include "devices/cpu/onednn.hpp"
#include "devices/reference/reference_device.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/layer_list.hpp"
#include "tests/support/batches.hpp"

namespace troupe {
namespace {

struct NoSink final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

/// Devices with a common memory.
class CpuReplica : public ::testing::Test {
 protected:
  CpuReplica() { space_.map(arena_); }
  template <class T>
  T* at(const Memory& memory) {
    return space_.address_of<T>(memory);
  }
  void finish(Stream& stream) {
    const Point end = stream.mark();
    Blocking blocking = Blocking::on_thread("test");
    const Status status =
        space_.timeline(end.line).wait(blocking, end.value, Deadline::after(std::chrono::seconds{30}), "a step");
    ASSERT_TRUE(status.ok()) << status.text();
  }

  /// A random chain of Dense layers, most with a ReLU behind them.
  static Graph random_graph(std::uint64_t key, DType dtype) {
    std::vector<Layer> layers;
    const std::uint64_t depth = 1 + random_below(key, 0, 3);
    for (std::uint64_t i = 0; i < depth; ++i) {
      const bool last = i + 1 == depth;
      layers.push_back(
          {text("d", i), Dense{static_cast<std::uint32_t>(2 + random_below(key, 10 + i, last ? 20 : 130))}});
      if (random_below(key, 20 + i, 4) != 0) layers.push_back({text("r", i), Relu{}});
    }
    layers.push_back({"loss", SoftmaxCrossEntropy{}});
    return {"random", Shape{{static_cast<std::uint32_t>(1 + random_below(key, 1, 150))}}, dtype, std::move(layers)};
  }

  /// Layers that read one or two fields, one another in any order, and sums of them; one loss, or another on the way.
  static Graph random_branches(std::uint64_t key, DType dtype) {
    std::vector<Field> fields{{"image", {{static_cast<std::uint32_t>(1 + random_below(key, 1, 60))}}, dtype}};
    if (random_below(key, 2, 2) == 0) fields.push_back({"more", {{3, 2}}, dtype});
    struct Made {
      std::string name;
      bool read = false;
    };
    std::vector<Layer> layers;
    std::vector<Made> made;  // all as wide as each other
    constexpr std::uint32_t kWidth = 24;
    const auto add = [&](Operation operation, std::vector<std::string> inputs) {
      layers.push_back({text("t", layers.size()), operation, std::move(inputs)});
      made.push_back({layers.back().name});
    };
    std::uint64_t draw = 100;
    const auto any = [&] {
      Made& one = made[random_below(key, ++draw, made.size())];
      one.read = true;
      return one.name;
    };
    for (const Field& field : fields) {
      std::string from = field.name;
      if (random_below(key, ++draw, 3) == 0) {
        layers.push_back({text("cut ", field.name), Relu{}, {from}});
        from = layers.back().name;
      }
      add(Dense{kWidth}, {from});
    }
    for (std::uint64_t i = 0, count = random_below(key, 3, 8); i < count; ++i) {
      switch (random_below(key, ++draw, 4)) {
        case 0: add(Dense{kWidth}, {any()}); break;
        case 1: add(Relu{}, {any()}); break;
        case 2: add(Add{}, {any(), any()}); break;
        default: add(Add{}, {any(), any(), any()}); break;
      }
    }
    if (random_below(key, 4, 2) == 0) {
      fields.push_back({"kind", {}, DType::i32, kWidth});
      layers.push_back({"kind loss", SoftmaxCrossEntropy{0.5}, {any(), "kind"}});
    }
    std::vector<std::string> ends;
    for (const Made& one : made)
      if (!one.read) ends.push_back(one.name);
    std::string end = ends.empty() ? any() : ends.front();
    if (ends.size() > 1) {
      layers.push_back({"end", Add{}, ends});
      end = "end";
    }
    fields.push_back({"label", {}, DType::i32, kWidth});
    if (random_below(key, 5, 2) == 0) {
      layers.push_back({"out", Dense{kWidth}, {end}});
      end = "out";
    }
    layers.push_back({"loss", SoftmaxCrossEntropy{}, {end, "label"}});
    return {"branches", std::move(fields), dtype, std::move(layers)};
  }

  ReplicaMemory make_memory(const Graph& graph, const Layout& layout, std::uint64_t seed) {
    const std::uint64_t count = layout.count_elements();
    ReplicaMemory memory{arena_->allocate(count * 4), {}, arena_->allocate(count * 4)};
    fill_initial(graph, layout, seed, {at<float>(memory.parameters), count});
    for (const Layout::Entry& entry : layout.entries()) {  // biases too are to matter
      for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
        float& value = at<float>(memory.parameters)[i];
        if (value == 0) value = static_cast<float>(0.2 * random_normal(sub_key(seed, 5), i));
      }
    }
    if (graph.dtype() == DType::bf16) {
      memory.half = arena_->allocate(count * 2);
      for (std::uint64_t i = 0; i < count; ++i)
        at<std::uint16_t>(memory.half)[i] = to_bf16(at<float>(memory.parameters)[i]);
    }
    return memory;
  }
  Memory make_batch(const BatchLayout& layout, std::uint32_t classes, std::uint64_t key) {
    const Memory batch = arena_->allocate(layout.size_bytes());
    for (const BatchLayout::Entry& entry : layout.entries()) {
      fill_field(entry, at<std::byte>(batch) + entry.offset, layout.rows(), classes, key);
      key = sub_key(key, 7);
    }
    return batch;
  }
  static void fill_field(const BatchLayout::Entry& entry, std::byte* first, std::uint32_t rows, std::uint32_t classes,
                         std::uint64_t key) {
    for (std::uint64_t i = 0; i < rows * entry.row_elements(); ++i) {
      const auto value = static_cast<float>(random_unit(key, i));
      const bool counts = random_below(sub_key(key, 2), i, 5) != 0;
      switch (entry.field.dtype) {
        case DType::f32: reinterpret_cast<float*>(first)[i] = value; break;
        case DType::f16: break;  // the CPU device refuses it
        case DType::bf16: reinterpret_cast<std::uint16_t*>(first)[i] = to_bf16(value); break;
        case DType::i32:
          reinterpret_cast<std::int32_t*>(first)[i] =
              counts ? static_cast<std::int32_t>(random_below(sub_key(key, 1), i, classes)) : -1;
          break;
      }
    }
  }
  /// |a - b| / |b| over one parameter's gradients; 0 when both are zero.
  double distance(const Memory& a, const Memory& b, const Layout::Entry& entry) {
    double difference = 0, size = 0;
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
      difference += std::pow(static_cast<double>(at<float>(a)[i]) - at<float>(b)[i], 2);
      size += std::pow(static_cast<double>(at<float>(b)[i]), 2);
    }
    return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
  }
  /// One step on both devices from the same parameters.
  void compare(std::uint64_t key, const Graph& graph, double gradient_tolerance, double loss_tolerance) {
    compare(key, graph, static_cast<std::uint32_t>(1 + random_below(key, 2, 40)), gradient_tolerance, loss_tolerance);
  }
  void compare(std::uint64_t key, const Graph& graph, std::uint32_t rows, double gradient_tolerance,
               double loss_tolerance) {
    SCOPED_TRACE(text("key ", key, ": ", graph.to_string()));
    const Layout layout{graph};
    const BothSteps both = step_on_both(key, graph, layout, rows);
    EXPECT_NEAR(both.found_sums.loss, both.wanted_sums.loss, loss_tolerance * both.wanted_sums.loss);
    EXPECT_EQ(both.found_sums.samples, both.wanted_sums.samples);
    for (std::size_t p = 0; p < layout.entries().size(); ++p) {
      EXPECT_LT(distance(both.found, both.wanted, layout.entries()[p]), gradient_tolerance)
          << graph.parameters()[p].name << " of " << rows << " rows";
    }
  }
  /// Each element of each gradient. It is a sum, of whose terms each has passed at most `roundings` to bf16 on its way.
  /// One of them changes a number by at most 2^-8 of it, so a term by at most roundings / 256. Where terms have both
  /// signs, an element is smaller than they are: they count as large as an element of this gradient usually is.
  void compare_each(std::uint64_t key, const Graph& graph, std::uint32_t rows, int roundings) {
    SCOPED_TRACE(text("key ", key, ": ", graph.to_string()));
    const Layout layout{graph};
    const BothSteps both = step_on_both(key, graph, layout, rows);
    for (std::size_t p = 0; p < layout.entries().size(); ++p) {
      const Layout::Entry& entry = layout.entries()[p];
      const auto wanted = std::span(at<float>(both.wanted) + entry.first, entry.count);
      double squares = 0;
      for (const double value : wanted) squares += value * value;
      const double usual = std::sqrt(squares / static_cast<double>(entry.count));
      for (std::size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(at<float>(both.found)[entry.first + i], wanted[i],
                    roundings / 256.0 * (std::abs(double{wanted[i]}) + usual))
            << graph.parameters()[p].name << ", element " << i;
    }
  }

  /// Of one step on each device from the same parameters: the gradients and the sums of the CPU device, and those of
  /// the reference.
  struct BothSteps {
    Memory found, wanted;
    StepSums found_sums, wanted_sums;
  };
  BothSteps step_on_both(std::uint64_t key, const Graph& graph, const Layout& layout, std::uint32_t rows) {
    const BatchLayout batch_layout{rows, graph.fields()};
    const auto buckets = make_buckets(GroupId{}, graph, layout, random_below(key, 3, 2) * 4096);
    const ReplicaMemory memory = make_memory(graph, layout, key);
    ReplicaMemory expected = memory;
    expected.gradients = arena_->allocate(layout.count_elements() * 4);
    const Memory batch = make_batch(batch_layout, graph.count_classes(), key);
    const Memory sums = arena_->allocate(sizeof(StepSums)), expected_sums = arena_->allocate(sizeof(StepSums));
    NoSink sink;
    const auto run = [&](Device& device, const ReplicaMemory& at, const Memory& to) {
      const auto replica = device.compile(graph, layout, batch_layout, buckets, at);
      const auto stream = device.stream();
      replica->step(*stream, batch, batch_layout.rows(), to, sink);
      finish(*stream);
    };
    run(*cpu_, memory, sums);
    run(*reference_, expected, expected_sums);
    return {memory.gradients, expected.gradients, *at<StepSums>(sums), *at<StepSums>(expected_sums)};
  }

  /// Of one step of `rows` rows.
  void expect_same_gradients_on_any_number_of_threads(const Graph& graph, std::uint32_t rows) {
    const Layout layout{graph};
    const BatchLayout batch_layout{rows, graph.fields()};
    const auto buckets = make_buckets(GroupId{}, graph, layout, 0);
    const ReplicaMemory memory = make_memory(graph, layout, 1);
    const Memory batch = make_batch(batch_layout, graph.count_classes(), 1);
    const auto gradients_on = [&](std::uint32_t threads) {
      const auto device = make_cpu_device(space_, {.threads = threads});
      const auto replica = device->compile(graph, layout, batch_layout, buckets, memory);
      const auto stream = device->stream();
      NoSink sink;
      replica->step(*stream, batch, batch_layout.rows(), arena_->allocate(sizeof(StepSums)), sink);
      finish(*stream);
      const auto* const first = at<std::uint32_t>(memory.gradients);
      return std::vector<std::uint32_t>(first, first + layout.count_elements());
    };
    const auto expected = gradients_on(1);
    EXPECT_EQ(gradients_on(2), expected);
    EXPECT_EQ(gradients_on(3), expected);
  }

  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{0}, 1), 64 << 20);
  std::unique_ptr<Device> cpu_ = make_cpu_device(space_, {});
  std::unique_ptr<Device> reference_ = make_reference_device(space_);
};

TEST_F(CpuReplica, HasTheGradientsOfTheReferenceInF32OnRandomGraphs) {
  for (std::uint64_t key = 0; key < 40; ++key) compare(key, random_graph(key, DType::f32), 1e-5, 1e-6);
}

TEST_F(CpuReplica, HasTheGradientsOfTheReferenceOnTwoThreads) {
  cpu_ = make_cpu_device(space_, {.threads = 2});
  for (std::uint64_t key = 200; key < 210; ++key) compare(key, random_graph(key, DType::f32), 1e-5, 1e-6);
}

TEST_F(CpuReplica, HasNearlyTheGradientsOfTheReferenceInBf16OnRandomGraphs) {
  for (std::uint64_t key = 100; key < 140; ++key) compare(key, random_graph(key, DType::bf16), 0.15, 0.02);
}

TEST_F(CpuReplica, HasTheGradientsOfTheReferenceWhereLayersBranchAndLossesAreSeveral) {
  for (std::uint64_t key = 300; key < 400; ++key) compare(key, random_branches(key, DType::f32), 1e-5, 1e-6);
  for (std::uint64_t key = 400; key < 440; ++key) compare(key, random_branches(key, DType::bf16), 0.2, 0.02);
}

/// A dense layer's output is added to its input, which a second loss reads, too, if that loss is there.
Graph residual_connection(bool with_a_loss_inside) {
  std::vector<Field> fields{{"image", {{24}}, DType::f32}, {"label", {}, DType::i32, 24}};
  std::vector<Layer> layers{
      {"first", Dense{24}, {"image"}}, {"norm", LayerNorm{}, {"first"}}, {"made", Dense{24}, {"norm"}}};
  if (with_a_loss_inside) {
    fields.push_back({"kind", {}, DType::i32, 24});
    layers.push_back({"inside", SoftmaxCrossEntropy{0.5}, {"first", "kind"}});
  }
  layers.push_back({"sum", Add{}, {"first", "made"}});
  layers.push_back({"out", Dense{24}, {"sum"}});
  layers.push_back({"loss", SoftmaxCrossEntropy{}, {"out", "label"}});
  return {"residual", std::move(fields), DType::f32, std::move(layers)};
}

TEST_F(CpuReplica, HasTheGradientsOfTheReferenceAtResidualConnectionsOfManyRows) {
  for (const bool with_a_loss_inside : {false, true})
    compare(7, residual_connection(with_a_loss_inside), 300, 1e-5, 1e-6);
}

Graph mnist_mlp(DType dtype) {
  return {"mlp",
          Shape{{784}},
          dtype,
          {{"l1", Dense{1000}},
           {"r1", Relu{}},
           {"l2", Dense{1000}},
           {"r2", Relu{}},
           {"l3", Dense{10}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

Graph lenet(DType dtype) {
  Settings settings;
  settings.model.name = "lenet";
  settings.model.dtype = dtype;
  return build_model(settings,
                     {{std::string{kImage}, {{28, 28, 1}}, DType::f32}, {std::string{kLabel}, {}, DType::i32, 10}});
}

/// The ConvNet that CNTK trains on CIFAR-10, without its dropout.
Graph convnet(DType dtype) {
  LayerList net;
  for (int block = 0; block < 2; ++block) {
    for (int i = 0; i < 2; ++i) {
      net.add(Conv2d{.filters = 64, .kernel = {3, 3}, .padding = {1, 1}});
      net.add(Relu{});
    }
    net.add(MaxPool{.kernel = {3, 3}, .stride = {2, 2}});
  }
  for (const std::uint32_t units : {256, 128}) {
    net.add(Dense{units});
    net.add(Relu{});
  }
  net.add(Dense{10});
  return {"convnet", Shape{{32, 32, 3}}, dtype, net.finish()};
}

/// Batch norms with and without a ReLU, of images and of units, of many numbers of channels; products and
/// concatenations.
Graph normalized(DType dtype) {
  LayerList net;
  net.add(BatchNorm{});  // of 3 channels
  for (const std::uint32_t filters : {5, 8, 16, 24, 64}) {
    const std::string narrow =
        net.add(Conv2d{.filters = filters, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    net.add(BatchNorm{});
    const std::string relu = net.add(Relu{});
    const std::string norm = net.add(BatchNorm{}, {narrow});
    const std::string product = net.add(Multiply{}, {relu, norm});
    net.add(Concat{}, {product, narrow});
  }
  net.add(Dense{50});
  net.add(BatchNorm{});
  net.add(Relu{});
  net.add(Dense{10});
  return {"normalized", Shape{{64, 64, 3}}, dtype, net.finish()};
}

class CpuReplicaOf : public CpuReplica, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryType, CpuReplicaOf, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string{name_of(info.param)}; });

TEST_P(CpuReplicaOf, NeverUsesReferenceCodeForTheMnistModel) {
  const DType dtype = GetParam();
  const Graph graph = mnist_mlp(dtype);
  const Layout layout{graph};
  const auto replica = cpu_->compile(graph, layout, {100, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                     make_memory(graph, layout, 1));
  const std::string implementations = describe_cpu_replica(*replica);
  EXPECT_EQ(implementations.find(": ref"), implementations.npos) << implementations;
  EXPECT_EQ(std::count(implementations.begin(), implementations.end(), '\n'), 3 + 3 + 2) << implementations;
}

TEST_P(CpuReplicaOf, NeverUsesReferenceCodeForConvolutionNetworks) {
  for (const Graph& graph : {lenet(GetParam()), convnet(GetParam()), normalized(GetParam())}) {
    const Layout layout{graph};
    const auto replica = cpu_->compile(graph, layout, {64, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                       make_memory(graph, layout, 1));
    const std::string implementations = describe_cpu_replica(*replica);
    EXPECT_EQ(implementations.find(": ref"), implementations.npos) << graph.name() << '\n' << implementations;
    RecordProperty(graph.name(), implementations);
  }
}

TEST_P(CpuReplicaOf, NeverUsesReferenceCodeForResnetsAndGpts) {
  Settings settings;
  settings.model.dtype = GetParam();
  const auto check = [&](const char* name, std::uint32_t depth, const std::vector<Field>& fields) {
    settings.model.name = name;
    settings.model.depth = depth;
    const Graph graph = build_model(settings, fields);
    const Layout layout{graph};
    const auto replica = cpu_->compile(graph, layout, {4, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                       make_memory(graph, layout, 1));
    const std::string implementations = describe_cpu_replica(*replica);
    EXPECT_EQ(implementations.find(": ref"), implementations.npos) << graph.name() << '\n' << implementations;
  };
  const Field label{std::string{kLabel}, {}, DType::i32, 10};
  check("resnet", 20, {{std::string{kImage}, {{32, 32, 3}}, DType::f32}, label});
  settings.model.width = 96;
  check("gpt", 2, {{"tokens", {{40}}, DType::i32, 256}, {std::string{kLabel}, {{40}}, DType::i32, 256}});
}

TEST_F(CpuReplica, ConvolvesByWinogradsAlgorithmWhereThatGains) {
  if (!cpu::onednn_has_winograd()) GTEST_SKIP() << "oneDNN has no such implementation here";
  const auto implementations_of = [&](std::uint32_t filters, std::uint32_t rows) {
    LayerList net;
    for (int i = 0; i < 2; ++i) net.add(Conv2d{.filters = filters, .kernel = {3, 3}, .padding = {1, 1}});
    net.add(MaxPool{});
    net.add(Dense{10});
    const Graph graph{"two", Shape{{16, 16, 3}}, DType::f32, net.finish()};
    const Layout layout{graph};
    const auto replica = cpu_->compile(graph, layout, {rows, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                       make_memory(graph, layout, 1));
    const std::string lines = describe_cpu_replica(*replica);
    std::uint32_t found = 0;
    for (std::size_t at = lines.find("wino"); at != lines.npos; at = lines.find("wino", at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(implementations_of(64, 4), 3U);  // the second one, forward and both gradients
  EXPECT_EQ(implementations_of(64, 3), 0U);  // too few tiles
  EXPECT_EQ(implementations_of(16, 4), 0U);  // too few channels
  EXPECT_EQ(implementations_of(56, 4), 0U);  // no whole blocks
}

/// Images of 16 channels before and after images of `filters` channels. The convolution between the latter gains by
/// Winograd's algorithm if they are whole blocks.
Graph one_block_and_more(std::uint32_t filters) {
  const auto conv = [](std::uint32_t to, std::uint32_t stride) {
    return Conv2d{.filters = to, .kernel = {3, 3}, .stride = {stride, stride}, .padding = {1, 1}};
  };
  LayerList net;
  net.add(Conv2d{.filters = 16, .kernel = {3, 3}, .padding = {1, 1}, .bias = false});
  net.add(BatchNorm{});
  const std::string relu = net.add(Relu{});
  net.add(Add{}, {relu, net.add(conv(16, 1))});
  net.add(conv(filters, 2));
  net.add(conv(filters, 1));
  net.add(Relu{});
  net.add(conv(16, 1));
  net.add(Relu{});
  net.add(Dense{10});
  return {"blocks", Shape{{16, 16, 3}}, DType::f32, net.finish()};
}

TEST_F(CpuReplica, HasTheGradientsOfTheReferenceWhereOneBlockOfChannelsMeetsMore) {
  compare(1, one_block_and_more(32), 16, 5e-5, 1e-6);
}

TEST_F(CpuReplica, HasImagesInBlocksOnlyBesideConvolutionsOfTheirSizeThatGain) {
  constexpr std::uint32_t kRows = 4;
  const auto conv = [](std::uint32_t filters, std::uint32_t stride) {
    return Conv2d{.filters = filters, .kernel = {3, 3}, .stride = {stride, stride}, .padding = {1, 1}};
  };
  LayerList net;
  for (const Conv2d& each : {conv(32, 1), conv(32, 1)}) net.add(each);
  net.add(Relu{});
  for (const Conv2d& each : {conv(64, 2), conv(64, 1)}) net.add(each);  // too few tiles
  net.add(Dense{10});
  const Graph graph{"two sizes", Shape{{16, 16, 3}}, DType::f32, net.finish()};
  std::vector<std::uint32_t> same(graph.fields().size() + graph.layers().size());
  std::iota(same.begin(), same.end(), 0);
  const std::vector<bool> found = cpu::tensors_in_blocks(graph, same, kRows);
  std::vector<bool> of_layers;
  for (std::uint32_t layer = 0; layer < 5; ++layer) of_layers.push_back(found[graph.output_tensor(layer)]);
  EXPECT_EQ(of_layers, (std::vector<bool>{true, true, true, false, false}));
  compare(1, graph, kRows, 5e-5, 1e-6);
}

TEST_F(CpuReplica, ConvolvesOneBlockOfChannelsAlikeInGraphsWithAndWithoutWinograd) {
  if (!cpu::onednn_has_winograd()) GTEST_SKIP() << "no images are in blocks";
  const auto lines_of = [&](std::uint32_t filters, const std::string& wanted) {
    const Graph graph = one_block_and_more(filters);
    const Layout layout{graph};
    const auto replica = cpu_->compile(graph, layout, {16, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                       make_memory(graph, layout, 1));
    std::vector<std::string> found;
    std::istringstream lines{describe_cpu_replica(*replica)};
    for (std::string line; std::getline(lines, line);)
      if (line.find(wanted) != line.npos) found.push_back(line);
    return found;
  };
  EXPECT_THAT(lines_of(32, "wino"),
              ::testing::SizeIs(4));  // both forward passes, as batch norms have two, and gradients
  EXPECT_THAT(lines_of(24, "wino"), ::testing::IsEmpty());
  EXPECT_THAT(lines_of(32, "layer conv2d_2,"), ::testing::SizeIs(4));
  EXPECT_EQ(lines_of(32, "layer conv2d_2,"), lines_of(24, "layer conv2d_2,"));
}

/// Convolutions of numbers of channels and filters that are no whole vectors.
Graph small_channels(DType dtype, std::uint32_t channels, std::uint32_t filters) {
  LayerList net;
  net.add(Conv2d{.filters = channels, .kernel = {3, 3}});
  net.add(Tanh{});
  net.add(Conv2d{.filters = filters, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(Tanh{});
  net.add(Dense{10});
  return {"small", Shape{{10, 10, 2}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, ConvolvesWithImagesInLanesWhereThatGains) {
  const auto usable = cpu::usable_lane_kernels(GetParam() == DType::bf16);
  if (usable.empty() || (GetParam() == DType::bf16 && cpu::has_amx_instructions()))
    GTEST_SKIP() << "no such kernels are used on this processor";
  const std::string name = usable.back()->name;
  const auto passes_of = [&](std::uint32_t channels, std::uint32_t filters, std::uint32_t rows) {
    const Graph graph = small_channels(GetParam(), channels, filters);
    const Layout layout{graph};
    const auto replica = cpu_->compile(graph, layout, {rows, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                       make_memory(graph, layout, 1));
    std::vector<std::string> passes;
    std::istringstream lines{describe_cpu_replica(*replica)};
    for (std::string line; std::getline(lines, line);)
      if (line.ends_with(name)) passes.push_back(line.substr(0, line.find(':')));
    return passes;
  };
  const std::string forward = "layer conv2d_2, forward", to_weights = "layer conv2d_2, gradient of the weights",
                    to_input = "layer conv2d_2, gradient of the input";
  using ::testing::ElementsAre;
  using ::testing::IsSupersetOf;
  EXPECT_THAT(passes_of(18, 18, 64), IsSupersetOf({forward, to_weights, to_input}));
  EXPECT_THAT(passes_of(18, 32, 64),
              ::testing::AllOf(::testing::Contains(to_input), ::testing::Not(::testing::Contains(forward))));
  EXPECT_THAT(passes_of(16, 32, 64), ElementsAre());  // whole vectors
  EXPECT_THAT(passes_of(18, 18, 17), ElementsAre());  // half of the lanes would be empty
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceWhereImagesAreInLanes) {
  const bool bf16 = GetParam() == DType::bf16;
#if defined(__SANITIZE_THREAD__)
  const std::vector<std::uint32_t> numbers_of_threads{1};  // it does not see the barriers of OpenMP's threads
#else
  const std::vector<std::uint32_t> numbers_of_threads{1, 3};
#endif
  for (const std::uint32_t threads : numbers_of_threads) {
    cpu_ = make_cpu_device(space_, {.threads = threads});
    for (const std::uint32_t filters : {10U, 18U})
      compare(filters, small_channels(GetParam(), 18, filters), 60, bf16 ? 0.15 : 1e-5, bf16 ? 0.02 : 1e-6);
  }
}

TEST_P(CpuReplicaOf, HasTheSameGradientsOnAnyNumberOfThreadsByItsOwnKernels) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not see the barriers of OpenMP's threads";
#endif
  if (cpu::usable_lane_kernels(GetParam() == DType::bf16).empty())
    GTEST_SKIP() << "there are no such kernels for this processor";
  LayerList net;
  net.add(Conv2d{.filters = 18, .kernel = {3, 3}});
  net.add(BatchNorm{});
  net.add(Relu{});
  net.add(Conv2d{.filters = 10, .kernel = {3, 3}});
  net.add(BatchNorm{});
  net.add(GlobalAveragePool{});
  expect_same_gradients_on_any_number_of_threads({"own kernels", Shape{{12, 12, 8}}, GetParam(), net.finish()}, 64);
}

/// A convolution of images of one channel, and pools that leave out a row and a column.
Graph one_channel_and_pools(DType dtype) {
  LayerList net;
  net.add(Conv2d{.filters = 20, .kernel = {4, 5}});
  net.add(Tanh{});
  net.add(MaxPool{});
  net.add(Conv2d{.filters = 6, .kernel = {2, 2}});
  net.add(Relu{});
  net.add(MaxPool{});
  net.add(Dense{10});
  return {"one channel", Shape{{18, 19, 1}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceForImagesOfOneChannelAndPools) {
  const bool bf16 = GetParam() == DType::bf16;
  for (const std::uint64_t key : {1U, 2U, 3U})
    compare(key, one_channel_and_pools(GetParam()), bf16 ? 0.15 : 1e-5, bf16 ? 0.02 : 1e-6);
}

/// Windows of 3 x 3 that overlap, over images of any number of channels and, where convolutions want that, in blocks of
/// them.
TEST_F(CpuReplica, HasTheGradientsOfTheReferenceForMaxPoolsThatOverlap) {
  for (const std::uint32_t filters : {20U, 64U}) {
    LayerList net;
    for (int i = 0; i < 2; ++i) {
      net.add(Conv2d{.filters = filters, .kernel = {3, 3}, .padding = {1, 1}});
      net.add(Relu{});
    }
    net.add(MaxPool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    net.add(Dense{10});
    compare(1, {"overlapping", Shape{{17, 16, 3}}, DType::f32, net.finish()}, 8, 1e-5, 1e-6);
  }
}

TEST_F(CpuReplica, HasTheSameGradientsOfImagesOfOneChannelOnAnyNumberOfThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not see the barriers of OpenMP's threads";
#endif
  if (cpu::usable_one_channel_gradients().empty()) GTEST_SKIP() << "there are no such kernels for this processor";
  LayerList net;
  net.add(Conv2d{.filters = 20, .kernel = {4, 5}});
  net.add(MaxPool{});
  net.add(GlobalAveragePool{});
  expect_same_gradients_on_any_number_of_threads({"one channel", Shape{{18, 19, 1}}, DType::f32, net.finish()}, 21);
}

/// Two dense layers, behind an image in blocks of channels if `images`, which a layer of its own may flatten.
Graph few_rows(DType dtype, bool images, bool flattened = false, std::uint32_t units = 150) {
  LayerList net;
  if (images)
    for (int i = 0; i < 2; ++i) net.add(Conv2d{.filters = 32, .kernel = {3, 3}, .padding = {1, 1}});
  if (flattened) net.add(Flatten{});
  net.add(Dense{units});
  net.add(Relu{});
  net.add(Dense{10});
  return {"dense", images ? Shape{{16, 16, 3}} : Shape{{60}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, MultipliesDenseLayersByPanelsWhereThatGains) {
  const bool bf16 = GetParam() == DType::bf16;
  const auto usable = cpu::usable_panel_kernels(bf16);
  if (usable.empty() || (bf16 && (cpu::has_amx_instructions() || !cpu::onednn_has_bf16())))
    GTEST_SKIP() << "no such kernels are used on this processor";
  const auto passes_of = [&](std::uint32_t rows) {
    const Graph graph = few_rows(GetParam(), false);
    const Layout layout{graph};
    const auto replica = cpu_->compile(graph, layout, {rows, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                       make_memory(graph, layout, 1));
    std::vector<std::string> passes;
    std::istringstream lines{describe_cpu_replica(*replica)};
    for (std::string line; std::getline(lines, line);)
      if (line.ends_with(usable.back()->name)) passes.push_back(line.substr(0, line.find(':')));
    return passes;
  };
  const std::string forward = "layer dense_1, forward", of_first = "layer dense_1, gradient of the weights",
                    of_last = "layer dense_2, gradient of the weights";
  using ::testing::Contains;
  using ::testing::Not;
  EXPECT_EQ(std::ranges::count(passes_of(64), forward), 1);
  EXPECT_THAT(passes_of(64), Not(Contains(of_first)));
  EXPECT_EQ(std::ranges::count(passes_of(64), of_last), bf16 ? 1 : 0);  // in f32, for fewer inputs
  EXPECT_THAT(passes_of(4), ::testing::IsSupersetOf({of_first, of_last}));
  EXPECT_THAT(passes_of(4), Not(Contains(forward)));  // most lanes would be empty
  EXPECT_THAT(passes_of(256), ::testing::IsEmpty());
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceInDenseLayersOfFewRows) {
  const bool bf16 = GetParam() == DType::bf16;
  for (const std::uint32_t rows : {4U, 16U, 63U})
    compare(rows, few_rows(GetParam(), false), rows, bf16 ? 0.15 : 1e-5, bf16 ? 0.02 : 1e-6);
  for (const std::uint32_t rows : {52U, 65U, 100U})  // which leave lanes empty that 160 units fill
    compare(rows, few_rows(GetParam(), false, false, 160), rows, bf16 ? 0.15 : 1e-5, bf16 ? 0.02 : 1e-6);
  for (const bool flattened : {false, true})
    compare(1, few_rows(GetParam(), true, flattened), 16, bf16 ? 0.15 : 5e-5, bf16 ? 0.02 : 1e-6);
}

TEST_P(CpuReplicaOf, HasTheSameGradientsOfDenseLayersOnAnyNumberOfThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not see the barriers of OpenMP's threads";
#endif
  expect_same_gradients_on_any_number_of_threads(few_rows(GetParam(), false), 4);
}

/// Convolutions whose outputs have 16 and 4 pixels in an image of `side` x `side`, with 70 channels in kernels of 3 x 3
/// and 520 in kernels of one element.
Graph few_pixels(DType dtype, std::uint32_t side, bool bias) {
  const auto conv = [&](std::uint32_t filters, std::uint32_t kernel, std::uint32_t stride) {
    return Conv2d{.filters = filters,
                  .kernel = {kernel, kernel},
                  .stride = {stride, stride},
                  .padding = {kernel / 2, kernel / 2},
                  .bias = bias};
  };
  LayerList net;
  net.add(conv(70, 1, 1));
  net.add(conv(72, 3, 1));
  net.add(Tanh{});
  net.add(conv(520, 3, 1));
  net.add(Relu{});
  net.add(conv(66, 1, 1));
  net.add(conv(520, 3, 2));
  net.add(conv(40, 1, 2));
  net.add(Dense{10});
  return {"few pixels", Shape{{side, side, 3}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, ConvolvesAsDenseLayersWhereTheOutputHasFewPixels) {
  const bool bf16 = GetParam() == DType::bf16;
  const auto dense = cpu::usable_dense_kernels(bf16);
  const auto panels = cpu::usable_panel_kernels(bf16);
  if (dense.empty() || panels.empty() || (bf16 && (cpu::has_amx_instructions() || !cpu::onednn_has_bf16())))
    GTEST_SKIP() << "no such kernels are used on this processor";
  const auto passes_of = [&](std::uint32_t rows) {
    const Graph graph = few_pixels(GetParam(), 4, false);
    const Layout layout{graph};
    const auto replica = cpu_->compile(graph, layout, {rows, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                       make_memory(graph, layout, 1));
    std::set<std::string> passes;
    std::istringstream lines{describe_cpu_replica(*replica)};
    for (std::string line; std::getline(lines, line);)
      if (line.ends_with(dense.back()->name) || line.ends_with(panels.back()->name))
        passes.insert(line.substr(0, line.find(':')));
    return passes;
  };
  const auto all_of = [](const std::string& layer) {
    return std::vector<std::string>{"layer " + layer + ", forward", "layer " + layer + ", gradient of the weights",
                                    "layer " + layer + ", gradient of the input"};
  };
  const auto of_176_pixels = passes_of(11), of_272 = passes_of(17), of_1024 = passes_of(64);
  using ::testing::Contains;
  using ::testing::IsSupersetOf;
  using ::testing::Not;
  for (const char* layer : {"conv2d_2", "conv2d_3", "conv2d_4", "conv2d_5", "conv2d_6"})
    EXPECT_THAT(of_176_pixels, IsSupersetOf(all_of(layer))) << layer;
  EXPECT_THAT(of_176_pixels, Not(Contains("layer conv2d_1, forward"))) << "sums are short";
  EXPECT_THAT(of_272, Not(Contains("layer conv2d_2, forward")));
  EXPECT_THAT(of_272, IsSupersetOf(all_of("conv2d_4"))) << "a kernel of one element";
  EXPECT_THAT(of_1024, Not(Contains("layer conv2d_4, forward")));
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceInConvolutionsOfFewPixels) {
  const bool bf16 = GetParam() == DType::bf16;
  for (const std::uint32_t side : {4U, 5U})
    for (const bool bias : {false, true})
      compare(side, few_pixels(GetParam(), side, bias), 7, bf16 ? 0.15 : 5e-5, bf16 ? 0.02 : 1e-6);
}

/// Convolutions of few pixels and whole blocks of channels, without bias and ReLU, in images of each height and width.
Graph few_pixels_in_blocks(DType dtype, std::uint32_t height, std::uint32_t width) {
  const auto conv = [](std::uint32_t filters, std::uint32_t padding) {
    return Conv2d{.filters = filters, .kernel = {3, 3}, .padding = {padding, padding}, .bias = false};
  };
  LayerList net;
  net.add(conv(64, 1));
  net.add(conv(192, 2));
  net.add(BatchNorm{});
  net.add(conv(64, 0));
  net.add(conv(128, 1));
  net.add(Dense{10});
  return {"few pixels in blocks", Shape{{height, width, 64}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceInConvolutionsOfFewPixelsInBlocks) {
  const bool bf16 = GetParam() == DType::bf16;
  for (const std::uint32_t height : {1U, 2U, 5U})
    for (const std::uint32_t width : {1U, 3U, 6U})
      compare(height, few_pixels_in_blocks(GetParam(), height, width), 3, bf16 ? 0.15 : 5e-5, bf16 ? 0.02 : 1e-6);
}

/// Convolutions with few pixels that read images in blocks, where there is Winograd's algorithm; one of them without
/// bias.
Graph few_pixels_behind_blocks(DType dtype) {
  const auto conv = [](std::uint32_t filters, std::uint32_t kernel, std::uint32_t stride, bool bias) {
    return Conv2d{.filters = filters,
                  .kernel = {kernel, kernel},
                  .stride = {stride, stride},
                  .padding = {kernel / 2, kernel / 2},
                  .bias = bias};
  };
  LayerList net;
  net.add(conv(64, 3, 1, true));
  net.add(conv(64, 3, 1, true));
  const std::string narrow = net.add(Relu{}), wide = net.add(conv(512, 1, 1, true));
  const std::string a = net.add(conv(64, 3, 2, false), {narrow}, "taps"),
                    b = net.add(conv(64, 3, 2, true), {narrow}, "patches"),
                    c = net.add(conv(64, 1, 2, true), {wide}, "pixels");
  net.add(Add{}, {a, b, c});
  net.add(Dense{10});
  return {"few pixels behind blocks", Shape{{14, 14, 3}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, ConvolvesFewPixelsBehindImagesInBlocksByItsOwnKernels) {
  constexpr std::uint32_t kRows = 4;
  const bool bf16 = GetParam() == DType::bf16;
  const Graph graph = few_pixels_behind_blocks(GetParam());
  const auto panels = cpu::usable_panel_kernels(bf16);
  if (!panels.empty() && !(bf16 && (cpu::has_amx_instructions() || !cpu::onednn_has_bf16()))) {
    const Layout layout{graph};
    const auto replica = cpu_->compile(graph, layout, {kRows, graph.fields()},
                                       make_buckets(GroupId{}, graph, layout, 0), make_memory(graph, layout, 1));
    const std::string found = describe_cpu_replica(*replica);
    for (const char* layer : {"taps", "patches", "pixels"})
      for (const char* pass : {"forward", "gradient of the weights", "gradient of the input"})
        EXPECT_THAT(found, ::testing::HasSubstr(text("layer ", layer, ", ", pass, ": ", panels.back()->name)));
  }
  compare(1, graph, kRows, bf16 ? 0.15 : 5e-5, bf16 ? 0.02 : 1e-6);
}

TEST_P(CpuReplicaOf, HasTheSameGradientsOfConvolutionsOfFewPixelsOnAnyNumberOfThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not see the barriers of OpenMP's threads";
#endif
  if (cpu::usable_panel_kernels(GetParam() == DType::bf16).empty())
    GTEST_SKIP() << "there are no such kernels for this processor";
  LayerList net;
  net.add(Conv2d{.filters = 130, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(BatchNorm{});
  net.add(Conv2d{.filters = 60, .kernel = {3, 3}, .stride = {2, 2}});
  net.add(GlobalAveragePool{});
  expect_same_gradients_on_any_number_of_threads({"few pixels", Shape{{5, 5, 64}}, GetParam(), net.finish()}, 6);
  expect_same_gradients_on_any_number_of_threads(few_pixels_in_blocks(GetParam(), 5, 5), 3);
}

/// Kernels of one element that leave out pixels, and what else may read the same tensor, in each order: nothing, such a
/// kernel, a convolution that reads every pixel, and a sum.
Graph left_out_pixels(DType dtype, std::uint32_t channels, std::uint32_t side, bool in_blocks) {
  const auto conv = [&](std::uint32_t kernel, std::uint32_t stride) {
    return Conv2d{.filters = channels,
                  .kernel = {kernel, kernel},
                  .stride = {stride, stride},
                  .padding = {kernel / 2, kernel / 2}};
  };
  LayerList net;
  if (in_blocks)  // by Winograd's algorithm
    for (int i = 0; i < 2; ++i) net.add(Conv2d{.filters = 32, .kernel = {3, 3}, .padding = {1, 1}});
  std::string from = net.add(conv(1, 1));
  from = net.add(Relu{});
  std::string a = net.add(conv(1, 2), {from}), b = net.add(conv(3, 2), {from});
  from = net.add(Add{}, {a, b});
  a = net.add(conv(3, 1), {from}), b = net.add(conv(1, 2), {from});
  const std::string c = net.add(conv(1, 2), {from});
  a = net.add(Add{}, {a, from});
  a = net.add(conv(1, 2), {a});  // alone
  net.add(Add{}, {a, b, c});
  net.add(GlobalAveragePool{});
  net.add(Dense{10});
  return {"left out pixels", Shape{{side, side, 3}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceWhereKernelsLeaveOutPixels) {
  const bool bf16 = GetParam() == DType::bf16;
  for (const std::uint32_t channels : {5U, 16U, 32U})
    for (const std::uint32_t side : {7U, 16U})
      for (const bool in_blocks : {false, true})
        compare(channels, left_out_pixels(GetParam(), channels, side, in_blocks), 9, bf16 ? 0.15 : 5e-5,
                bf16 ? 0.02 : 1e-6);
}

/// Sums behind batch norms: with the norm's own input, a batch's field, a ReLU that others read before or after the
/// norm does, and another norm; with and without a ReLU behind the sum.
Graph sums_behind_norms(DType dtype, std::uint32_t channels) {
  const auto conv = [&](std::uint32_t kernel, std::uint32_t stride) {
    return Conv2d{.filters = channels,
                  .kernel = {kernel, kernel},
                  .stride = {stride, stride},
                  .padding = {kernel / 2, kernel / 2},
                  .bias = false};
  };
  LayerList net;
  net.add(BatchNorm{}, {"image"}, "of_field");
  net.add(Add{}, {"of_field", "image"});
  std::string stream = net.add(conv(3, 1));
  net.add(BatchNorm{}, {}, "of_own_input");
  stream = net.add(Add{}, {stream, "of_own_input"});
  stream = net.add(Relu{});
  net.add(conv(3, 1));
  std::string made = net.add(BatchNorm{}, {}, "of_block");
  net.add(Add{}, {made, stream});
  stream = net.add(Relu{}, {}, "out");
  net.add(conv(3, 2));
  net.add(BatchNorm{});
  net.add(Relu{});
  net.add(conv(3, 1));
  made = net.add(BatchNorm{}, {}, "of_main");
  net.add(conv(1, 2), {stream});
  stream = net.add(BatchNorm{}, {}, "of_shortcut");
  net.add(Add{}, {made, stream});
  stream = net.add(Relu{});
  net.add(conv(1, 1));
  made = net.add(BatchNorm{}, {}, "alone");
  net.add(Add{}, {stream, made});
  net.add(GlobalAveragePool{});
  net.add(Dense{10});
  return {"sums behind norms", Shape{{9, 8, channels}}, dtype, net.finish()};
}

TEST_F(CpuReplica, HasTheGradientsOfTheReferenceAtSumsBehindBatchNorms) {
  for (const std::uint32_t channels : {5U, 16U, 32U})
    compare(channels, sums_behind_norms(DType::f32, channels), 9, 5e-5, 1e-6);
}

enum class Summand : std::uint8_t { own_input, field, read_before, other_norm };

/// One sum behind a batch norm, and as few layers as it can have.
Graph sum_behind_norm(Summand summand, std::uint32_t channels, bool relu) {
  const auto conv = [&](std::uint32_t kernel) {
    return Conv2d{.filters = channels, .kernel = {kernel, kernel}, .padding = {kernel / 2, kernel / 2}, .bias = false};
  };
  LayerList net;
  std::string other = net.add(conv(3)), made = other;
  if (summand == Summand::read_before) made = net.add(conv(1));
  const std::string norm = net.add(BatchNorm{}, {made});
  if (summand == Summand::field) other = "image";
  if (summand == Summand::other_norm) {
    net.add(conv(1), {"image"});
    other = net.add(BatchNorm{});
  }
  net.add(Add{}, {norm, other});
  if (relu) net.add(Relu{});
  net.add(GlobalAveragePool{});
  net.add(Dense{10});
  return {"sum behind norm", Shape{{9, 8, channels}}, DType::bf16, net.finish()};
}

TEST_F(CpuReplica, HasTheGradientsOfTheReferenceAtSumsBehindBatchNormsInBf16) {
  // Forward: two convolutions, norm with sum, average. Backward: output, average, spread, norm, sum, two convolutions.
  constexpr int kRoundings = 10;
  for (const Summand summand : {Summand::own_input, Summand::field, Summand::read_before, Summand::other_norm}) {
    for (const std::uint32_t channels : {5U, 16U, 32U}) {
      compare_each(channels, sum_behind_norm(summand, channels, false), 9, kRoundings);
      // A number near 0 that is rounded may be on the other side of the ReLU's edge.
      compare(channels, sum_behind_norm(summand, channels, true), 9, 0.15, 0.02);
    }
  }
}

/// Batch norms of 2 MB and more, with a sum and without one, which are written past the caches in f32.
Graph large_norms(DType dtype, std::uint32_t channels) {
  LayerList net;
  net.add(BatchNorm{}, {"image"});
  net.add(Relu{}, {}, "made");
  const std::string made = net.add(BatchNorm{});
  net.add(Add{}, {made, "made"});
  net.add(Relu{});
  net.add(GlobalAveragePool{});
  net.add(Dense{10});
  return {"large norms", Shape{{64, 33, channels}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceAtBatchNormsThatAreWrittenPastTheCaches) {
  const bool bf16 = GetParam() == DType::bf16;
  for (const std::uint32_t channels : {16U, 48U})
    compare(channels, large_norms(GetParam(), channels), 16, bf16 ? 0.15 : 5e-5, bf16 ? 0.02 : 1e-6);
}

/// Convolutions of so many pixels that oneDNN's primitives compute them, with weights in its own layouts.
Graph whole_blocks(DType dtype) {
  LayerList net;
  net.add(Conv2d{.filters = 32, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(Conv2d{.filters = 64, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(Relu{});
  net.add(Conv2d{.filters = 96, .kernel = {1, 1}});
  net.add(Conv2d{.filters = 32, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  net.add(MaxPool{});
  net.add(Dense{10});
  return {"whole blocks", Shape{{15, 17, 3}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceInConvolutionsOfWholeBlocks) {
  const bool bf16 = GetParam() == DType::bf16;
  compare(1, whole_blocks(GetParam()), 5, bf16 ? 0.15 : 5e-5, bf16 ? 0.02 : 1e-6);
}

/// Images of 16 channels, the first ones of which are the batch's.
Graph one_block(DType dtype) {
  LayerList net;
  net.add(Conv2d{.filters = 16, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(Relu{});
  net.add(Conv2d{.filters = 16, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .bias = false});
  net.add(Dense{10});
  return {"one block", Shape{{9, 11, 16}}, dtype, net.finish()};
}

TEST_P(CpuReplicaOf, HasTheGradientsOfTheReferenceInConvolutionsOfOneBlockOfChannels) {
  const bool bf16 = GetParam() == DType::bf16;
  compare(1, one_block(GetParam()), 5, bf16 ? 0.15 : 5e-5, bf16 ? 0.02 : 1e-6);
}

TEST_P(CpuReplicaOf, HasTheSameGradientsOfAttentionAndGeluOnAnyNumberOfThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not see the barriers of OpenMP's threads";
#endif
  LayerList net;
  net.add(Position{});
  net.add(Attention{.heads = 2, .causal = true});
  net.add(Gelu{});
  expect_same_gradients_on_any_number_of_threads({"sequence", Shape{{130, 24}}, GetParam(), net.finish()}, 5);
}

TEST_P(CpuReplicaOf, LearnsATinyProblem) {
  const DType dtype = GetParam();
  const Graph graph{
      "tiny", Shape{{16}}, dtype, {{"a", Dense{64}}, {"r", Relu{}}, {"b", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const BatchLayout batch_layout{32, graph.fields()};
  const ReplicaMemory memory = make_memory(graph, layout, 2);
  const Memory batch = make_batch(batch_layout, 4, 8), sums = arena_->allocate(sizeof(StepSums));
  const auto replica = cpu_->compile(graph, layout, batch_layout, make_buckets(GroupId{}, graph, layout, 0), memory);
  StripeMemory stripe{.stripe = {GroupId{}, Rank{}, 0, layout.count_elements()}};
  stripe.parameters = memory.parameters;
  stripe.half = memory.half;
  for (Memory& state : stripe.state) state = arena_->allocate(layout.count_elements() * 4);
  const auto stream = cpu_->stream();
  NoSink sink;
  for (std::uint64_t step = 1; step <= 300; ++step) {
    replica->step(*stream, batch, batch_layout.rows(), sums, sink);
    stream->update(rule_step({.rate = 0.01}, step), step, stripe, std::array{memory.gradients}, sums);
    if (step % 50 == 0) finish(*stream);
  }
  const StepSums& last = *at<StepSums>(sums);
  EXPECT_EQ(last.correct, last.samples) << name_of(dtype);
  EXPECT_LT(last.loss / static_cast<double>(last.samples), 0.05) << name_of(dtype);
}

TEST_P(CpuReplicaOf, GivesTheSameForANumberOfRowsHoweverManyOthersWereComputedMeanwhile) {
  const DType dtype = GetParam();
  const Graph graph{
      "g", Shape{{16}}, dtype, {{"a", Dense{48}}, {"r", Relu{}}, {"b", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const BatchLayout batch_layout{40, graph.fields()};
  const ReplicaMemory memory = make_memory(graph, layout, 2);
  const Memory batch = make_batch(batch_layout, 4, 8), sums = arena_->allocate(sizeof(StepSums));
  const auto replica = cpu_->compile(graph, layout, batch_layout, make_buckets(GroupId{}, graph, layout, 1024), memory);
  const auto stream = cpu_->stream();
  NoSink sink;
  std::vector<std::vector<float>> first(batch_layout.rows() + 1);
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t rows = 1; rows <= batch_layout.rows(); ++rows) {  // many more than are kept
      replica->step(*stream, batch, rows, sums, sink);
      finish(*stream);
      const auto* found = at<float>(memory.gradients);
      const std::vector<float> gradients(found, found + layout.count_elements());
      if (round == 0) first[rows] = gradients;
      ASSERT_EQ(gradients, first[rows]) << rows << " rows";
    }
  }
}

TEST_F(CpuReplica, EndsItsStreamNamingRowAndLabelWhenALabelIsNoClass) {
  const Graph graph{"g", Shape{{3}}, DType::f32, {{"a", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const BatchLayout batch_layout{5, graph.fields()};
  const Memory batch = make_batch(batch_layout, 4, 8);
  testing::labels_in(batch_layout, at<std::byte>(batch))[3] = 12;
  const auto replica = cpu_->compile(graph, layout, batch_layout, make_buckets(GroupId{}, graph, layout, 0),
                                     make_memory(graph, layout, 1));
  const auto stream = cpu_->stream();
  NoSink sink;
  replica->step(*stream, batch, batch_layout.rows(), arena_->allocate(sizeof(StepSums)), sink);
  const Point end = stream->mark();
  Blocking blocking = Blocking::on_thread("test");
  const Status status =
      space_.timeline(end.line).wait(blocking, end.value, Deadline::after(std::chrono::seconds{30}), "a step");
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_NE(status.text().find("row 3 of a batch has label 12"), status.text().npos) << status.text();
}

TEST_F(CpuReplica, IsRefusedWhereMemoryBatchOrBucketsDoNotFitTheGraph) {
  const Graph graph = mnist_mlp(DType::bf16);
  const Layout layout{graph};
  const auto buckets = make_buckets(GroupId{}, graph, layout, 0);
  const ReplicaMemory memory = make_memory(graph, layout, 1);
  ReplicaMemory without_half = memory;
  without_half.half = {};
  EXPECT_THROW(cpu_->compile(graph, layout, {100, graph.fields()}, buckets, without_half), Error);
  EXPECT_THROW(cpu_->compile(graph, layout, testing::image_batch(100, {{783}}, DType::bf16), buckets, memory), Error);
  EXPECT_THROW(cpu_->compile(graph, layout, testing::image_batch(100, {{784}}), buckets, memory), Error);
  EXPECT_THROW(cpu_->compile(graph, layout, {100, graph.fields()}, {}, memory), Error);
  EXPECT_THROW(
      cpu_->compile(graph, layout, {100, graph.fields()}, {{GroupId{}, 0, 16, layout.count_elements() - 16}}, memory),
      Error);
}

TEST_F(CpuReplica, RefusesAnotherDevicesStream) {
  const Graph graph{"g", Shape{{3}}, DType::f32, {{"a", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const auto replica = cpu_->compile(graph, layout, {5, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                                     make_memory(graph, layout, 1));
  const auto stream = reference_->stream();
  EXPECT_THROW(replica->evaluate(*stream, make_batch({5, graph.fields()}, 4, 1), 5, arena_->allocate(sizeof(StepSums))),
               Error);
}

}  // namespace
}  // namespace troupe
