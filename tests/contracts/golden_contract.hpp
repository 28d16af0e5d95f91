#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "tests/contracts/device_world.hpp"
#include "tests/contracts/golden_files.hpp"
#include "tests/contracts/gradient_distance.hpp"

namespace troupe::contracts {

/// What a device makes of the models of the golden files: what PyTorch made of them, up to rounding. For devices that
/// compute graphs; what one of them has no implementation for is refused with Code::unsupported, and passed over here.
/// See device_world.hpp for how to run it on a device. Whoever compiles it defines TROUPE_GOLDEN_FOLDER, where the
/// files lie; the target troupe::contracts does.
class GoldenContract : public DeviceWorld {
 protected:
  /// A case's graph, compiled, with its batches and what it starts from.
  struct Compiled {
    Graph graph;
    Layout layout{graph};
    ReplicaMemory memory{};
    Memory sums{};
    std::vector<Memory> batches{};
    std::unique_ptr<Replica> replica{};
  };

  /// Nothing where the device refuses the graph.
  std::unique_ptr<Compiled> compile(const GoldenCase& golden, DType dtype) {
    auto made = std::make_unique<Compiled>(Compiled{golden.graph(dtype)});
    const BatchLayout batch{golden.rows, made->graph.fields()};
    const std::vector<double> start = golden.in_layout(made->graph, made->layout, &GoldenCase::Values::start);
    made->memory.parameters = put(std::vector<float>(start.begin(), start.end()));
    made->memory.gradients = put(std::vector<float>(start.size()));
    if (dtype == DType::bf16) {
      std::vector<std::uint16_t> image;
      for (const double value : start) image.push_back(to_bf16(static_cast<float>(value)));
      made->memory.half = put(std::span<const std::uint16_t>{image});
    }
    made->sums = put_sums({});
    for (const auto& values : golden.batches) {
      const std::vector<std::byte> rows = rows_of(batch, values);
      made->batches.push_back(put(std::span{rows}));
    }
    try {
      const auto buckets = make_buckets(GroupId{}, made->graph, made->layout, 0);
      made->replica = device().compile(made->graph, made->layout, batch, buckets, made->memory);
    } catch (const Error& error) {
      if (error.code() != Code::unsupported) throw;
      return nullptr;
    }
    return made;
  }

  /// One step and one evaluation of the first batch. Whether the device computes the case at all.
  bool compare_step(const GoldenCase& golden, DType dtype) {
    const auto model = compile(golden, dtype);
    if (!model) return false;
    const auto stream = device().stream();
    const Memory evaluated = put_sums({});
    model->replica->step(*stream, model->batches[0], golden.rows, model->sums, sink_);
    model->replica->evaluate(*stream, model->batches[0], golden.rows, evaluated);
    finish(*stream);
    expect_sums("a step", value<StepSums>(model->sums), golden.step, dtype);
    expect_sums("an evaluation", value<StepSums>(evaluated), golden.evaluation, dtype);
    const std::vector<double> wanted = golden.in_layout(model->graph, model->layout, &GoldenCase::Values::gradient);
    expect_near("gradient", *model, get(model->memory.gradients), wanted, dtype, tolerance_of(dtype).gradient);
    return true;
  }

  /// All steps of training, an update after each.
  bool compare_training(const GoldenCase& golden, DType dtype) {
    const auto model = compile(golden, dtype);
    if (!model) return false;
    const auto stream = device().stream();
    const GoldenCase::Training& training = *golden.training;
    const std::vector<Layout::Entry> no_decay =
        entries_matching(model->graph, model->layout, training.no_decay, {}, needs_tensor_norms(training.rule.kind));
    const std::vector<Layout::Entry> scaled = entries_of_tensors(model->graph, model->layout);
    const Memory squares = put(std::vector<float>(2 * scaled.size()));
    std::array<Memory, kMaxStateSlots> state;
    for (std::size_t slot = 0; slot < state_slots(training.rule.kind); ++slot)
      state[slot] = put(std::vector<float>(model->layout.count_elements()));
    for (std::uint64_t step = 0; step < training.losses.size(); ++step) {
      SCOPED_TRACE(::testing::Message() << "step " << step);
      write_sums(model->sums, {});
      const Memory& batch = model->batches[step % model->batches.size()];
      model->replica->step(*stream, batch, golden.rows, model->sums, sink_);
      update(*stream, *model, training.rule, step + 1, state, no_decay, scaled, squares);
      finish(*stream);
      const auto sums = value<StepSums>(model->sums);
      EXPECT_NEAR(sums.loss, training.losses[step], loss_tolerance(dtype, training.losses[step], sums.samples));
    }
    // How far it has come, not where it is: that is mostly where it started.
    std::vector<float> moved = get(model->memory.parameters);
    std::vector<double> wanted = golden.in_layout(model->graph, model->layout, &GoldenCase::Values::trained);
    const std::vector<double> start = golden.in_layout(model->graph, model->layout, &GoldenCase::Values::start);
    for (std::size_t i = 0; i < start.size(); ++i) {
      moved[i] = static_cast<float>(moved[i] - start[i]);
      wanted[i] -= start[i];
    }
    expect_near("way", *model, moved, wanted, dtype, dtype == DType::f32 ? 3e-5 : tolerance_of(dtype).gradient);
    return true;
  }

  /// Calls `compare` with each file.
  template <class Compare>
  void compare_all(DType dtype, Compare&& compare) {
    std::uint32_t computed = 0;
    for (const GoldenCase& golden : read_golden_cases(TROUPE_GOLDEN_FOLDER)) {
      SCOPED_TRACE(golden.name + ".json");
      computed += compare(golden) ? 1 : 0;
    }
    if (computed == 0) GTEST_SKIP() << "the device computes none of them in " << name_of(dtype);
  }
  void compare_steps(DType dtype) {
    compare_all(dtype, [&](const GoldenCase& golden) { return compare_step(golden, dtype); });
  }
  void compare_trainings(DType dtype) {
    compare_all(dtype, [&](const GoldenCase& golden) { return golden.training && compare_training(golden, dtype); });
  }

