#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/random.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/compute/rules/gradient_check.hpp"
#include "runtime/exchange/communicator.hpp"
#include "runtime/exchange/compression/compression_settings.hpp"
#include "runtime/exchange/exchange.hpp"
#include "runtime/memory/arena.hpp"

// What every Communicator promises: after each synchronous step all ranks hold the same bits, which are those of a
// serial run that adds up in rank order; where the communicator has an order of its own, they are near them. An
// implementation instantiates the suite:
//   INSTANTIATE_TEST_SUITE_P(Arena, CommunicatorContract, ::testing::Values(communicator_case(...)),
//   communicator_name);
namespace troupe::contracts {

/// The ranks, and the data that they exchange.
struct GroupSpec {
  std::uint32_t ranks = 1;
  std::uint64_t elements = 0;
  std::vector<Stripe> stripes;  // by rank
  std::vector<Bucket> buckets;  // by index
  Rule rule;
  bool half = false;
  std::uint64_t seed = 0;
  std::uint64_t chunk = 1024;            // elements that travel at once, where anything travels
  CompressionSettings compression{};     // of what travels
  std::vector<Layout::Entry> tensors{};  // whose rate follows from norms, of rules that need them; growing
};

/// A group of `ranks` with ragged, some empty, stripes and one to four buckets, by the seed.
inline GroupSpec random_group(std::uint32_t ranks, std::uint64_t seed) {
  GroupSpec spec;
  spec.ranks = ranks;
  spec.seed = seed;
  std::uint64_t draw = 0;
  const auto below = [&](std::uint64_t bound) { return random_below(sub_key(seed, ranks), draw++, bound); };
  constexpr std::uint64_t kAlign = Layout::kAlignElements;
  const std::uint64_t blocks = 1 + below(below(2) == 0 ? 12 : 400);
  spec.elements = blocks * kAlign;
  const auto cut = [&](std::uint64_t parts) {
    std::vector<std::uint64_t> cuts{0, blocks};
    while (cuts.size() <= parts) cuts.push_back(below(blocks + 1));
    std::sort(cuts.begin(), cuts.end());
    return cuts;
  };
  const auto stripes = cut(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    spec.stripes.push_back({GroupId{}, Rank{r}, stripes[r] * kAlign, (stripes[r + 1] - stripes[r]) * kAlign});
  }
  const auto buckets = cut(1 + below(4));
  for (std::size_t b = buckets.size() - 1; b > 0; --b) {  // the last elements become ready first
    const std::uint64_t count = buckets[b] - buckets[b - 1];
    const auto index = static_cast<std::uint32_t>(spec.buckets.size());
    if (count > 0) spec.buckets.push_back({GroupId{}, index, buckets[b - 1] * kAlign, count * kAlign});
  }
  spec.rule.kind = below(2) == 0 ? RuleKind::adam : RuleKind::sgd;
  spec.rule.weight_decay = 0.01;
  spec.half = below(2) == 0;
  spec.chunk = kAlign * (1 + below(200));
  return spec;
}

/// One rank as the suite sees it. `mine` is its whole stripe; the rings have StepExchange::kStepsKept places.
struct RankView {
  AddressSpace* space = nullptr;
  Arena* arena = nullptr;  // for the test's own data, kTestBytes of it
  /// Memory of the kind on which its device works best; the arena's, where that is the host's.
  std::function<Memory(std::uint64_t size_bytes)> take{};
  std::shared_ptr<HostCopies> copies{};  // between the test and such memory
  Stream* stream = nullptr;
  Stream* side = nullptr;  // another one of the same device
  Communicator* communicator = nullptr;
  Memory parameters, half, sums, totals;
  Memory contributions;  // all that it contributes from: the gradients, and as much again behind them
  Memory gradients;
  StripeMemory mine;
};

/// What a world allocates for a rank, but for parameters and half, which some ranks share.
inline constexpr std::uint64_t kTestBytes = 4 << 20;
inline void allocate_rank(const GroupSpec& spec, std::uint32_t rank, Arena& arena, RankView& view) {
  const std::uint64_t ring = StepExchange::kStepsKept * sizeof(StepSums);
  view.arena = &arena;
  if (!view.take) view.take = [&arena](std::uint64_t size_bytes) { return arena.allocate(size_bytes); };
  view.contributions = view.take(2 * spec.elements * sizeof(float));
  view.gradients = slice(view.contributions, 0, spec.elements * sizeof(float));
  view.sums = view.take(ring);
  view.totals = arena.allocate(ring);
  view.mine.stripe = spec.stripes[rank];
  const auto part = [&](const Memory& whole, std::uint64_t each) {
    const Stripe& stripe = spec.stripes[rank];
    return whole.size_bytes == 0 ? Memory{} : slice(whole, stripe.first * each, stripe.count * each);
  };
  view.mine.parameters = part(view.parameters, sizeof(float));
  view.mine.half = part(view.half, size_bytes(DType::bf16));
  const std::size_t slots = state_slots(spec.rule.kind);
  for (std::size_t s = 0; s < slots; ++s) view.mine.state[s] = view.take(spec.stripes[rank].count * sizeof(float));
  view.mine.journal = view.take(spec.buckets.size() * journal_bytes(slots));
  if (!needs_tensor_norms(spec.rule.kind)) return;
  view.mine.scaled = spec.tensors;
  view.mine.squares = view.take(spec.tensors.size() * sizeof(TensorSquares));
}

/// The ranks of one group in one process.
class CommunicatorWorld {
 public:
  virtual ~CommunicatorWorld() = default;
  virtual RankView& rank(std::uint32_t rank) = 0;
  /// Lets every rank make some progress; called repeatedly, by one thread.
  virtual void drive() { std::this_thread::yield(); }
};

struct CommunicatorCase {
  std::string name;
  std::function<std::unique_ptr<CommunicatorWorld>(const GroupSpec&)> make;
  std::uint64_t seeds = 10;           // how many random groups of each size
  CompressionSettings compression{};  // of their gradients: every rank must be sent all others'
};
inline std::string communicator_name(const ::testing::TestParamInfo<CommunicatorCase>& info) { return info.param.name; }
inline void PrintTo(const CommunicatorCase& c, std::ostream* out) { *out << c.name; }

/// The numbers that all ranks' replicas find, and what a serial run makes of them.
class SerialRun {
 public:
  explicit SerialRun(const GroupSpec& spec)
      : spec_(spec),
        parameters(spec.elements),
        residuals_(spec.ranks, std::vector<float>(spec.elements)),
        s0_(spec.elements),
        s1_(spec.elements) {
    for (std::uint64_t i = 0; i < spec.elements; ++i) {
      parameters[i] = static_cast<float>(random_normal(sub_key(spec.seed, 1), i));
    }
  }
  static std::uint64_t key(const GroupSpec& spec, std::uint32_t rank, std::uint64_t step) {
    return sub_key(sub_key(spec.seed, 100 + rank), step);
  }
  static std::vector<float> gradients(const GroupSpec& spec, std::uint32_t rank, std::uint64_t step) {
    std::vector<float> values(spec.elements);
    for (std::uint64_t i = 0; i < spec.elements; ++i) {
      values[i] = static_cast<float>(random_normal(key(spec, rank, step), i));
    }
    if (spec.rule.skips_non_finite && step == 3 && rank + 1 == spec.ranks) {
      values[spec.elements / 2] = std::numeric_limits<float>::quiet_NaN();
    }
    return values;
  }
  /// Some ranks have no samples in some steps; in step 2 nobody has.
  static StepSums sums(const GroupSpec& spec, std::uint32_t rank, std::uint64_t step) {
    StepSums sums;
    sums.loss = random_unit(key(spec, rank, step), 1000);
    sums.samples = step == 2 ? 0 : random_below(key(spec, rank, step), 1001, 50);
    sums.correct = sums.samples / 2;
    sums.stop_requests = rank == 1 && step == 3 ? 1 : 0;
    return sums;
  }

