#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/contracts/device_world.hpp"

namespace troupe::contracts {

/// What every Replica does, whatever it computes: it turns batches into sums of gradients, in buckets, and adds up
/// losses. See device_world.hpp for how to run it on a device.
class ReplicaContract : public DeviceWorld {
 protected:
  static constexpr std::uint32_t kRows = 6;

  static Graph graph(DType dtype = DType::f32) {
    return Graph{"small",
                 Shape{{20}},
                 dtype,
                 {{"a", Dense{16}},
                  {"r", Relu{}},
                  {"b", Dense{24}},
                  {"s", Relu{}},
                  {"c", Dense{3}},
                  {"loss", SoftmaxCrossEntropy{}}}};
  }

  /// A compiled graph with its memory.
  struct Model {
    Layout layout;
    BatchLayout batch;
    std::vector<Bucket> buckets;
    ReplicaMemory memory;
    Memory sums;
    std::unique_ptr<Replica> replica;
  };
  Model make_model(const Graph& graph, std::uint64_t target_bytes = 0, std::uint32_t rows = kRows) {
    Model made{Layout{graph}, BatchLayout{rows, graph.fields()}, {}, {}, {}, nullptr};
    made.buckets = make_buckets(GroupId{}, graph, made.layout, target_bytes);
    std::vector<float> parameters(made.layout.count_elements());
    fill_initial(graph, made.layout, 3, parameters);
    made.memory.parameters = put(parameters);
    made.memory.gradients = put(std::vector<float>(parameters.size(), 99.0F));
    if (graph.dtype() == DType::bf16) {
      std::vector<std::uint16_t> image;
      for (const float value : parameters) image.push_back(to_bf16(value));
      made.memory.half = put(std::span<const std::uint16_t>{image});
    }
    made.sums = put_sums(StepSums{.loss = 7, .correct = 7, .samples = 7, .stop_requests = 5});
    made.replica = device().compile(graph, made.layout, made.batch, made.buckets, made.memory);
    return made;
  }
  /// Random rows with labels; those listed in `left_out` do not count.
  Memory make_batch(const BatchLayout& layout, std::uint64_t key, const std::vector<std::uint32_t>& left_out = {}) {
    const Memory batch = arena()->allocate(layout.size_bytes());
    std::byte* at = space().address(batch);
    const auto &image = layout.entry(kImage), &label = layout.entry(kLabel);
    for (std::uint64_t i = 0; i < layout.rows() * image.row_elements(); ++i) {
      const auto value = static_cast<float>(random_normal(key, i));
      if (image.field.dtype == DType::f32) {
        reinterpret_cast<float*>(at)[i] = value;
      } else {
        reinterpret_cast<std::uint16_t*>(at)[i] = to_bf16(value);
      }
    }
    auto* labels = reinterpret_cast<std::int32_t*>(at + label.offset);
    for (std::uint32_t row = 0; row < layout.rows(); ++row) {
      const bool counts = std::find(left_out.begin(), left_out.end(), row) == left_out.end();
      labels[row] = counts ? static_cast<std::int32_t>(random_below(sub_key(key, 1), row, 3)) : -1;
      if (!counts) std::memset(at + row * image.row_bytes(), 0, image.row_bytes());
    }
    return batch;
  }
  /// Keeps nothing.
  struct NoSink final : BucketSink {
    void ready(const Bucket&, Stream&) noexcept override {}
  };
  std::vector<float> gradients(Model& model, Stream& stream, const Memory& batch) {
    NoSink sink;
    model.replica->step(stream, batch, model.batch.rows(), model.sums, sink);
    finish(stream);
    return get(model.memory.gradients);
  }
  static double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
      size += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(difference / size);
  }

