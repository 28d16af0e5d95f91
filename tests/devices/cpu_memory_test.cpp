#include <gtest/gtest.h>

#include "apps/models/models.hpp"
#include "devices/cpu/cpu_device.hpp"
#include "devices/cpu/onednn.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/recomputation.hpp"
#include "runtime/planning/detail/activation_bytes.hpp"
#include "tests/contracts/layer_graphs.hpp"

namespace troupe {
namespace {

struct NoSink final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

void fill_field(const BatchLayout::Entry& entry, std::byte* first, std::uint32_t rows, std::uint64_t key) {
  const bool is_key = entry.field.name == kSampleKey;
  const std::uint32_t limit = is_key                    ? 1 << 30
                              : entry.field.classes > 0 ? entry.field.classes
                                                        : contracts::kLayerClasses;
  for (std::uint64_t i = 0; i < rows * entry.row_elements(); ++i) {
    const auto value = static_cast<float>(random_unit(key, i));
    switch (entry.field.dtype) {
      case DType::f32: reinterpret_cast<float*>(first)[i] = value; break;
      case DType::f16: break;  // the CPU device refuses it
      case DType::bf16: reinterpret_cast<std::uint16_t*>(first)[i] = to_bf16(value); break;
      case DType::i32:
        reinterpret_cast<std::int32_t*>(first)[i] = static_cast<std::int32_t>(random_below(sub_key(key, 1), i, limit));
        break;
    }
  }
}

/// Memory for a model and its batches, and a CPU device to train it on.
class Trained {
 public:
  Trained(const Graph& graph, std::uint32_t rows, std::uint64_t key, CpuDeviceOptions options = {})
      : graph_(graph), layout_(graph), batch_layout_(rows, graph.fields()) {
    const std::uint64_t count = layout_.count_elements();
    arena_ = Arena::create(arena_id(Peer{0}, 1), 10 * count + 3 * batch_layout_.size_bytes() + (1 << 20));
    space_.map(arena_);
    device_ = make_cpu_device(space_, options);
    memory_ = {arena_->allocate(count * 4), {}, arena_->allocate(count * 4)};
    auto* parameters = space_.address_of<float>(memory_.parameters);
    fill_initial(graph, layout_, key, {parameters, count});
    if (graph.dtype() == DType::bf16) {
      memory_.half = arena_->allocate(count * 2);
      for (std::uint64_t i = 0; i < count; ++i)
        space_.address_of<std::uint16_t>(memory_.half)[i] = to_bf16(parameters[i]);
    }
    for (std::uint64_t b = 0; b < 2; ++b) {
      batches_.push_back(arena_->allocate(batch_layout_.size_bytes()));
      for (const BatchLayout::Entry& entry : batch_layout_.entries())
        fill_field(entry, space_.address_of<std::byte>(batches_.back()) + entry.offset, rows,
                   sub_key(key, 100 * b + entry.offset));
    }
    sums_ = arena_->allocate(sizeof(StepSums));
    replica_ = device_->compile(graph, layout_, batch_layout_, make_buckets(GroupId{}, graph, layout_, 4096), memory_);
    stream_ = device_->stream();
  }

  /// The bits of all gradients and of the loss after a step over the first `rows` rows of batch 0 or 1.
  std::vector<std::uint32_t> step(std::uint32_t batch, std::uint32_t rows) {
    NoSink sink;
    replica_->step(*stream_, batches_[batch], rows, sums_, sink);
    finish();
    const auto* gradients = space_.address_of<std::uint32_t>(memory_.gradients);
    std::vector<std::uint32_t> bits(gradients, gradients + layout_.count_elements());
    add_loss(bits);
    return bits;
  }
  std::vector<std::uint32_t> evaluate(std::uint32_t batch, std::uint32_t rows) {
    *space_.address_of<StepSums>(sums_) = {};
    replica_->evaluate(*stream_, batches_[batch], rows, sums_);
    finish();
    std::vector<std::uint32_t> bits;
    add_loss(bits);
    return bits;
  }
  CpuReplicaMemory memory() const { return memory_of_cpu_replica(*replica_); }