  void take_step(std::uint64_t step) {
    total = {};
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      const StepSums part = sums(spec_, r, step);
      total.loss += part.loss;
      total.correct += part.correct;
      total.samples += part.samples;
      total.stop_requests += part.stop_requests;
    }
    std::vector<std::vector<float>> found;
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      found.push_back(gradients(spec_, r, step));
      if (spec_.compression.kind != Compression::none && spec_.ranks > 1) round(r, found.back());
    }
    const RuleStep rule = rule_step(spec_.rule, step + 1);
    if (rule.judged) measure(found);
    const float scale = gradient_scale(rule, total);
    if (scale == 0) return;
    std::vector<float> sums = found[0];
    for (std::uint32_t r = 1; r < spec_.ranks; ++r)
      for (std::uint64_t i = 0; i < spec_.elements; ++i) sums[i] += found[r][i];
    std::vector<float> rates(spec_.elements, rule.rate);
    for (const Layout::Entry& tensor : spec_.tensors) {
      const double ratio = ratio_of(tensor, rule, scale, sums);
      for (std::uint64_t i = tensor.first; i < tensor.first + tensor.count; ++i)
        rates[i] = rule.rate * static_cast<float>(ratio);
    }
    for (std::uint64_t i = 0; i < spec_.elements; ++i) {
      RuleStep here = rule;
      here.rate = rates[i];
      update_element(here, scale, sums[i], parameters[i], s0_[i], s1_[i]);
    }
  }
  std::vector<std::uint16_t> half() const {
    std::vector<std::uint16_t> image;
    for (const float value : parameters) image.push_back(to_bf16(value));
    return image;
  }

 private:
  /// By the papers' formulas, over the whole tensor.
  double ratio_of(const Layout::Entry& tensor, const RuleStep& rule, float scale,
                  const std::vector<float>& sums) const {
    double weights = 0, update = 0;
    for (std::uint64_t i = tensor.first; i < tensor.first + tensor.count; ++i) {
      const double p = parameters[i], g = double{sums[i]} * double{scale};
      double move = g;
      if (rule.kind == RuleKind::lamb) {
        const double m = spec_.rule.beta1 * s0_[i] + (1 - spec_.rule.beta1) * g;
        const double v = spec_.rule.beta2 * s1_[i] + (1 - spec_.rule.beta2) * g * g;
        move = m * double{rule.first_scale} / (std::sqrt(v * double{rule.second_scale}) + spec_.rule.epsilon) +
               spec_.rule.weight_decay * p;
      }
      weights += p * p;
      update += move * move;
    }
    const double of_weights = std::sqrt(weights), of_update = std::sqrt(update);
    if (rule.kind == RuleKind::lamb) return of_weights / of_update;
    return spec_.rule.trust * of_weights / (of_update + spec_.rule.weight_decay * of_weights);
  }
  /// What the owners add up of rank `r`'s gradients: its own elements, without feedback, as they are.
  void round(std::uint32_t r, std::vector<float>& gradients) {
    const Stripe& own = spec_.stripes[r];
    for (std::uint64_t i = 0; i < spec_.elements; ++i) {
      if (!spec_.compression.error_feedback) {
        if (i < own.first || i >= own.first + own.count) gradients[i] = from_bf16(to_bf16(gradients[i]));
        continue;
      }
      const float whole = gradients[i] + residuals_[r][i];
      gradients[i] = from_bf16(to_bf16(whole));
      residuals_[r][i] = std::isfinite(whole - gradients[i]) ? whole - gradients[i] : 0;
    }
  }
  /// Each rank measures its stripe, bucket by bucket; what they find is added up in rank order.
  void measure(const std::vector<std::vector<float>>& found) {
    std::vector<float> sum = found[0];
    for (std::uint32_t r = 1; r < spec_.ranks; ++r)
      for (std::uint64_t i = 0; i < spec_.elements; ++i) sum[i] += found[r][i];
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      StepSums own;
      for (const Bucket& bucket : spec_.buckets) {
        const Stripe part = common_part(spec_.stripes[r], bucket);
        std::vector<const float*> parts;
        for (std::uint32_t other = 0; other < spec_.ranks; ++other) {
          parts.push_back((other == r ? sum : found[other]).data() + part.first);
        }
        if (part.count > 0) check_gradient(own, sum.data() + part.first, parts, part.count, {{}, part.first});
      }
      total.gradient_squares += own.gradient_squares;
      if (own.bad_gradient != 0 && (total.bad_gradient == 0 || own.bad_gradient < total.bad_gradient))
        total.bad_gradient = own.bad_gradient;
    }
  }

  const GroupSpec spec_;

 public:
  std::vector<float> parameters;
  StepSums total;

 private:
  std::vector<std::vector<float>> residuals_;  // by rank
  std::vector<float> s0_, s1_;
};

