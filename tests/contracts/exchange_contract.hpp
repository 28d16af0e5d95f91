#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exchange/exchange.hpp"
#include "tests/contracts/communicator_contract.hpp"

// What every Exchange of a synchronous group promises, whatever its communicator: each step ends with the bits of a
// serial run, and the stripes that retire() gives back are all that the next owner needs. An implementation
// instantiates the suite:
//   INSTANTIATE_TEST_SUITE_P(Collective, ExchangeContract, ::testing::Values(exchange_case(...)), exchange_name);
namespace troupe::contracts {

struct ExchangeCase {
  CommunicatorCase group;  // of whom; its name is the case's
  /// A synchronous one whose rule has made so many updates before.
  std::function<std::unique_ptr<Exchange>(const GroupSpec&, const RankView&, std::uint64_t updates)> make;
  bool has_tensor_norms =
      true;  // its updates know the norms of whole tensors; otherwise it refuses rules that need them
};
inline std::string exchange_name(const ::testing::TestParamInfo<ExchangeCase>& info) { return info.param.group.name; }
inline void PrintTo(const ExchangeCase& c, std::ostream* out) { *out << c.group.name; }

/// A world in which every rank has an exchange, and what its ranks saw of each step.
class ExchangingGroup {
 public:
  ExchangingGroup(const GroupSpec& spec, const ExchangeCase& how, std::uint64_t updates = 0)
      : group(spec, how.group), sights(spec.ranks) {
    for (std::uint32_t r = 0; r < spec.ranks; ++r) exchanges.push_back(how.make(spec, group.world->rank(r), updates));
  }

  struct Sight {
    Memory after, half, total;
  };
  void contribute(std::uint32_t r, const Bucket& bucket) {
    exchanges[r]->contribute(*group.world->rank(r).stream, bucket);
  }
  void enqueue_step(std::uint32_t r, std::uint64_t step) {
    const GroupSpec& spec = group.spec;
    RankView& view = group.world->rank(r);
    const Memory found = WorkingGroup::put(view, SerialRun::gradients(spec, r, step));
    const BucketWork work = group.work_of(r, step, spec.buckets[0]);
    exchanges[r]->begin(*view.stream, {.step = Step{step}, .samples = spec.ranks}, work.sums, work.total);
    for (const Bucket& bucket : spec.buckets) {
      exchanges[r]->acquire(*view.stream, bucket);
      group.enqueue_gradients(r, step, bucket, found);
      contribute(r, bucket);
    }
    exchanges[r]->commit(*view.stream);
    exchanges[r]->join(*view.stream);
    Sight sight{view.arena->allocate(view.parameters.size_bytes), {}, view.arena->allocate(sizeof(StepSums))};
    view.stream->copy(sight.after, view.parameters);
    if (spec.half) {
      sight.half = view.arena->allocate(view.half.size_bytes);
      view.stream->copy(sight.half, view.half);
    }
    view.stream->copy(sight.total, group.work_of(r, step, spec.buckets[0]).total);
    sights[r].push_back(sight);
  }
  void enqueue_steps(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t step = first; step < first + count; ++step)
      for (std::uint32_t r = 0; r < group.spec.ranks; ++r) enqueue_step(r, step);
  }
  /// Compares what the ranks saw, oldest first, with the next steps of `serial`, of which `step` is the first.
  void expect_bits(SerialRun& serial, std::uint64_t step) {
    ASSERT_TRUE(group.finish());
    for (std::size_t i = 0; i < sights[0].size(); ++i) {
      serial.take_step(step + i);
      for (std::uint32_t r = 0; r < group.spec.ranks; ++r) {
        SCOPED_TRACE(text("step ", step + i, ", rank ", r));
        const RankView& view = group.world->rank(r);
        const Sight& sight = sights[r][i];
        const StepSums total = WorkingGroup::get<StepSums>(view, sight.total)[0];
        ASSERT_EQ(total.loss, serial.total.loss);
        ASSERT_EQ(total.samples, serial.total.samples);
        ASSERT_EQ(total.stop_requests, serial.total.stop_requests);
        ASSERT_EQ(WorkingGroup::get<float>(view, sight.after), serial.parameters);
        if (group.spec.half) {
          ASSERT_EQ(WorkingGroup::get<std::uint16_t>(view, sight.half), serial.half());
        }
      }
    }
    for (auto& seen : sights) seen.clear();
  }