 private:
  void finish() {
    const Point end = stream_->mark();
    Blocking blocking = Blocking::on_thread("test");
    const Status status =
        space_.timeline(end.line).wait(blocking, end.value, Deadline::after(std::chrono::seconds{60}), "a step");
    ASSERT_TRUE(status.ok()) << status.text();
  }
  void add_loss(std::vector<std::uint32_t>& bits) {
    const auto loss = std::bit_cast<std::uint64_t>(space_.address_of<StepSums>(sums_)->loss);
    bits.push_back(static_cast<std::uint32_t>(loss));
    bits.push_back(static_cast<std::uint32_t>(loss >> 32));
  }

  const Graph graph_;
  const Layout layout_;
  const BatchLayout batch_layout_;
  AddressSpace space_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<Device> device_;
  ReplicaMemory memory_;
  std::vector<Memory> batches_;
  Memory sums_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Stream> stream_;  // ends before the replica
};

/// Steps and evaluations over two batches, of all rows and of fewer, in turns: what one leaves in memory, the next one
/// finds there.
void expect_the_same_bits(Trained& one, Trained& other, std::uint32_t rows) {
  for (const std::uint32_t some : {rows, rows / 2 + 1, rows}) {
    for (const std::uint32_t batch : {0, 1}) {
      ASSERT_EQ(one.step(batch, some), other.step(batch, some)) << some << " rows of batch " << batch;
      ASSERT_EQ(one.evaluate(batch, some), other.evaluate(batch, some)) << some << " rows of batch " << batch;
    }
  }
}

/// All kinds of layers, branches, dropout, batch norms and several losses.
std::vector<Graph> random_graphs(DType dtype) {
  std::vector<Graph> graphs;
  for (const LayerKind* kind : contracts::kinds_of_layers())
    for (std::uint64_t key = 0; key < 4; ++key) graphs.push_back(contracts::graph_with(*kind, key, dtype));
  for (const LayerKind* kind : contracts::kinds_of_losses())
    for (std::uint64_t key = 0; key < 3; ++key) graphs.push_back(contracts::graph_with_loss(*kind, key, dtype));
  for (std::uint64_t key = 0; key < 40; ++key) graphs.push_back(contracts::random_network(key, dtype));
  for (std::uint64_t key = 0; key < 10 && dtype == DType::f32; ++key)
    graphs.push_back(contracts::network_of_many_channels(key));
  return graphs;
}

Graph model(const char* name, std::uint32_t depth, DType dtype = DType::f32) {
  Settings settings;
  settings.model.name = name;
  settings.model.depth = depth;
  settings.model.dtype = dtype;
  settings.model.width = 96;
  const Field label{std::string{kLabel}, {}, DType::i32, 10};
  if (settings.model.name == "gpt")
    return build_model(
        settings, {{std::string{kTokens}, {{64}}, DType::i32, 256}, {std::string{kLabel}, {{64}}, DType::i32, 256}});
  const std::uint32_t side = settings.model.name == "lenet" ? 28 : depth == 50 ? 224 : 32;
  return build_model(settings, {{std::string{kImage}, {{side, side, side == 28 ? 1U : 3U}}, DType::f32}, label});
}

class CpuMemoryOf : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryType, CpuMemoryOf, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string{name_of(info.param)}; });

/// Null where oneDNN has no implementation for it on this machine.
std::unique_ptr<Trained> trained(const Graph& graph, std::uint32_t rows, std::uint64_t key,
                                 CpuDeviceOptions options = {}) {
  try {
    return std::make_unique<Trained>(graph, rows, key, options);
  } catch (const Error& error) {
    if (error.code() != Code::unsupported) throw;
    return nullptr;
  }
}