/// A world at work: enqueues the ranks' steps and notes, in stream order, what each of them sees.
class WorkingGroup {
 public:
  static constexpr std::chrono::seconds kPatience{30};

  WorkingGroup(const GroupSpec& spec, const CommunicatorCase& how) : spec(spec), world(how.make(spec)) {
    const SerialRun start{spec};
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      RankView& view = world->rank(r);
      write(view, view.parameters, start.parameters);
      if (spec.half) write(view, view.half, start.half());
    }
  }

  /// What one rank observes in one step.
  struct Sight {
    Memory before, after, half, total;
  };

  template <class T>
  static void write(RankView& view, const Memory& to, const std::vector<T>& values) {
    view.copies->write(to, [&](std::span<std::byte> bytes) { std::memcpy(bytes.data(), values.data(), bytes.size()); });
  }
  template <class T>
  static Memory put(RankView& view, const std::vector<T>& values) {
    const Memory memory = view.arena->allocate(values.size() * sizeof(T));
    write(view, memory, values);
    return memory;
  }
  template <class T>
  static std::vector<T> get(const RankView& view, const Memory& memory) {
    std::vector<T> values(memory.size_bytes / sizeof(T));
    view.copies->read(memory, [&](std::span<const std::byte> bytes) {
      if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    });
    return values;
  }

  BucketWork work_of(std::uint32_t r, std::uint64_t step, const Bucket& bucket,
                     std::span<const StripeMemory> mine = {}) {
    const RankView& view = world->rank(r);
    const std::uint64_t place = step % StepExchange::kStepsKept * sizeof(StepSums);
    BucketWork work;
    work.bucket = bucket;
    work.step = Step{step};
    work.update = step + 1;
    work.first = bucket.index == 0;
    work.gradients = slice(view.gradients, bucket.first * sizeof(float), bucket.count * sizeof(float));
    work.sums = slice(view.sums, place, sizeof(StepSums));
    work.total = slice(view.totals, place, sizeof(StepSums));
    work.mine = mine;
    return work;
  }
  StripeMemory part_of(std::uint32_t r, const Bucket& bucket) {
    return common_part(world->rank(r).mine, bucket, spec.rule.kind);
  }
  /// The part of a step up to and without the exchange of `bucket`: its gradients are written, its weights read last.
  void enqueue_gradients(std::uint32_t r, std::uint64_t step, const Bucket& bucket, const Memory& found) {
    RankView& view = world->rank(r);
    if (bucket.index == 0) {
      view.stream->copy(work_of(r, step, bucket).sums, put(view, std::vector{SerialRun::sums(spec, r, step)}));
    }
    const std::uint64_t first = bucket.first * sizeof(float);
    const std::uint64_t bytes = bucket.count * sizeof(float);
    view.stream->copy(slice(view.gradients, first, bytes), slice(found, first, bytes));
  }
  Sight enqueue_step(std::uint32_t r, std::uint64_t step) {
    RankView& view = world->rank(r);
    const std::uint64_t bytes = spec.elements * sizeof(float);
    Sight sight{view.arena->allocate(bytes), view.arena->allocate(bytes), {}, view.arena->allocate(sizeof(StepSums))};
    const Memory found = put(view, SerialRun::gradients(spec, r, step));
    std::vector<Point> points;
    for (const Bucket& bucket : spec.buckets) {
      enqueue_gradients(r, step, bucket, found);
      const std::uint64_t first = bucket.first * sizeof(float);
      const std::uint64_t count = bucket.count * sizeof(float);
      view.stream->copy(slice(sight.before, first, count), slice(view.parameters, first, count));
      const StripeMemory mine = part_of(r, bucket);
      if (needs_verdict(spec.rule)) {
        view.communicator->gather_gradients(*view.stream, work_of(r, step, bucket, {&mine, 1}));
      } else {
        points.push_back(view.communicator->reduce_update_gather(*view.stream, work_of(r, step, bucket, {&mine, 1}),
                                                                 rule_step(spec.rule, step + 1)));
      }
    }
    if (needs_verdict(spec.rule)) {
      view.communicator->agree(*view.stream, work_of(r, step, spec.buckets[0]));
      for (const Bucket& bucket : spec.buckets) {
        const StripeMemory mine = part_of(r, bucket);
        points.push_back(view.communicator->update_gather(*view.stream, work_of(r, step, bucket, {&mine, 1}),
                                                          rule_step(spec.rule, step + 1)));
      }
    }
    for (const Point& point : points) view.stream->wait(point);
    view.stream->copy(sight.after, view.parameters);
    if (spec.half) {
      sight.half = view.arena->allocate(bytes / 2);
      view.stream->copy(sight.half, view.half);
    }
    view.stream->copy(sight.total, work_of(r, step, spec.buckets[0]).total);
    return sight;
  }

  /// Drives the world until all `points` are reached or poisoned; the statuses, or nothing when that takes too long.
  std::optional<std::vector<Status>> reach(const std::vector<std::pair<std::uint32_t, Point>>& points) {
    const Deadline deadline = Deadline::after(kPatience);
    for (;;) {
      std::vector<Status> statuses;
      for (const auto& [r, point] : points) {
        const Timeline& line = world->rank(r).space->timeline(point.line);
        const Status status = line.status();
        if (line.value() >= point.value) {
          statuses.emplace_back();
        } else if (!status.ok()) {
          statuses.push_back(status);
        }
      }
      if (statuses.size() == points.size()) return statuses;
      if (deadline.passed()) return std::nullopt;
      world->drive();
    }
  }
  /// Until all that was enqueued so far is done in every rank; false and a failed test otherwise.
  bool finish() {
    std::vector<std::pair<std::uint32_t, Point>> points;
    for (std::uint32_t r = 0; r < spec.ranks; ++r) points.emplace_back(r, world->rank(r).stream->mark());
    const auto statuses = reach(points);
    EXPECT_TRUE(statuses) << "the ranks did not finish in time";
    for (std::size_t r = 0; statuses && r < statuses->size(); ++r) {
      EXPECT_TRUE((*statuses)[r].ok()) << "rank " << r << ": " << (*statuses)[r].text();
    }
    return statuses && std::all_of(statuses->begin(), statuses->end(), [](const Status& s) { return s.ok(); });
  }

  const GroupSpec spec;
  std::unique_ptr<CommunicatorWorld> world;
};