  WorkingGroup group;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::vector<std::vector<Sight>> sights;  // by rank
};

class ExchangeContract : public ::testing::TestWithParam<ExchangeCase> {
 protected:
  static Code code_of(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::ok;
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeContract);

TEST_P(ExchangeContract, GivesEveryRankTheBitsOfASerialRunInEveryStep) {
  for (std::uint32_t ranks = 1; ranks <= 3; ++ranks) {
    for (std::uint64_t seed = 0; seed < GetParam().group.seeds && !HasFatalFailure(); ++seed) {
      const GroupSpec spec = random_group(ranks, 200 + seed);
      SCOPED_TRACE(text(ranks, " ranks, seed ", spec.seed));
      ExchangingGroup group{spec, GetParam()};
      group.enqueue_steps(0, 4);
      SerialRun serial{spec};
      group.expect_bits(serial, 0);
    }
  }
}

/// The tensors begin and end anywhere, so that stripes and buckets cut them.
TEST_P(ExchangeContract, MovesTensorsThatRanksShareAsFarAsOneRankDoes) {
  if (!GetParam().has_tensor_norms) GTEST_SKIP() << "this exchange refuses rules that need the norms of tensors";
  for (const RuleKind kind : {RuleKind::lars, RuleKind::lamb}) {
    for (std::uint64_t seed = 0; seed < 12 && !HasFatalFailure(); ++seed) {
      GroupSpec spec = random_group(1 + static_cast<std::uint32_t>(seed % 4), 300 + seed);
      SCOPED_TRACE(text(name_of(kind), ", ", spec.ranks, " ranks, seed ", spec.seed));
      spec.rule.kind = kind;
      spec.rule.rate = 0.05;
      spec.rule.trust = 0.3;
      spec.half = false;
      const std::uint64_t end = spec.elements;
      spec.tensors = {{1, end / 2}, {end / 2 + 1, 3}, {end / 2 + 7, end - end / 2 - 8}};
      ExchangingGroup group{spec, GetParam()};
      group.enqueue_steps(0, 5);
      ASSERT_TRUE(group.group.finish());
      SerialRun serial{spec};
      for (std::size_t step = 0; step < 5; ++step) {
        serial.take_step(step);
        const auto first = WorkingGroup::get<float>(group.group.world->rank(0), group.sights[0][step].after);
        double off = 0, all = 0;
        for (std::size_t i = 0; i < first.size(); ++i) {
          off += std::pow(first[i] - serial.parameters[i], 2);
          all += std::pow(serial.parameters[i], 2);
        }
        ASSERT_LT(std::sqrt(off / all), 1e-5) << "step " << step;
        for (std::uint32_t r = 1; r < spec.ranks; ++r)
          ASSERT_EQ(WorkingGroup::get<float>(group.group.world->rank(r), group.sights[r][step].after), first)
              << "rank " << r << ", step " << step;
      }
    }
  }
}

TEST_P(ExchangeContract, RefusesABucketBeyondItsGroupAndGoesOnWithTheRightOnes) {
  const GroupSpec spec = random_group(2, 31);
  ExchangingGroup group{spec, GetParam()};
  for (std::uint32_t r = 0; r < spec.ranks; ++r) {
    const Bucket beyond{GroupId{}, 0, spec.elements - Layout::kAlignElements, 2 * Layout::kAlignElements};
    EXPECT_EQ(code_of([&] { group.contribute(r, beyond); }), Code::invalid);
  }
  group.enqueue_steps(0, 2);
  SerialRun serial{spec};
  group.expect_bits(serial, 0);
}

TEST_P(ExchangeContract, RetiringEndsWorkInProgressWithTheReason) {
  const GroupSpec spec = random_group(3, 32);
  ExchangingGroup group{spec, GetParam()};
  group.enqueue_steps(0, 1);
  ASSERT_TRUE(group.group.finish());
  std::vector<std::pair<std::uint32_t, Point>> points;
  for (std::uint32_t r = 0; r + 1 < spec.ranks; ++r) {  // the last one does not come
    group.enqueue_step(r, 1);
    points.emplace_back(r, group.group.world->rank(r).stream->mark());
  }
  for (auto& exchange : group.exchanges) exchange->retire({Code::aborted, "view 8 follows"});
  const auto statuses = group.group.reach(points);
  ASSERT_TRUE(statuses) << "somebody still waits";
  for (const Status& status : *statuses) {
    EXPECT_EQ(status.code(), Code::aborted);
    EXPECT_NE(status.text().find("view 8 follows"), std::string_view::npos) << status.text();
  }
}

TEST_P(ExchangeContract, TakesNothingOnceItHasRetired) {
  const GroupSpec spec = random_group(2, 33);
  ExchangingGroup group{spec, GetParam()};
  group.enqueue_steps(0, 1);
  ASSERT_TRUE(group.group.finish());
  for (auto& exchange : group.exchanges) exchange->retire({Code::aborted, "view 8 follows"});
  for (std::uint32_t r = 0; r < spec.ranks; ++r)
    EXPECT_EQ(code_of([&] { group.contribute(r, spec.buckets[0]); }), Code::aborted);
  EXPECT_TRUE(group.group.finish()) << "something was enqueued";
}

TEST_P(ExchangeContract, GivesItsStripesBackEveryTimeItIsRetired) {
  const GroupSpec spec = random_group(3, 34);
  ExchangingGroup group{spec, GetParam()};
  for (std::uint32_t r = 0; r < spec.ranks; ++r) {
    for (const Code why : {Code::aborted, Code::peer_lost}) {
      const auto stripes = group.exchanges[r]->retire({why, "the end"});
      ASSERT_EQ(stripes.size(), 1u);
      EXPECT_EQ(stripes[0].stripe, spec.stripes[r]);
    }
  }
}

TEST_P(ExchangeContract, GivesBackStripesFromWhichTheNextOwnersContinue) {
  for (std::uint64_t seed = 35; seed < 39 && !HasFatalFailure(); ++seed) {
    const GroupSpec spec = random_group(3, seed);
    SCOPED_TRACE(text("seed ", seed));
    SerialRun serial{spec};
    ExchangingGroup before{spec, GetParam()};
    before.enqueue_steps(0, 2);
    before.expect_bits(serial, 0);

    ExchangingGroup after{spec, GetParam(), 2};
    const auto hand_on = [&](std::uint32_t from, const Memory& old, std::uint32_t to, const Memory& now) {
      const auto bytes = WorkingGroup::get<std::byte>(before.group.world->rank(from), old);
      WorkingGroup::write(after.group.world->rank(to), now, bytes);
    };
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      for (const StripeMemory& given : before.exchanges[r]->retire({Code::aborted, "view 8 follows"})) {
        if (given.stripe.count == 0) continue;
        for (std::uint32_t to = 0; to < spec.ranks; ++to) {  // everyone reads all parameters
          const RankView& view = after.group.world->rank(to);
          const auto part = [&](const Memory& whole, std::uint64_t each) {
            return slice(whole, given.stripe.first * each, given.stripe.count * each);
          };
          hand_on(r, given.parameters, to, part(view.parameters, sizeof(float)));
          if (spec.half) hand_on(r, given.half, to, part(view.half, size_bytes(DType::bf16)));
        }
        for (std::size_t s = 0; s < state_slots(spec.rule.kind); ++s)
          hand_on(r, given.state[s], r, after.group.world->rank(r).mine.state[s]);
      }
    }
    after.enqueue_steps(2, 2);
    after.expect_bits(serial, 2);
  }
}

}  // namespace troupe::contracts