  void expect_loss_falls(DType dtype) {
    const auto stream = device().stream();
    Model model = make_model(graph(dtype));
    const Memory batch = make_batch(model.batch, 6);
    StripeMemory stripe;
    stripe.stripe = {GroupId{}, Rank{}, 0, model.layout.count_elements()};
    stripe.parameters = model.memory.parameters;
    stripe.half = model.memory.half;
    const std::vector<Memory> contributions{model.memory.gradients};
    write(model.memory.gradients, std::vector<float>(model.layout.count_elements(), 0.0F));
    gradients(model, *stream, batch);
    const double before = value<StepSums>(model.sums).loss;
    NoSink sink;
    for (std::uint64_t step = 1; step <= 20; ++step) {
      model.replica->step(*stream, batch, model.batch.rows(), model.sums, sink);
      stream->update(rule_step({.kind = RuleKind::sgd, .rate = 0.1}, step), step, stripe, contributions, model.sums);
    }
    model.replica->step(*stream, batch, model.batch.rows(), model.sums, sink);
    finish(*stream);
    EXPECT_LT(value<StepSums>(model.sums).loss, before);
  }
};

TEST_P(ReplicaContract, OverwritesTheGradientsAndGapsNeverMatter) {
  const auto stream = device().stream();
  Model model = make_model(graph());
  const Memory batch = make_batch(model.batch, 1);
  const std::vector<float> once = gradients(model, *stream, batch);
  const std::vector<float> twice = gradients(model, *stream, batch);
  for (const Layout::Entry& entry : model.layout.entries()) {
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
      ASSERT_NE(once[i], 99.0F) << i;
      ASSERT_EQ(once[i], twice[i]) << i;
    }
  }
}

TEST_P(ReplicaContract, WritesTheSumsOfTheBatchAndLeavesStopAlone) {
  const auto stream = device().stream();
  Model model = make_model(graph());
  gradients(model, *stream, make_batch(model.batch, 1, {2, 5}));
  const StepSums& sums = value<StepSums>(model.sums);
  EXPECT_EQ(sums.samples, kRows - 2);
  EXPECT_LE(sums.correct, sums.samples);
  EXPECT_GT(sums.loss, 0);
  EXPECT_EQ(sums.stop_requests, 5U);
}

TEST_P(ReplicaContract, AddsAnEvaluationToTheSumsAndWritesNoGradients) {
  const auto stream = device().stream();
  Model model = make_model(graph());
  const Memory batch = make_batch(model.batch, 4, {0});
  gradients(model, *stream, batch);
  const StepSums once = value<StepSums>(model.sums);
  const Memory total = put_sums(StepSums{.loss = 10, .correct = 20, .samples = 30, .stop_requests = 1});
  write(model.memory.gradients, std::vector<float>(model.layout.count_elements(), 42.0F));
  model.replica->evaluate(*stream, batch, model.batch.rows(), total);
  model.replica->evaluate(*stream, batch, model.batch.rows(), total);
  finish(*stream);
  const StepSums& sums = value<StepSums>(total);
  EXPECT_NEAR(sums.loss, 10 + 2 * once.loss, 1e-9 * once.loss);
  EXPECT_EQ(sums.correct, 20 + 2 * once.correct);
  EXPECT_EQ(sums.samples, 30 + 2 * once.samples);
  EXPECT_EQ(sums.stop_requests, 1U);
  EXPECT_EQ(get(model.memory.gradients), std::vector<float>(model.layout.count_elements(), 42.0F));
}

TEST_P(ReplicaContract, GivesSumsOverTheSamplesNotMeans) {
  const auto stream = device().stream();
  Model model = make_model(graph());
  const std::vector<float> all = gradients(model, *stream, make_batch(model.batch, 9));
  std::vector<float> sum = gradients(model, *stream, make_batch(model.batch, 9, {0, 1, 2}));
  const std::vector<float> rest = gradients(model, *stream, make_batch(model.batch, 9, {3, 4, 5}));
  for (const Layout::Entry& entry : model.layout.entries()) {
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
      ASSERT_NEAR(all[i], sum[i] + rest[i], 1e-4 + 1e-5 * std::abs(all[i]));
    }
  }
}

TEST_P(ReplicaContract, GivesNoGradientsForABatchInWhichNoRowCounts) {
  const auto stream = device().stream();
  Model model = make_model(graph());
  const std::vector<float> none = gradients(model, *stream, make_batch(model.batch, 9, {0, 1, 2, 3, 4, 5}));
  for (const Layout::Entry& entry : model.layout.entries()) {
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) ASSERT_EQ(none[i], 0.0F) << i;
  }
  EXPECT_EQ(value<StepSums>(model.sums).samples, 0U);
  EXPECT_EQ(value<StepSums>(model.sums).loss, 0);
}