class CommunicatorContract : public ::testing::TestWithParam<CommunicatorCase> {
 protected:
  static std::string describe(const GroupSpec& spec) {
    std::string stripes;
    for (const Stripe& stripe : spec.stripes) stripes += text(" ", stripe.count);
    return text(spec.ranks, " ranks, seed ", spec.seed, ", stripes of", stripes, " elements, ", spec.buckets.size(),
                " buckets, ", name_of(spec.rule.kind), spec.half ? ", with bf16" : "",
                spec.compression.kind == Compression::none ? ""
                : spec.compression.error_feedback          ? ", rounded with feedback"
                                                           : ", rounded");
  }
  /// Where sums are added up in another order: a sum near zero may end on its other side, and Adam's first steps are as
  /// long for a small gradient as for a large one.
  static void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
    double squares = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double off = found[i] - expected[i];
      ASSERT_LT(std::abs(off), 0.05) << "element " << i;
      squares += off * off;
    }
    ASSERT_LT(std::sqrt(squares / static_cast<double>(found.size())), 1e-5);
  }
  /// Enqueues `steps` steps in every rank, the ranks in an order by the seed, and compares what each saw of each step.
  void expect_serial_bits(GroupSpec spec, std::uint64_t steps) {
    spec.compression = GetParam().compression;
    SCOPED_TRACE(describe(spec));
    WorkingGroup group{spec, GetParam()};
    std::vector<std::vector<WorkingGroup::Sight>> sights(spec.ranks);
    for (std::uint64_t draw = 0, left = steps * spec.ranks; left > 0;) {
      const auto r = static_cast<std::uint32_t>(random_below(sub_key(spec.seed, 7), draw++, spec.ranks));
      if (sights[r].size() == steps) continue;
      sights[r].push_back(group.enqueue_step(r, sights[r].size()));
      --left;
    }
    ASSERT_TRUE(group.finish());
    const SerialRun start{spec};
    SerialRun serial{spec};
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::vector<float> before = serial.parameters;
      serial.take_step(step);
      for (std::uint32_t r = 0; r < spec.ranks; ++r) {
        SCOPED_TRACE(text("step ", step, ", rank ", r));
        const RankView& view = group.world->rank(r);
        const WorkingGroup::Sight& sight = sights[r][step];
        const StepSums total = WorkingGroup::get<StepSums>(view, sight.total)[0];
        ASSERT_EQ(total.samples, serial.total.samples);
        ASSERT_EQ(total.correct, serial.total.correct);
        ASSERT_EQ(total.stop_requests, serial.total.stop_requests);
        ASSERT_EQ(total.bad_gradient, serial.total.bad_gradient);
        ASSERT_EQ(std::isfinite(total.gradient_squares), std::isfinite(serial.total.gradient_squares));
        const std::vector<float> seen = WorkingGroup::get<float>(view, sight.before);
        const std::vector<float> after = WorkingGroup::get<float>(view, sight.after);
        if (view.communicator->traits().rank_ordered) {
          ASSERT_EQ(total.loss, serial.total.loss);
          if (std::isfinite(total.gradient_squares)) {
            ASSERT_EQ(total.gradient_squares, serial.total.gradient_squares);
          }
          ASSERT_EQ(seen, before) << "written while a replica read them";
          ASSERT_EQ(after, serial.parameters);
        } else {
          ASSERT_NEAR(total.loss, serial.total.loss, 1e-12);
          if (std::isfinite(total.gradient_squares)) {
            ASSERT_NEAR(total.gradient_squares, serial.total.gradient_squares, 1e-5 * serial.total.gradient_squares);
          }
          expect_near(after, serial.parameters);
          const RankView& first = group.world->rank(0);
          const std::vector<float>& last =
              step == 0 ? start.parameters : WorkingGroup::get<float>(first, sights[0][step - 1].after);
          ASSERT_EQ(seen, last) << "written while a replica read them, or not the same everywhere";
          ASSERT_EQ(after, WorkingGroup::get<float>(first, sights[0][step].after));
          ASSERT_EQ(total.loss, WorkingGroup::get<StepSums>(first, sights[0][step].total)[0].loss);
        }
        if (spec.half) {
          std::vector<std::uint16_t> image;
          for (const float value : after) image.push_back(to_bf16(value));
          ASSERT_EQ(WorkingGroup::get<std::uint16_t>(view, sight.half), image);
        }
      }
    }
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorContract);

