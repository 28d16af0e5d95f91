#include <gtest/gtest.h>

#include <cmath>

#include "devices/cuda/cuda_device.hpp"
#include "runtime/model/f16.hpp"
#include "tests/contracts/device_world.hpp"
#include "tests/support/gpu.hpp"

// Training in f16 on one GPU, with a loss scale.
namespace troupe {
namespace {

contracts::DeviceCase cuda_case(const char* name, const char* products) {
  return {name, [products](AddressSpace& space, std::chrono::milliseconds deadline) {
            return make_cuda_device(space, {.wait_deadline = deadline, .products = products});
          }};
}

constexpr std::uint32_t kRows = 24, kClasses = 5;

struct NoSink final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

class CudaF16 : public contracts::DeviceWorld {
 protected:
  static Graph mlp(DType dtype, double weight = 1) {
    return {"mlp",
            Shape{{20}},
            dtype,
            {{"a", Dense{32}},
             {"r", Relu{}},
             {"b", Dense{16}},
             {"s", Tanh{}},
             {"out", Dense{kClasses}},
             {"loss", SoftmaxCrossEntropy{.weight = weight}}}};
  }
  static Graph lenet(DType dtype) {
    return {"lenet",
            Shape{{12, 12, 1}},
            dtype,
            {{"c", Conv2d{.filters = 4, .kernel = {3, 3}}},
             {"p", MaxPool{.kernel = {2, 2}}},
             {"d", Conv2d{.filters = 6, .kernel = {3, 3}}},
             {"q", MaxPool{.kernel = {2, 2}}},
             {"h", Dense{20}},
             {"r", Relu{}},
             {"out", Dense{kClasses}},
             {"loss", SoftmaxCrossEntropy{}}}};
  }

  struct Trained {
    std::vector<double> losses;  // by step, of a row
    std::vector<std::vector<float>> parameters, gradients;
    std::vector<LossScale> scales;  // behind each step
  };

  /// SGD on one batch. `scaling`: nothing: the loss is not scaled.
  Trained train(const Graph& graph, double rate, std::uint32_t steps, std::optional<LossScaling> scaling = {}) {
    const Layout layout{graph};
    const BatchLayout rows{kRows, graph.fields()};
    std::vector<float> start(layout.count_elements());
    fill_initial(graph, layout, 4, start);
    ReplicaMemory memory{.parameters = put(start), .half = {}, .gradients = put(std::vector<float>(start.size()))};
    StripeMemory stripe{.stripe = {GroupId{}, Rank{}, 0, start.size()}, .parameters = memory.parameters, .half = {}};
    if (graph.dtype() == DType::f16) {
      std::vector<std::uint16_t> copy;
      for (const float value : start) copy.push_back(to_f16(value));
      stripe.half = memory.half = put_all(copy);
      stripe.copy_type = DType::f16;
    }
    if (scaling) {
      const LossScale first = first_scale(*scaling);
      stripe.loss_scale = memory.loss_scale = put_all(std::vector{LossScaleState{first, first}});
    }
    const auto replica = device().compile(graph, layout, rows, make_buckets(GroupId{}, graph, layout, 0), memory);
    const Rule rule{.kind = RuleKind::sgd, .rate = rate, .scales_loss = true};
    const Memory batch = batch_of(rows), sums = put_sums({});
    const auto stream = device().stream();
    NoSink sink;
    Trained found;
    for (std::uint64_t step = 1; step <= steps; ++step) {
      stream->clear(sums);
      replica->step(*stream, batch, kRows, sums, sink);
      stream->reduce(memory.gradients, std::array{memory.gradients}, {sums, 0, {}, /*squares=*/false});
      stream->update(rule_step(rule, step), step, stripe, std::array{memory.gradients}, sums);
      if (scaling) stream->adapt_loss_scale(memory.loss_scale, *scaling, ScaleVerdict::common, sums, 1);
      finish(*stream);
      found.losses.push_back(value<StepSums>(sums).loss / kRows);
      found.parameters.push_back(get(memory.parameters));
      found.gradients.push_back(get(memory.gradients));
      if (scaling) found.scales.push_back(value<LossScaleState>(memory.loss_scale).now);
    }
    return found;
  }

  static double distance(const std::vector<float>& found, const std::vector<float>& wanted) {
    double off = 0, all = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      off += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
      all += std::pow(static_cast<double>(wanted[i]), 2);
    }
    return std::sqrt(off / all);
  }