TEST_P(CpuMemoryOf, SharedByTensorsGivesTheBitsOfMemoryForEach) {
  const std::vector<Graph> graphs = random_graphs(GetParam());
  std::size_t computed = 0;
  for (std::uint64_t key = 0; key < graphs.size(); ++key) {
    SCOPED_TRACE(text("graph ", key, ": ", graphs[key].to_string()));
    const auto rows = static_cast<std::uint32_t>(2 + random_below(key, 1, 12));
    const auto shared = trained(graphs[key], rows, key),
               apart = trained(graphs[key], rows, key, {.share_activations = false});
    if (!shared || !apart) continue;
    expect_the_same_bits(*shared, *apart, rows);
    if (HasFatalFailure()) return;
    EXPECT_EQ(apart->memory().taken, apart->memory().apart);
    EXPECT_LE(shared->memory().taken, apart->memory().taken);
    ++computed;
  }
  EXPECT_GE(computed, graphs.size() * 9 / 10);
}

/// Up to three ranges of a random graph's layers before its first loss.
std::vector<LayerRange> random_ranges(const Graph& graph, std::uint64_t key) {
  std::uint32_t count = 0;
  while (!kind_of(graph.layers()[count].operation).is_loss) ++count;
  std::vector<LayerRange> ranges;
  for (std::uint32_t first = 0, draw = 10; first < count && ranges.size() < 3; ++draw) {
    first += static_cast<std::uint32_t>(random_below(key, ++draw, 2));
    const auto last = first + static_cast<std::uint32_t>(random_below(key, ++draw, 6));
    if (last >= count) break;
    ranges.push_back({first, last});
    first = last + 1;
  }
  if (ranges.empty()) ranges.push_back({0, count - 1});
  return ranges;
}

TEST_P(CpuMemoryOf, WithRecomputedRangesGivesTheSameBits) {
  const std::vector<Graph> graphs = random_graphs(GetParam());
  std::size_t computed = 0;
  for (std::uint64_t key = 0; key < graphs.size(); ++key) {
    Graph graph = graphs[key];
    graph.recompute(random_ranges(graph, key));
    SCOPED_TRACE(text("graph ", key, " recomputes ", graph.recomputed().front().first, " to ",
                      graph.recomputed().front().last, ": ", graph.to_string()));
    const auto rows = static_cast<std::uint32_t>(2 + random_below(key, 1, 12));
    const auto again = trained(graph, rows, key), kept = trained(graphs[key], rows, key);
    if (!again || !kept) continue;
    expect_the_same_bits(*again, *kept, rows);
    if (HasFatalFailure()) return;
    ++computed;
  }
  EXPECT_GE(computed, graphs.size() * 9 / 10);
}

TEST_P(CpuMemoryOf, WithRecomputedRangesCountsTheStatisticsOfABatchNormOnce) {
  LayerList net;
  net.add(Conv2d{.filters = 8, .kernel = {3, 3}}, {}, "inner.conv");
  net.add(BatchNorm{}, {}, "inner.norm");
  net.add(Relu{}, {}, "inner.relu");
  net.add(Dropout{.rate = 0.25}, {}, "inner.dropout");
  net.add(Conv2d{.filters = 8, .kernel = {3, 3}}, {}, "outer.conv");
  net.add(BatchNorm{}, {}, "outer.norm");
  net.add(Dense{contracts::kLayerClasses});
  const Graph graph{"normalized", Shape{{9, 9, 2}}, GetParam(), net.finish()};
  Graph recomputed = graph;
  recomputed.recompute(recomputed_ranges(graph, std::vector<std::string>{"inner", "outer"}));
  ASSERT_EQ(recomputed.recomputed(), (std::vector<LayerRange>{{0, 3}, {4, 5}}));
  Trained again{recomputed, 6, 3}, kept{graph, 6, 3};
  expect_the_same_bits(again, kept, 6);  // the negative statistics stand among the gradients
}