TEST_P(CommunicatorContract, GivesEveryRankTheBitsOfASerialRunInEveryStep) {
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    for (std::uint64_t seed = 0; seed < GetParam().seeds && !HasFatalFailure(); ++seed) {
      expect_serial_bits(random_group(ranks, seed), 5);
    }
  }
}

TEST_P(CommunicatorContract, WorksWhenOneRankOwnsEverything) {
  for (std::uint32_t owner = 0; owner < 3; ++owner) {
    GroupSpec spec = random_group(3, 50 + owner);
    for (Stripe& stripe : spec.stripes) {
      stripe.first = stripe.owner.value <= owner ? 0 : spec.elements;
      stripe.count = stripe.owner.value == owner ? spec.elements : 0;
    }
    expect_serial_bits(spec, 5);
  }
}

TEST_P(CommunicatorContract, KeepsItsCountOverMoreStepsThanItsRingsHavePlaces) {
  GroupSpec spec = random_group(2, 4);
  expect_serial_bits(spec, 3 * StepExchange::kStepsKept);
}

TEST_P(CommunicatorContract, AllReduceGivesEveryRankTheSum) {
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    const GroupSpec spec = random_group(ranks, 77);
    WorkingGroup group{spec, GetParam()};
    // Below, at and above what is moved at once, and not a multiple of anything; steps in between must not disturb.
    const std::vector<std::size_t> counts{1, 16, 17, 1000, spec.elements, 20011};
    std::vector<std::vector<Memory>> data(ranks);
    std::vector<std::vector<float>> expected;
    for (std::size_t c = 0; c < counts.size(); ++c) {
      std::vector<float> sum(counts[c]);
      for (std::uint32_t r = 0; r < ranks; ++r) {
        std::vector<float> values(counts[c]);
        for (std::size_t i = 0; i < counts[c]; ++i) values[i] = static_cast<float>(random_normal(sub_key(c, r), i));
        for (std::size_t i = 0; i < counts[c]; ++i) sum[i] = r == 0 ? values[i] : sum[i] + values[i];
        RankView& view = group.world->rank(r);
        const Memory own = WorkingGroup::put(view, values);
        const Memory junk = WorkingGroup::put(view, std::vector<float>(counts[c], -1.0f));
        data[r].push_back(view.take(counts[c] * sizeof(float)));
        view.communicator->all_reduce(*view.stream, own);
        view.stream->copy(data[r].back(), own);
        view.stream->copy(own, junk);  // it is the caller's again, at once
        if (c % 2 == 1) group.enqueue_step(r, c / 2);
      }
      expected.push_back(std::move(sum));
    }
    ASSERT_TRUE(group.finish());
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (std::size_t c = 0; c < counts.size(); ++c) {
        SCOPED_TRACE(text(counts[c], " elements, rank ", r, " of ", ranks));
        const std::vector<float> found = WorkingGroup::get<float>(group.world->rank(r), data[r][c]);
        if (group.world->rank(r).communicator->traits().rank_ordered) {
          ASSERT_EQ(found, expected[c]);
        } else {
          expect_near(found, expected[c]);
          ASSERT_EQ(found, WorkingGroup::get<float>(group.world->rank(0), data[0][c]));
        }
      }
    }
  }
}