 private:
  struct NoSink final : BucketSink {
    void ready(const Bucket&, Stream&) noexcept override {}
  };

  static std::vector<std::byte> rows_of(const BatchLayout& layout,
                                        const std::map<std::string, std::vector<double>>& values) {
    std::vector<std::byte> rows(layout.size_bytes());
    for (const BatchLayout::Entry& entry : layout.entries()) {
      std::byte* const to = rows.data() + entry.offset;
      const std::vector<double>& from = values.at(entry.field.name);
      for (std::size_t i = 0; i < from.size(); ++i) {
        if (entry.field.dtype == DType::i32)
          reinterpret_cast<std::int32_t*>(to)[i] = static_cast<std::int32_t>(from[i]);
        else if (entry.field.dtype == DType::f32)
          reinterpret_cast<float*>(to)[i] = static_cast<float>(from[i]);
        else
          reinterpret_cast<std::uint16_t*>(to)[i] = to_bf16(static_cast<float>(from[i]));
      }
    }
    return rows;
  }

  /// Updates parameter by parameter, since running statistics have a rule of their own: p -= momentum (p - s), s what
  /// the batch has, whose negative is their gradient.
  void update(Stream& stream, const Compiled& model, const Rule& rule, std::uint64_t number,
              const std::array<Memory, kMaxStateSlots>& state, const std::vector<Layout::Entry>& no_decay,
              const std::vector<Layout::Entry>& scaled, const Memory& squares) {
    const auto& entries = model.layout.entries();
    const auto& parameters = model.graph.parameters();
    const auto end_of = [&](std::size_t p) {
      return p + 1 < entries.size() ? entries[p + 1].first : model.layout.count_elements();
    };
    const auto part_of = [&](const Memory& all, std::size_t p, std::uint64_t element_bytes) {
      if (all.size_bytes == 0) return all;
      return slice(all, entries[p].first * element_bytes, (end_of(p) - entries[p].first) * element_bytes);
    };
    for (std::size_t p = 0; p < entries.size() && needs_verdict(rule); ++p) {
      if (parameters[p].is_statistic()) continue;
      const Memory gradient = part_of(model.memory.gradients, p, sizeof(float));
      stream.reduce(gradient, std::span{&gradient, 1}, {.sums = model.sums, .first_element = entries[p].first});
    }
    for (std::size_t p = 0; p < entries.size(); ++p) {
      StripeMemory stripe;
      stripe.stripe = {GroupId{}, Rank{}, entries[p].first, end_of(p) - entries[p].first};
      stripe.parameters = part_of(model.memory.parameters, p, sizeof(float));
      stripe.half = part_of(model.memory.half, p, sizeof(std::uint16_t));
      const Memory gradient = part_of(model.memory.gradients, p, sizeof(float));
      Rule own = rule;
      if (parameters[p].is_statistic()) {
        own = {.kind = RuleKind::sgd, .rate = parameters[p].momentum, .weight_decay = 1};
      } else {
        for (std::size_t slot = 0; slot < state.size(); ++slot)
          stripe.state[slot] = part_of(state[slot], p, sizeof(float));
        stripe.no_decay = no_decay;
        stripe.scaled = scaled;
        stripe.squares = squares;
        if (needs_tensor_norms(own.kind)) {  // each parameter is in one piece here
          stream.clear(squares);
          stream.add_update_squares(rule_step(own, number), stripe, gradient, model.sums);
        }
      }
      stream.update(rule_step(own, number), number, stripe, std::span{&gradient, 1}, model.sums);
    }
  }

  static double loss_tolerance(DType dtype, double loss, std::uint64_t samples) {
    return tolerance_of(dtype).loss * std::max(loss, static_cast<double>(samples));
  }

  static void expect_sums(const char* what, const StepSums& found, const GoldenCase::Sums& wanted, DType dtype) {
    SCOPED_TRACE(what);
    EXPECT_NEAR(found.loss, wanted.loss, loss_tolerance(dtype, wanted.loss, wanted.samples));
    EXPECT_EQ(found.samples, wanted.samples);
    if (dtype == DType::f32) {
      EXPECT_EQ(found.correct, wanted.correct);
    }
  }

  /// f32: of each parameter; bf16: of all together.
  static void expect_near(const char* what, const Compiled& model, const std::vector<float>& found,
                          const std::vector<double>& wanted, DType dtype, double most) {
    const auto distance = [&](const Layout::Entry& entry) {
      return gradient_distance(std::span{found}, std::span{wanted}, entry);
    };
    EXPECT_LE(distance({0, wanted.size()}), most) << what << " of all parameters";
    for (std::size_t p = 0; p < model.layout.entries().size() && dtype == DType::f32; ++p)
      EXPECT_LE(distance(model.layout.entries()[p]), most) << what << " of " << model.graph.parameters()[p].name;
  }

  NoSink sink_;
};

TEST_P(GoldenContract, HasTheLossesAndGradientsOfPyTorch) { compare_steps(DType::f32); }
TEST_P(GoldenContract, HasNearlyTheLossesAndGradientsOfPyTorchInBf16) { compare_steps(DType::bf16); }
TEST_P(GoldenContract, ComesAsFarByTrainingAsPyTorch) { compare_trainings(DType::f32); }
TEST_P(GoldenContract, ComesNearlyAsFarByTrainingAsPyTorchInBf16) { compare_trainings(DType::bf16); }

}  // namespace troupe::contracts