TEST_P(ReplicaContract, TakesTheFirstRowsOfABatchBitwiseAsABatchOfAsManyRows) {
  const auto stream = device().stream();
  Model roomy = make_model(graph(), 0, 2 * kRows + 1);
  for (const std::uint32_t rows : {kRows, std::uint32_t{1}, 2 * kRows, kRows}) {
    Model exact = make_model(graph(), 0, rows);
    const Memory batch = make_batch(exact.batch, 3);
    // The rows after the last one that counts would corrupt everything that reads them.
    const Memory in_room = arena()->allocate(roomy.batch.size_bytes());
    std::memset(space().address(in_room), 0xff, roomy.batch.size_bytes());
    const auto copy = [&](std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
      std::memcpy(space().address(in_room) + to, space().address(batch) + from, bytes);
    };
    copy(0, 0, rows * exact.batch.entry(kImage).row_bytes());
    copy(roomy.batch.entry(kLabel).offset, exact.batch.entry(kLabel).offset, rows * sizeof(std::int32_t));
    NoSink sink;
    roomy.replica->step(*stream, in_room, rows, roomy.sums, sink);
    const std::vector<float> expected = gradients(exact, *stream, batch);
    const std::vector<float> found = get(roomy.memory.gradients);
    for (const Layout::Entry& entry : roomy.layout.entries()) {
      for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) ASSERT_EQ(found[i], expected[i]) << i;
    }
    EXPECT_EQ(value<StepSums>(roomy.sums).samples, rows);
    EXPECT_EQ(value<StepSums>(roomy.sums).loss, value<StepSums>(exact.sums).loss);
    const Memory total = put_sums(StepSums{});
    roomy.replica->evaluate(*stream, in_room, rows, total);
    finish(*stream);
    EXPECT_EQ(value<StepSums>(total).samples, rows);
    EXPECT_NEAR(value<StepSums>(total).loss, value<StepSums>(exact.sums).loss, 1e-5 * value<StepSums>(exact.sums).loss);
  }
}

TEST_P(ReplicaContract, GivesZeroGradientsAndNoSamplesForAStepWithoutRows) {
  const auto stream = device().stream();
  Model model = make_model(graph(), /*target_bytes=*/1);
  const Memory batch = make_batch(model.batch, 9);
  gradients(model, *stream, batch);
  NoSink sink;
  model.replica->step(*stream, batch, 0, model.sums, sink);
  model.replica->evaluate(*stream, batch, 0, model.sums);
  finish(*stream);
  const std::vector<float> none = get(model.memory.gradients);
  for (const Layout::Entry& entry : model.layout.entries()) {
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) ASSERT_EQ(none[i], 0.0F) << i;
  }
  EXPECT_EQ(value<StepSums>(model.sums).samples, 0U);
  EXPECT_EQ(value<StepSums>(model.sums).loss, 0);
  EXPECT_EQ(value<StepSums>(model.sums).stop_requests, 5U);
  EXPECT_EQ(gradients(model, *stream, batch), gradients(model, *stream, batch));
}