TEST_P(CommunicatorContract, ReduceScatterGivesEachPartsOwnerTheSumAndAllGatherGivesItToAll) {
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    const GroupSpec spec = random_group(ranks, 78);
    WorkingGroup group{spec, GetParam()};
    const bool ordered = group.world->rank(0).communicator->traits().rank_ordered;
    // Parts in any order, of any owner, some of them empty, far more than the ranks have room for at once.
    struct Cut {
      Rank owner;
      std::uint64_t first, count;
    };
    std::vector<Cut> cuts;
    std::uint64_t end = 0;
    for (std::uint64_t i = 0; i < 11; ++i) {
      const std::uint64_t count = i % 4 == 3 ? 0 : 1 + random_below(sub_key(spec.seed, 40), i, i % 3 == 0 ? 9000 : 40);
      cuts.push_back({Rank{static_cast<std::uint32_t>(random_below(sub_key(spec.seed, 41), i, ranks))}, end, count});
      end += count;
    }
    std::vector<std::vector<float>> values(ranks);
    std::vector<float> sum(end);
    std::vector<Memory> data(ranks), scattered(ranks), gathered(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (std::uint64_t i = 0; i < end; ++i) values[r].push_back(static_cast<float>(random_normal(sub_key(r, 42), i)));
      for (std::uint64_t i = 0; i < end; ++i) sum[i] = r == 0 ? values[r][i] : sum[i] + values[r][i];
    }
    for (std::uint32_t r = 0; r < ranks; ++r) {
      RankView& view = group.world->rank(r);
      data[r] = WorkingGroup::put(view, values[r]);
      scattered[r] = view.take(end * sizeof(float));
      gathered[r] = view.take(end * sizeof(float));
      std::vector<OwnedPart> parts;
      for (const Cut& cut : cuts)
        parts.push_back({cut.owner, slice(data[r], cut.first * sizeof(float), cut.count * sizeof(float))});
      view.communicator->reduce_scatter(*view.stream, parts);
      view.stream->copy(scattered[r], data[r]);
      group.enqueue_step(r, 0);
      view.communicator->all_gather(*view.stream, parts);
      view.stream->copy(gathered[r], data[r]);
      view.communicator->barrier(*view.stream);
    }
    ASSERT_TRUE(group.finish());
    const std::vector<float> all = WorkingGroup::get<float>(group.world->rank(0), gathered[0]);
    for (std::uint64_t i = 0; i < end; ++i) {
      if (ordered) {
        ASSERT_EQ(all[i], sum[i]) << "element " << i << " of " << ranks << " ranks";
      }
      ASSERT_NEAR(all[i], sum[i], 1e-5) << "element " << i << " of " << ranks << " ranks";
    }
    for (std::uint32_t r = 0; r < ranks; ++r) {
      ASSERT_EQ(WorkingGroup::get<float>(group.world->rank(r), gathered[r]), all) << "rank " << r << " of " << ranks;
      const std::vector<float> own = WorkingGroup::get<float>(group.world->rank(r), scattered[r]);
      for (const Cut& cut : cuts)
        for (std::uint64_t i = cut.first; cut.owner.value == r && i < cut.first + cut.count; ++i)
          ASSERT_EQ(own[i], all[i]) << "rank " << r << ", element " << i;
    }
  }
}