 private:
  template <class T>
  Memory put_all(const std::vector<T>& values) {
    return put(std::span<const T>{values});
  }
  Memory batch_of(const BatchLayout& layout) {
    std::vector<std::byte> bytes(layout.size_bytes());
    const auto& image = layout.entry(kImage);
    const auto& label = layout.entry(kLabel);
    auto* const numbers = reinterpret_cast<float*>(bytes.data() + image.offset);
    auto* const labels = reinterpret_cast<std::int32_t*>(bytes.data() + label.offset);
    for (std::uint64_t row = 0; row < kRows; ++row) {
      labels[row] = static_cast<std::int32_t>(row % kClasses);
      for (std::uint64_t i = 0; i < image.row_elements(); ++i)
        numbers[row * image.row_elements() + i] = static_cast<float>(random_normal(8, row * image.row_elements() + i)) +
                                                  (i % kClasses == row % kClasses ? 1.0F : 0.0F);
    }
    const Memory batch = arena()->allocate(bytes.size());
    write(batch, std::span<const std::byte>{bytes});
    return batch;
  }
};

TEST_P(CudaF16, LearnsNearlyWhatF32Learns) {
  struct Case {
    Graph (*graph)(DType);
    double rate;
  };
  for (const auto& [graph, rate] : {Case{[](DType dtype) { return mlp(dtype); }, 0.2}, Case{lenet, 0.05}}) {
    const Trained wanted = train(graph(DType::f32), rate, 25);
    const Trained found = train(graph(DType::f16), rate, 25, LossScaling{.start = 1024});
    SCOPED_TRACE(graph(DType::f16).name());
    EXPECT_LT(wanted.losses.back(), 0.8 * wanted.losses.front());
    for (std::size_t step = 0; step < wanted.losses.size(); ++step)
      ASSERT_NEAR(found.losses[step], wanted.losses[step], 0.02 * wanted.losses.front()) << "step " << step;
  }
}

/// Gradients of a loss that weighs so little are nothing in f16.
TEST_P(CudaF16, LearnsWithALossScaleWhatVanishesWithoutOne) {
  constexpr double kWeight = 0x1p-26;
  const Trained wanted = train(mlp(DType::f32, kWeight), 0.2 / kWeight, 15);
  const Trained lost = train(mlp(DType::f16, kWeight), 0.2 / kWeight, 15);
  const Trained found = train(mlp(DType::f16, kWeight), 0.2 / kWeight, 15, LossScaling{.start = 16777216});
  EXPECT_EQ(lost.gradients[0], std::vector<float>(lost.gradients[0].size()));
  EXPECT_EQ(lost.losses.back(), lost.losses.front());
  EXPECT_LT(distance(found.gradients[0], wanted.gradients[0]), 0.02);
  EXPECT_LT(wanted.losses.back(), 0.8 * wanted.losses.front());
  EXPECT_NEAR(found.losses.back(), wanted.losses.back(), 0.02 * wanted.losses.front());
}

TEST_P(CudaF16, LeavesOutUpdatesUntilTheScaleFits) {
  const LossScaling large{.start = 16777216, .growth_steps = 1000};
  const Trained found = train(mlp(DType::f16), 0.2, 25, large);
  ASSERT_GT(found.scales.front().left_out, 0U);
  EXPECT_EQ(found.scales.front().scale, large.start / 2);
  EXPECT_EQ(found.parameters[0], train(mlp(DType::f16), 0, 1, LossScaling{}).parameters[0]);
  const std::uint32_t left_out = found.scales.back().left_out;
  EXPECT_EQ(static_cast<double>(found.scales.back().scale), large.start / std::pow(2, left_out));
  const Trained fits =
      train(mlp(DType::f16), 0.2, 25 - left_out, LossScaling{.start = large.start / std::pow(2, left_out)});
  EXPECT_EQ(found.parameters.back(), fits.parameters.back());
}

/// A power of two is not seen in gradients that neither overflow nor vanish.
TEST_P(CudaF16, HasTheSameGradientsWhateverTheScaleIs) {
  const Trained one = train(mlp(DType::f16), 0.1, 1, LossScaling{.start = 256});
  const Trained other = train(mlp(DType::f16), 0.1, 1, LossScaling{.start = 4096});
  EXPECT_LT(distance(one.gradients[0], other.gradients[0]), 1e-3);
}

TEST_P(CudaF16, PushesNothingOfAGradientThatOverflows) {
  const Memory gradients = put(std::vector<float>{1, 2, INFINITY, 4});
  const Memory fine = put(std::vector<float>{1, 2, 3, 4});
  const Memory sums = put_sums({.loss = 3, .correct = 1, .samples = 2, .stop_requests = 1});
  const Memory others = put_sums({.loss = 3, .correct = 1, .samples = 2});
  const std::array ranks{Rank{3}};
  const auto stream = device().stream();
  for (const auto& [gradient, of] : {std::pair{gradients, sums}, std::pair{fine, others}}) {
    stream->reduce(gradient, std::array{gradient}, {of, 10, ranks, /*squares=*/false});
    stream->leave_out_bad(gradient, of);
  }
  finish(*stream);
  EXPECT_EQ(get(gradients), std::vector<float>(4));
  EXPECT_EQ(get(fine), (std::vector<float>{1, 2, 3, 4}));
  const StepSums left = value<StepSums>(sums), kept = value<StepSums>(others);
  EXPECT_EQ(left.samples + left.correct, 0U);
  EXPECT_EQ(left.loss, 0.0);
  EXPECT_EQ(left.stop_requests, 1U);
  EXPECT_EQ(left.bad_gradient, bad_at(12, 3));
  EXPECT_EQ(kept.samples, 2U);
  EXPECT_EQ(kept.bad_gradient, 0U);
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaF16,
                         ::testing::Values(cuda_case("Gpu", gpu::is_stand_in() ? "cublaslt" : ""),
                                           cuda_case("GpuOwnProducts", "own")),
                         contracts::case_name);

}  // namespace
}  // namespace troupe