TEST_P(ReplicaContract, MakesBucketsReadyInOrderWithTheirGradientsAndTheSumsWritten) {
  // Copies what is there when a bucket becomes ready, in stream order, and then spoils its weights: the rest of the
  // step may not need them.
  struct Sink final : BucketSink {
    ReplicaMemory memory;
    Memory sums, copied_sums, copied_gradients, junk;
    std::vector<std::uint32_t> order;
    void ready(const Bucket& bucket, Stream& stream) noexcept override {
      const auto part = [&](const Memory& whole) {
        return slice(whole, bucket.first * sizeof(float), bucket.count * sizeof(float));
      };
      if (order.empty()) stream.copy(copied_sums, sums);
      stream.copy(part(copied_gradients), part(memory.gradients));
      stream.copy(part(memory.parameters), part(junk));
      order.push_back(bucket.index);
    }
  };
  const auto stream = device().stream();
  Model whole = make_model(graph());
  const Memory batch = make_batch(whole.batch, 2);
  const std::vector<float> expected = gradients(whole, *stream, batch);
  Model model = make_model(graph(), /*target_bytes=*/1);
  ASSERT_EQ(model.buckets.size(), 3U);
  Sink sink;
  sink.memory = model.memory;
  sink.sums = model.sums;
  sink.copied_sums = put_sums(StepSums{});
  sink.copied_gradients = put(std::vector<float>(expected.size()));
  sink.junk = put(std::vector<float>(expected.size(), 1e6F));
  model.replica->step(*stream, batch, model.batch.rows(), model.sums, sink);
  finish(*stream);
  EXPECT_EQ(sink.order, (std::vector<std::uint32_t>{0, 1, 2}));
  const std::vector<float> found = get(sink.copied_gradients);
  for (const Layout::Entry& entry : model.layout.entries()) {
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) ASSERT_EQ(found[i], expected[i]) << i;
  }
  EXPECT_EQ(value<StepSums>(sink.copied_sums).samples, kRows);
  EXPECT_EQ(value<StepSums>(sink.copied_sums).loss, value<StepSums>(whole.sums).loss);
}

TEST_P(ReplicaContract, AcquiresEveryBucketOnceBeforeItReadsItsWeightsOrWritesItsGradients) {
  // Weights and gradients are spoilt until a bucket is acquired: then, in stream order, the right weights are there.
  struct Sink final : BucketSink {
    ReplicaMemory memory;
    Memory right;  // weights
    Memory marks;  // one f32 for each element, which a gradient that is written too early would take away
    std::vector<std::uint32_t> acquired, ready_ones;
    static Memory part(const Memory& whole, const Bucket& bucket) {
      return slice(whole, bucket.first * sizeof(float), bucket.count * sizeof(float));
    }
    void acquire(const Bucket& bucket, Stream& stream) noexcept override {
      stream.copy(part(memory.parameters, bucket), part(right, bucket));
      stream.copy(part(marks, bucket), part(memory.gradients, bucket));
      acquired.push_back(bucket.index);
    }
    void ready(const Bucket& bucket, Stream&) noexcept override {
      if (std::find(acquired.begin(), acquired.end(), bucket.index) != acquired.end())
        ready_ones.push_back(bucket.index);
    }
  };
  const auto stream = device().stream();
  Model whole = make_model(graph());
  const Memory batch = make_batch(whole.batch, 2);
  const std::vector<float> expected = gradients(whole, *stream, batch);
  Model model = make_model(graph(), /*target_bytes=*/1);
  Sink sink;
  sink.memory = model.memory;
  sink.right = put(get(model.memory.parameters));
  sink.marks = put(std::vector<float>(expected.size()));
  write(model.memory.parameters, std::vector<float>(expected.size(), 1e6F));
  model.replica->step(*stream, batch, model.batch.rows(), model.sums, sink);
  finish(*stream);
  std::sort(sink.acquired.begin(), sink.acquired.end());
  EXPECT_EQ(sink.acquired, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(sink.ready_ones, (std::vector<std::uint32_t>{0, 1, 2})) << "ready before it was acquired";
  const std::vector<float> found = get(model.memory.gradients), before = get(sink.marks);
  for (const Layout::Entry& entry : model.layout.entries()) {
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
      ASSERT_EQ(found[i], expected[i]) << i;
      ASSERT_EQ(before[i], 99.0F) << i;
    }
  }
}

TEST_P(ReplicaContract, LowersTheLossWhenItsGradientsAreFollowed) { expect_loss_falls(DType::f32); }

TEST_P(ReplicaContract, LowersTheLossInBf16WhenItsGradientsAreFollowed) {
  try {
    expect_loss_falls(DType::bf16);
  } catch (const Error& error) {
    if (error.code() != Code::unsupported) throw;
    GTEST_SKIP() << error.what();
  }
}

}  // namespace troupe::contracts