TEST_P(CommunicatorContract, BroadcastGivesAllWhatTheRootHas) {
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    const GroupSpec spec = random_group(ranks, 79);
    WorkingGroup group{spec, GetParam()};
    const auto bytes_of = [](std::uint32_t r, std::size_t count) {
      std::vector<std::uint8_t> bytes(count);
      for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(random_below(r, i, 256));
      return bytes;
    };
    const std::vector<std::size_t> counts{1, 63, 40007};
    std::vector<std::vector<Memory>> data(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      RankView& view = group.world->rank(r);
      for (std::size_t c = 0; c < counts.size(); ++c) {
        data[r].push_back(WorkingGroup::put(view, bytes_of(r, counts[c])));
        view.communicator->broadcast(*view.stream, data[r].back(), Rank{static_cast<std::uint32_t>(c % ranks)});
      }
    }
    ASSERT_TRUE(group.finish());
    for (std::uint32_t r = 0; r < ranks; ++r)
      for (std::size_t c = 0; c < counts.size(); ++c)
        ASSERT_EQ(WorkingGroup::get<std::uint8_t>(group.world->rank(r), data[r][c]),
                  bytes_of(static_cast<std::uint32_t>(c % ranks), counts[c]))
            << counts[c] << " bytes, rank " << r << " of " << ranks;
  }
}