TEST_P(CpuMemoryOf, WithRecomputedBlocksOfAGptIsThatOfOneBlockAndOfWhatPassesBetweenThem) {
  constexpr std::uint32_t kBlocks = 12, kRows = 4;
  const Graph kept = model("gpt", kBlocks, GetParam());
  Graph blocks = kept, segments = kept;
  std::vector<std::string> names;
  for (std::uint32_t block = 1; block <= kBlocks; ++block) names.push_back(text("block_", block));
  blocks.recompute(recomputed_ranges(kept, names));
  segments.recompute(recomputed_ranges(kept, std::vector<std::string>{"segments:4"}));
  Trained all{kept, kRows, 5}, by_block{blocks, kRows, 5}, by_segment{segments, kRows, 5};
  const auto bytes = [](const Trained& one) { return static_cast<double>(one.memory().taken); };
  std::cout << "kept " << bytes(all) << ", 4 segments " << bytes(by_segment) << ", blocks " << bytes(by_block) << '\n';
  EXPECT_LT(bytes(by_block), 0.35 * bytes(all));
  EXPECT_LT(bytes(by_segment), 0.6 * bytes(all));
  EXPECT_GT(blocks.training_flops(), kept.training_flops());
  EXPECT_LT(blocks.training_flops(), kept.training_flops() * 4 / 3 + 1);
  expect_the_same_bits(all, by_block, kRows);
  expect_the_same_bits(all, by_segment, kRows);
}

TEST_P(CpuMemoryOf, IsAtMostAFifthAboveWhatANetworkNeedsAtOnce) {
  const DType dtype = GetParam();
  struct Expected {
    Graph graph;
    std::uint32_t rows;
    double most;  // of the memory that the tensors would take apart
  };
  for (const auto& [graph, rows, most] :
       {Expected{model("lenet", 0, dtype), 64, 0.7}, Expected{model("resnet", 50, dtype), 2, 0.5},
        Expected{model("gpt", 6, dtype), 4, 0.6}}) {
    const CpuReplicaMemory memory = Trained{graph, rows, 1}.memory();
    std::cout << graph.name() << ' ' << name_of(dtype) << ", " << rows << " rows: " << memory.taken << " bytes, "
              << memory.apart << " apart, " << memory.least << " at once\n";
    EXPECT_LE(static_cast<double>(memory.taken), 1.2 * static_cast<double>(memory.least)) << graph.name();
    EXPECT_LE(static_cast<double>(memory.taken), most * static_cast<double>(memory.apart)) << graph.name();
  }
}

TEST_P(CpuMemoryOf, IsAboutWhatAPlanEstimates) {
  const DType dtype = GetParam();
  if (dtype == DType::bf16 && !cpu::onednn_has_bf16())
    GTEST_SKIP() << "the processor has no bf16: the device also keeps tensors in f32, which a plan does not know";
  Graph blocks = model("gpt", 12, dtype);
  blocks.recompute(recomputed_ranges(blocks, std::vector<std::string>{"segments:4"}));
  struct Estimated {
    Graph graph;
    std::uint32_t rows;
  };
  for (const auto& [graph, rows] : {Estimated{model("lenet", 0, dtype), 64}, Estimated{model("resnet", 50, dtype), 4},
                                    Estimated{model("gpt", 12, dtype), 4}, Estimated{blocks, 4}}) {
    const auto taken = static_cast<double>(Trained{graph, rows, 1}.memory().taken);
    const auto estimated = static_cast<double>(detail::activation_bytes(graph, rows));
    std::cout << graph.name() << ": " << taken << " taken, " << estimated << " estimated\n";
    EXPECT_GT(estimated, 0.9 * taken) << graph.name();
    EXPECT_LT(estimated, 1.1 * taken) << graph.name();
  }
}

}  // namespace
}  // namespace troupe