TEST_P(CommunicatorContract, NoRankLeavesABarrierBeforeAllHaveReachedIt) {
  for (std::uint32_t ranks = 2; ranks <= 4; ++ranks) {
    const GroupSpec spec = random_group(ranks, 80);
    WorkingGroup group{spec, GetParam()};
    std::vector<std::pair<std::uint32_t, Point>> early;
    for (int round = 0; round < 3; ++round) {
      early.clear();
      for (std::uint32_t r = 0; r + 1 < ranks; ++r) {
        RankView& view = group.world->rank(r);
        view.communicator->barrier(*view.stream);
        early.emplace_back(r, view.stream->mark());
      }
      for (int i = 0; i < 200; ++i) group.world->drive();
      for (const auto& [r, point] : early)
        ASSERT_LT(group.world->rank(r).space->timeline(point.line).value(), point.value) << "rank " << r << " went on";
      RankView& last = group.world->rank(ranks - 1);
      last.communicator->barrier(*last.stream);
      early.emplace_back(ranks - 1, last.stream->mark());
      const auto statuses = group.reach(early);
      ASSERT_TRUE(statuses);
      for (const Status& status : *statuses) ASSERT_TRUE(status.ok()) << status.text();
    }
  }
}

TEST_P(CommunicatorContract, GivesEveryRankOneVerdictOnTheWholeGradientBeforeAnyUpdate) {
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    for (std::uint64_t seed = 0; seed < GetParam().seeds; ++seed) {
      GroupSpec spec = random_group(ranks, 300 + seed);
      spec.rule.clip_norm = seed % 3 == 0 ? 0 : 0.5;
      spec.rule.skips_non_finite = seed % 3 != 1;
      expect_serial_bits(spec, 6);
    }
  }
}

TEST_P(CommunicatorContract, AbortEndsEveryWaitWithTheReason) {
  for (std::uint32_t ranks = 2; ranks <= 4; ++ranks) {
    const GroupSpec spec = random_group(ranks, 5);
    WorkingGroup group{spec, GetParam()};
    for (std::uint32_t r = 0; r < ranks; ++r) group.enqueue_step(r, 0);
    ASSERT_TRUE(group.finish());
    std::vector<std::pair<std::uint32_t, Point>> points;
    for (std::uint32_t r = 0; r + 1 < ranks; ++r) {  // the last one does not come
      group.enqueue_step(r, 1);
      points.emplace_back(r, group.world->rank(r).stream->mark());
    }
    for (std::uint32_t r = 0; r < ranks; ++r) {
      group.world->rank(r).communicator->abort({Code::aborted, "view 8 follows"});
    }
    const auto statuses = group.reach(points);
    ASSERT_TRUE(statuses) << "somebody still waits";
    for (const Status& status : *statuses) {
      EXPECT_EQ(status.code(), Code::aborted);
      EXPECT_NE(status.text().find("view 8 follows"), std::string_view::npos) << status.text();
    }
  }
}

}  // namespace troupe::contracts
