#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <tuple>

#include "runtime/base/hash.hpp"
#include "runtime/compute/recorded_stream.hpp"
#include "runtime/compute/rules/gradient_check.hpp"
#include "runtime/compute/rules/tensor_norms.hpp"
#include "runtime/compute/update_pass.hpp"
#include "tests/contracts/device_world.hpp"

namespace troupe::contracts {

/// What every Stream does. See device_world.hpp for how to run it on a device.
class StreamContract : public DeviceWorld {
 protected:
  static RuleStep rule_for(RuleKind kind, std::uint64_t number) {
    return rule_step({.kind = kind, .rate = 0.01, .weight_decay = 0.1, .look_ahead = 0.8}, number);
  }

  /// A stripe with random content, its contributions, and what an update must make of it.
  struct Case {
    StripeMemory stripe;
    std::vector<Memory> contributions;
    Memory total;
    std::vector<float> parameters, s0, s1;  // expected after the update
  };
  /// `no_decay` [group elements], for a stripe that begins at element kFirst of its group.
  static constexpr std::uint64_t kFirst = 4096;
  Case make_case(RuleKind kind, std::uint64_t number, std::size_t count, std::size_t parts, bool half, bool journal,
                 std::span<const Layout::Entry> no_decay = {}) {
    Case made;
    const std::uint64_t key = sub_key(count, parts * 8 + static_cast<std::uint64_t>(kind));
    const std::size_t slots = state_slots(kind);
    made.parameters = random_floats(sub_key(key, 1), count);
    made.s0 = random_floats(sub_key(key, 2), count);
    made.s1 = random_floats(sub_key(key, 3), count);
    std::vector<float>& squares = reads(kind, &Rule::beta1) ? made.s1 : made.s0;
    for (float& v : squares) v = v * v + 0.01F;
    made.stripe.stripe = {GroupId{}, Rank{}, kFirst, count};
    made.stripe.no_decay = no_decay;
    made.stripe.parameters = put(made.parameters);
    if (slots > 0) made.stripe.state[0] = put(made.s0);
    if (slots > 1) made.stripe.state[1] = put(made.s1);
    if (half) made.stripe.half = take(count * sizeof(std::uint16_t));
    if (journal) made.stripe.journal = take(journal_bytes(slots));
    std::vector<std::vector<float>> gradients;
    for (std::size_t part = 0; part < parts; ++part) {
      gradients.push_back(random_floats(sub_key(key, 10 + part), count));
      made.contributions.push_back(put(gradients.back()));
    }
    made.total = put_sums(StepSums{.loss = 1, .correct = 2, .samples = 37});
    const RuleStep rule = rule_for(kind, number);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = gradients[0][i];
      for (std::size_t part = 1; part < parts; ++part) sum += gradients[part][i];
      update_element(decays(no_decay, i) ? rule : without_decay(rule), static_cast<float>(1.0 / 37), sum,
                     made.parameters[i], made.s0[i], made.s1[i]);
    }
    return made;
  }
  static bool decays(std::span<const Layout::Entry> no_decay, std::uint64_t element) {
    return std::none_of(no_decay.begin(), no_decay.end(), [&](const Layout::Entry& range) {
      return kFirst + element >= range.first && kFirst + element < range.first + range.count;
    });
  }
  void expect_updated(const Case& made, RuleKind kind) {
    EXPECT_EQ(get(made.stripe.parameters), made.parameters);
    if (state_slots(kind) > 0) {
      EXPECT_EQ(get(made.stripe.state[0]), made.s0);
    }
    if (state_slots(kind) > 1) {
      EXPECT_EQ(get(made.stripe.state[1]), made.s1);
    }
    if (made.stripe.half.size_bytes == 0) return;
    std::vector<std::uint16_t> image;
    for (const float value : made.parameters) image.push_back(to_bf16(value));
    EXPECT_EQ(get<std::uint16_t>(made.stripe.half), image);
  }
  struct Stop {
    static constexpr bool kWatches = true;
    PassMoment moment;
    std::uint64_t block;
    bool go_on(PassMoment now, std::uint64_t at) const { return now != moment || at != block; }
  };
  /// Does a pass as the definition says, up to a moment of a block, as a process that is killed there leaves it.
  void begin_pass(const Case& made, RuleKind kind, std::uint64_t number, PassMoment moment, std::uint64_t block) {
    UpdateAddresses addresses{.count = made.stripe.stripe.count};
    std::vector<float> parameters = get(made.stripe.parameters);
    std::array<std::vector<float>, kMaxStateSlots> state;
    std::vector<UpdateJournal> journal = get<UpdateJournal>(made.stripe.journal);
    std::vector<std::vector<float>> parts;
    addresses.parameters = parameters.data();
    for (std::size_t s = 0; s < state_slots(kind); ++s) {
      state[s] = get(made.stripe.state[s]);
      addresses.state[s] = state[s].data();
    }
    addresses.journal = journal.data();
    for (const Memory& part : made.contributions) parts.push_back(get(part));
    const RuleStep rule = rule_for(kind, number);
    const auto elements = [&](std::uint64_t first, std::uint64_t count) {
      for (std::uint64_t i = first; i < first + count; ++i) {
        float sum = 0, none = 0;
        bool started = false;
        for (const std::vector<float>& part : parts) {
          sum = started ? sum + part[i] : part[i];
          started = true;
        }
        update_element(decays(made.stripe.no_decay, i) ? rule : without_decay(rule), static_cast<float>(1.0 / 37), sum,
                       addresses.parameters[i], addresses.state[0] ? addresses.state[0][i] : none,
                       addresses.state[1] ? addresses.state[1][i] : none);
      }
    };
    EXPECT_FALSE(run_update_pass(addresses, number, elements, Stop{moment, block}));
    write(made.stripe.parameters, parameters);
    for (std::size_t s = 0; s < state_slots(kind); ++s) write(made.stripe.state[s], state[s]);
    write(made.stripe.journal, journal);
  }
};

TEST_P(StreamContract, DoesItsWorkInTheOrderItWasEnqueued) {
  const auto stream = device().stream();
  const Memory a = put({1, 2, 3}), b = put({4, 5, 6}), c = put({7, 8, 9});
  stream->copy(c, a);
  stream->copy(a, b);
  finish(*stream);
  EXPECT_EQ(get(a), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(get(c), (std::vector<float>{1, 2, 3}));
}

TEST_P(StreamContract, MarksPointsThatGrowOnOneLine) {
  const auto stream = device().stream();
  const Point first = stream->mark(), second = stream->mark();
  EXPECT_EQ(first.line, second.line);
  EXPECT_LT(first.value, second.value);
  EXPECT_TRUE(reach(second).ok());
  EXPECT_EQ(space().timeline(second.line).value(), second.value);
}

TEST_P(StreamContract, NeedsNoWorkToTakeAWaitForThePointThatIsAlwaysReached) {
  const auto stream = device().stream();
  stream->wait(Point{});
  finish(*stream);
}

TEST_P(StreamContract, StartsWorkBehindAWaitOnlyWhenThePointIsReached) {
  const auto stream = device().stream();
  Timeline& gate = make_line();
  const Memory from = put({1, 1, 1}), to = put({0, 0, 0});
  stream->wait({gate.id(), 2});
  stream->copy(to, from);
  const Point done = stream->mark();
  gate.signal(1);
  write(from, std::vector<float>{5, 1, 1});  // a copy that started too early would not see it
  EXPECT_LT(space().timeline(done.line).value(), done.value);
  gate.signal(2);
  EXPECT_TRUE(reach(done).ok());
  EXPECT_EQ(get(to), (std::vector<float>{5, 1, 1}));
}

TEST_P(StreamContract, SignalsALineWhenAllBeforeIsDoneSoThatAnotherStreamGoesOn) {
  const auto producer = device().stream();
  const auto consumer = device().stream();
  Timeline& line = make_line();
  const Memory a = put({1, 2}), b = put({0, 0}), c = put({0, 0});
  consumer->wait({line.id(), 7});
  consumer->copy(c, b);
  const Point done = consumer->mark();
  producer->copy(b, a);
  producer->signal({line.id(), 7});
  EXPECT_TRUE(reach(done).ok());
  EXPECT_EQ(get(c), (std::vector<float>{1, 2}));
  EXPECT_EQ(line.value(), 7U);
}

TEST_P(StreamContract, EndsWithTheReasonOfAPoisonedWaitAndDropsLaterWork) {
  const auto stream = device().stream();
  Timeline& gate = make_line();
  const Memory from = put({1}), to = put({0});
  const Point before = stream->mark();
  EXPECT_TRUE(reach(before).ok());
  stream->wait({gate.id(), 1});
  stream->copy(to, from);
  const Point behind = stream->mark();
  gate.poison({Code::peer_lost, "rank 3 is gone"});
  const Status status = reach(behind);
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_NE(status.text().find("rank 3 is gone"), status.text().npos) << status.text();
  EXPECT_EQ(get(to), std::vector<float>{0});
  stream->copy(to, from);
  EXPECT_EQ(reach(stream->mark()).code(), Code::peer_lost);
  EXPECT_EQ(get(to), std::vector<float>{0});
  EXPECT_TRUE(reach(before).ok());
}

TEST_P(StreamContract, EndsWithATimeoutWhenAWaitIsOverdue) {
  if (!GetParam().waits_have_deadlines) GTEST_SKIP() << "this device has no time";
  const auto hurried = GetParam().make(space(), std::chrono::milliseconds{20});
  const auto stream = hurried->stream();
  stream->wait({make_line().id(), 1});
  EXPECT_EQ(reach(stream->mark()).code(), Code::timeout);
}

TEST_P(StreamContract, AddsSumsToATotalThatIsOneOfThem) {
  const auto stream = device().stream();
  const Memory total = put_sums(StepSums{.loss = 1.5, .correct = 2, .samples = 3});
  stream->sum_up(total,
                 std::vector{total, put_sums(StepSums{.loss = 2.25, .correct = 1, .samples = 4, .stop_requests = 1})});
  finish(*stream);
  const StepSums found = get<StepSums>(total)[0];
  EXPECT_EQ(found.loss, 3.75);
  EXPECT_EQ(found.samples, 7U);
  EXPECT_EQ(found.stop_requests, 1U);
}

TEST_P(StreamContract, WeighsADifferenceByTheSamplesThatMadeIt) {
  const auto stream = device().stream();
  std::vector<float> anchor, from, expected;
  for (int i = 0; i < 1000; ++i) {
    anchor.push_back(static_cast<float>(i) * 0.37F);
    from.push_back(static_cast<float>(i % 7) - 0.1F * static_cast<float>(i));
    expected.push_back(12.0F * (anchor.back() - from.back()));
  }
  const Memory to = put(std::vector<float>(1000, 5.0F)), at = put(anchor), moved = put(from);
  const Memory sums = put_sums(StepSums{.samples = 12});
  stream->weighted_delta(to, at, moved, sums);
  stream->weighted_delta(moved, at, moved, sums);
  finish(*stream);
  EXPECT_EQ(get(to), expected);
  EXPECT_EQ(get(moved), expected);
}

TEST_P(StreamContract, ReducesWithNormWithTheBitsOfTheDefinition) {
  const auto stream = device().stream();
  constexpr std::size_t kManyPieces = 100 * kSquarePiece + 3000;
  for (const std::size_t count : {std::size_t{1}, std::size_t{16}, std::size_t{1000}, std::size_t{4113}, kManyPieces}) {
    for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{6}}) {
      if (count == kManyPieces && ranks > 2) break;
      SCOPED_TRACE(text(count, " elements of ", ranks, " ranks"));
      std::vector<std::vector<float>> values;
      std::vector<Memory> parts;
      for (std::size_t r = 0; r < ranks; ++r) {
        values.push_back(random_floats(sub_key(count, 10 * ranks + r), count));
        parts.push_back(put(values.back()));
      }
      std::vector<float> sum = values[0];
      for (std::size_t r = 1; r < ranks; ++r)
        for (std::size_t i = 0; i < count; ++i) sum[i] += values[r][i];
      StepSums expected{.loss = 3, .samples = 2, .gradient_squares = 0.5};
      check_gradient(expected, sum.data(), {}, count, {{}, 70});
      const Memory sums = put_sums(StepSums{.loss = 3, .samples = 2, .gradient_squares = 0.5});
      stream->reduce(parts.back(), parts, {sums, 70});
      finish(*stream);
      EXPECT_EQ(get(parts.back()), sum);
      EXPECT_EQ(value<StepSums>(sums).gradient_squares, expected.gradient_squares);
      EXPECT_EQ(value<StepSums>(sums).bad_gradient, 0U);
      EXPECT_EQ(value<StepSums>(sums).loss, 3);
    }
  }
}

TEST_P(StreamContract, NamesTheFirstElementThatIsNotFiniteAndWhoMadeItSo) {
  const auto stream = device().stream();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kMost = std::numeric_limits<float>::max();
  const auto found = [&](std::size_t where, float first, float second, float third) {
    std::vector<std::vector<float>> values(3, std::vector<float>(2000, 1.0F));
    values[2][1900] = kNaN;  // later
    values[0][where] = first, values[1][where] = second, values[2][where] = third;
    const std::vector<Memory> parts{put(values[0]), put(values[1]), put(values[2])};
    const Memory sums = put_sums(StepSums{.samples = 2});
    stream->reduce(parts[1], parts, {sums, 5000});
    finish(*stream);
    EXPECT_FALSE(std::isfinite(value<StepSums>(sums).gradient_squares));
    return value<StepSums>(sums).bad_gradient;
  };
  EXPECT_EQ(found(1234, 1, 1, kNaN), bad_at(6234, 2));
  EXPECT_EQ(found(7, -INFINITY, 1, 1), bad_at(5007, 0));
  EXPECT_EQ(found(7, 1, kNaN, 1), bad_at(5007, 1));       // the part whose place the sum took
  EXPECT_EQ(found(7, kMost, kMost, 1), bad_at(5007, 1));  // all are finite, their sum is not
}

TEST_P(StreamContract, NamesTheRankWhoseThePartIsAndLeavesSquaresOutWhereTheyAreNotWanted) {
  const auto stream = device().stream();
  const std::vector<Rank> ranks{Rank{4}, Rank{9}, Rank{17}};
  std::vector<std::vector<float>> values(3, std::vector<float>(2000, 1.0F));
  values[0][1500] = std::numeric_limits<float>::quiet_NaN();  // whose place the sum takes
  values[2][1700] = values[1][1800] = std::numeric_limits<float>::infinity();
  const std::vector<Memory> parts{put(values[0]), put(values[1]), put(values[2])};
  const Memory sums = put_sums(StepSums{.samples = 2, .gradient_squares = 0.25});
  const auto in = [](const Memory& all, std::uint64_t first) {
    return slice(all, first * sizeof(float), 100 * sizeof(float));
  };
  const auto found = [&](std::uint64_t first) {
    write_sums(sums, {.samples = 2, .gradient_squares = 0.25});
    const std::vector<Memory> some{in(parts[0], first), in(parts[1], first), in(parts[2], first)};
    stream->reduce(some[0], some, {sums, first, ranks, /*squares=*/false});
    finish(*stream);
    EXPECT_EQ(value<StepSums>(sums).gradient_squares, 0.25);
    return value<StepSums>(sums).bad_gradient;
  };
  EXPECT_EQ(found(1300), 0U);
  EXPECT_EQ(found(1450), bad_at(1500, 4));
  EXPECT_EQ(found(1650), bad_at(1700, 17));
  EXPECT_EQ(found(1780), bad_at(1800, 9));
}

TEST_P(StreamContract, ClipsOrLeavesOutAnUpdateByWhatAllRanksHaveMeasured) {
  const auto stream = device().stream();
  Rule rule{.kind = RuleKind::momentum, .rate = 0.01, .clip_norm = 2};
  for (const double squares : {0.25 * 37 * 37, 9.0 * 37 * 37, static_cast<double>(INFINITY)}) {
    SCOPED_TRACE(squares);
    const Case made = make_case(RuleKind::momentum, 1, 1500, 1, false, false);
    const std::vector<float> before = random_floats(sub_key(sub_key(1500, 8 + 1), 1), 1500);
    std::vector<float> p = before, v = get(made.stripe.state[0]), none(1);
    const std::vector<float> gradient = get(made.contributions[0]);
    StepSums total = value<StepSums>(made.total);
    total.gradient_squares = squares;
    write_sums(made.total, total);
    const float scale = gradient_scale(rule_step(rule, 1), total);
    EXPECT_NEAR(scale, squares == INFINITY ? 0 : squares > 4 * 37 * 37 ? 2.0 / 3 / 37 : 1.0 / 37, 1e-8);
    for (std::size_t i = 0; scale != 0 && i < p.size(); ++i)
      update_element(rule_step(rule, 1), scale, gradient[i], p[i], v[i], none[0]);
    stream->update(rule_step(rule, 1), 1, made.stripe, made.contributions, made.total);
    finish(*stream);
    EXPECT_EQ(get(made.stripe.parameters), p);
    EXPECT_EQ(get(made.stripe.state[0]), v);
  }
}

TEST_P(StreamContract, TellsWhichRanksLossIsNotFinite) {
  const auto stream = device().stream();
  const auto of = [&](double loss, std::uint64_t who, std::uint64_t bad) {
    return put_sums(StepSums{.loss = loss, .gradient_squares = 2, .bad_gradient = bad, .bad_loss = who});
  };
  const Memory total = put_sums({});
  stream->sum_up(total, std::vector{of(1, 1, 0), of(NAN, 2, bad_at(9, 1)), of(INFINITY, 3, bad_at(3, 2))});
  finish(*stream);
  EXPECT_EQ(value<StepSums>(total).bad_loss, 2U);
  EXPECT_EQ(value<StepSums>(total).gradient_squares, 6);
  EXPECT_EQ(value<StepSums>(total).bad_gradient, bad_at(3, 2));
  stream->sum_up(total, std::vector{of(1, 1, 0), of(2, 2, 0)});
  finish(*stream);
  EXPECT_EQ(value<StepSums>(total).bad_loss, 0U);
  EXPECT_EQ(value<StepSums>(total).bad_gradient, 0U);
}

TEST_P(StreamContract, ClearsMemoryAndNothingBesideIt) {
  const auto stream = device().stream();
  const Memory memory = put(std::vector<float>(100, 5.0F));
  stream->clear(slice(memory, 4 * sizeof(float), 90 * sizeof(float)));
  finish(*stream);
  std::vector<float> expected(100, 0.0F);
  for (const std::size_t i : {0, 1, 2, 3, 94, 95, 96, 97, 98, 99}) expected[i] = 5;
  EXPECT_EQ(get(memory), expected);
}

TEST_P(StreamContract, ConvertsNumbersToTheNearestOfTheOtherTypeAndBack) {
  const auto stream = device().stream();
  // 37 elements, so that no vector's width divides them: ties, denormals, infinities and NaN among them.
  std::vector<float> values{0.0F, -0.0F, 1.0F, 1.00390625F, 1.01171875F, INFINITY, -INFINITY, NAN, 3.4e38F};
  for (std::uint64_t i = values.size(); i < 37; ++i) values.push_back(static_cast<float>(random_normal(5, i)) * 1e3F);
  const Memory from = put(values), back = put(std::vector<float>(values.size(), 7.0F));
  const Memory packed = put(std::span<const std::uint16_t>{std::vector<std::uint16_t>(values.size(), 7)});
  try {
    stream->convert({packed, DType::bf16, from, DType::f32});
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Code::unsupported);
    GTEST_SKIP() << error.what();
  }
  stream->convert({back, DType::f32, packed, DType::bf16});
  finish(*stream);
  const std::vector<float> found = get(back);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = from_bf16(to_bf16(values[i]));
    ASSERT_TRUE(found[i] == expected || (std::isnan(found[i]) && std::isnan(expected))) << i << ": " << found[i];
  }
}

TEST_P(StreamContract, KeepsWhatRoundingTakesAwayForTheNextTime) {
  const auto stream = device().stream();
  std::vector<float> values{0.0F, -0.0F, 1.00390625F, INFINITY, -INFINITY, NAN, 3.4e38F};
  std::vector<float> kept{0.0F, 0.5F, 1e-3F, 1.0F, 2.0F, 3.0F, 1e30F};
  for (std::uint64_t i = values.size(); i < 37; ++i) {
    values.push_back(static_cast<float>(random_normal(5, i)) * 1e3F);
    kept.push_back(static_cast<float>(random_normal(6, i)));
  }
  const Memory from = put(values), residual = put(kept);
  const Memory packed = put(std::span<const std::uint16_t>{std::vector<std::uint16_t>(values.size(), 7)});
  const Memory back = put(std::vector<float>(values.size(), 7.0F));
  try {
    stream->convert({packed, DType::bf16, from, DType::f32, residual});
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Code::unsupported);
    GTEST_SKIP() << error.what();
  }
  stream->convert({back, DType::f32, packed, DType::bf16});
  finish(*stream);
  const std::vector<float> found = get(back), left = get(residual);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float whole = values[i] + kept[i], expected = from_bf16(to_bf16(whole));
    ASSERT_TRUE(found[i] == expected || (std::isnan(found[i]) && std::isnan(expected))) << i << ": " << found[i];
    ASSERT_EQ(left[i], std::isfinite(whole - expected) ? whole - expected : 0) << i;
  }
}

TEST_P(StreamContract, AddsNumbersOfAnotherType) {
  const auto stream = device().stream();
  std::vector<float> sums, values;
  std::vector<std::uint16_t> halves;
  for (std::uint64_t i = 0; i < 37; ++i) {
    sums.push_back(static_cast<float>(random_normal(5, i)));
    halves.push_back(to_bf16(static_cast<float>(random_normal(6, i))));
    values.push_back(static_cast<float>(random_normal(7, i)));
  }
  const Memory to = put(sums), from = put(std::span<const std::uint16_t>{halves}), plain = put(values);
  try {
    stream->convert({.to = to, .to_type = DType::f32, .from = from, .from_type = DType::bf16, .adds = true});
    stream->convert({.to = to, .to_type = DType::f32, .from = plain, .from_type = DType::f32, .adds = true});
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Code::unsupported);
    GTEST_SKIP() << error.what();
  }
  finish(*stream);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] + from_bf16(halves[i]) + values[i];
  EXPECT_EQ(get(to), sums);
}

TEST_P(StreamContract, RefusesConversionsWhoseSumOrResidualIsNotF32) {
  const auto stream = device().stream();
  const Memory whole = put(std::vector<float>(8, 1.0F)), half = put(std::vector<float>(4, 1.0F));
  const auto code_of = [&](const NumberConversion& what) {
    try {
      stream->convert(what);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::ok;
  };
  if (code_of({half, DType::bf16, whole, DType::f32}) == Code::unsupported) GTEST_SKIP() << "it converts no numbers";
  EXPECT_EQ(code_of({.to = half, .to_type = DType::bf16, .from = whole, .from_type = DType::f32, .adds = true}),
            Code::invalid);
  EXPECT_EQ(code_of({whole, DType::f32, half, DType::bf16, half}), Code::invalid);
  EXPECT_EQ(code_of({whole, DType::f32, whole, DType::f32, whole, /*adds=*/true}), Code::invalid);
  finish(*stream);
}

TEST_P(StreamContract, DigestsWhatStandsThereWhenItsTurnComes) {
  const auto stream = device().stream();
  const Memory memory = put(std::vector<float>(100, 5.0F)), result = put(std::vector<float>(2, 0.0F));
  stream->clear(memory);
  try {
    stream->digest(result, slice(memory, 0, 90 * sizeof(float)));
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Code::unsupported);
    GTEST_SKIP() << error.what();
  }
  finish(*stream);
  EXPECT_EQ(value<std::uint64_t>(result), xxh3(std::vector<std::byte>(90 * sizeof(float))));
}

TEST_P(StreamContract, AddsUpSumsOfAllRanks) {
  const auto stream = device().stream();
  const std::vector<Memory> parts{put_sums(StepSums{.loss = 1.5, .correct = 2, .samples = 3, .stop_requests = 0}),
                                  put_sums(StepSums{.loss = 2.25, .correct = 1, .samples = 4, .stop_requests = 1})};
  const Memory total = put_sums(StepSums{.loss = 100, .correct = 100, .samples = 100, .stop_requests = 100});
  stream->sum_up(total, parts);
  finish(*stream);
  const StepSums& sums = value<StepSums>(total);
  EXPECT_EQ(sums.loss, 3.75);
  EXPECT_EQ(sums.correct, 3U);
  EXPECT_EQ(sums.samples, 7U);
  EXPECT_EQ(sums.stop_requests, 1U);
}

TEST_P(StreamContract, ReducesInTheOrderOfThePartsWhicheverOfThemIsTheTarget) {
  const auto stream = device().stream();
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{5}}) {
    std::vector<std::vector<float>> values;
    std::vector<float> expected;
    for (std::size_t part = 0; part < count; ++part) {
      values.push_back(random_floats(sub_key(count, part), 3000));
      expected.resize(3000);
      for (std::size_t i = 0; i < 3000; ++i) expected[i] = part ? expected[i] + values[part][i] : values[part][i];
    }
    for (std::size_t target = 0; target <= count; ++target) {
      std::vector<Memory> parts;
      for (const auto& part : values) parts.push_back(put(part));
      const Memory to = target < count ? parts[target] : put(std::vector<float>(3000));
      stream->reduce(to, parts);
      finish(*stream);
      EXPECT_EQ(get(to), expected) << count << " parts into " << target;
      for (std::size_t part = 0; part < count; ++part) {
        EXPECT_TRUE(part == target || get(parts[part]) == values[part]);
      }
    }
  }
}

TEST_P(StreamContract, UpdatesWithTheBitsOfTheDefinition) {
  const auto stream = device().stream();
  for (const RuleKind kind : kRuleKinds) {
    for (const auto& [parts, half, journal, count] : {std::tuple{1, false, false, 2500},
                                                      {2, true, true, 2048},
                                                      {2, false, true, 17},
                                                      {3, true, false, 1030},
                                                      {5, true, true, 1024}}) {
      SCOPED_TRACE(text(name_of(kind), ", ", parts, " contributions, ", count, " elements"));
      const Case made =
          make_case(kind, 3, static_cast<std::size_t>(count), static_cast<std::size_t>(parts), half, journal);
      stream->update(rule_for(kind, 3), 3, made.stripe, made.contributions, made.total);
      finish(*stream);
      expect_updated(made, kind);
    }
  }
}

TEST_P(StreamContract, AveragesWhatAnUpdateMakesOfTheParameters) {
  const auto stream = device().stream();
  const std::array<Layout::Entry, 1> no_decay{{{kFirst + 100, 700}}};
  for (const RuleKind kind : {RuleKind::sgd, RuleKind::momentum, RuleKind::adam}) {
    for (const bool journal : {false, true}) {
      SCOPED_TRACE(text(name_of(kind), journal ? " with" : " without", " a journal"));
      Case made = make_case(kind, 3, 2500, 2, true, false, no_decay);
      const std::size_t slots = state_slots(kind) + 1;
      std::vector<float> average = random_floats(sub_key(5, 6), 2500);
      made.stripe.state[slots - 1] = put(average);
      if (journal) made.stripe.journal = take(journal_bytes(slots));
      RuleStep rule = rule_for(kind, 3);
      rule.average = 0.25F;
      try {
        stream->update(rule, 3, made.stripe, made.contributions, made.total);
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Code::unsupported);
        GTEST_SKIP() << error.what();
      }
      finish(*stream);
      for (std::size_t i = 0; i < average.size(); ++i)
        average[i] = average[i] + 0.25F * (made.parameters[i] - average[i]);
      EXPECT_EQ(get(made.stripe.state[slots - 1]), average);
      made.stripe.state[slots - 1] = {};
      expect_updated(made, kind);
    }
  }
}

TEST_P(StreamContract, SwapsParametersAndStateWhateverTheTotalSays) {
  const auto stream = device().stream();
  const Case made = make_case(RuleKind::swap, 3, 1500, 1, true, true);
  write_sums(made.total, {});
  for (std::uint64_t number : {3, 4, 5}) {
    stream->update({.kind = RuleKind::swap}, number, made.stripe, made.contributions, made.total);
    finish(*stream);
  }
  expect_updated(made, RuleKind::swap);
}

TEST_P(StreamContract, LeavesOutWeightDecayWhereTheStripeSaysSo) {
  const auto stream = device().stream();
  // Before the stripe, over its beginning, a single element, over the edge of a block, over its end, behind it.
  const std::array<Layout::Entry, 6> no_decay{
      {{0, 100}, {4000, 100}, {4200, 1}, {5000, 300}, {kFirst + 2490, 50}, {kFirst + 3000, 5}}};
  for (const RuleKind kind : {RuleKind::sgd, RuleKind::momentum, RuleKind::adamw}) {
    for (const bool journal : {false, true}) {
      SCOPED_TRACE(text(name_of(kind), journal ? " with" : " without", " a journal"));
      const Case made = make_case(kind, 3, 2500, 3, !journal, journal, no_decay);
      if (journal) begin_pass(made, kind, 3, PassMoment::half_of_block_computed, 1);
      stream->update(rule_for(kind, 3), 3, made.stripe, made.contributions, made.total);
      finish(*stream);
      expect_updated(made, kind);
    }
  }
}

/// Tensors of which the stripe has the end, all, a part without weight decay, and the beginning; one it has nothing of.
inline constexpr std::array<Layout::Entry, 5> kScaled{
    {{3000, 1100}, {4200, 1}, {4300, 900}, {4096 + 1500, 2000}, {9000, 10}}};

TEST_P(StreamContract, AddsUpTheSquaresOfTensorsWithTheBitsOfTheDefinition) {
  const auto stream = device().stream();
  const std::array<Layout::Entry, 2> no_decay{{{4000, 150}, {5000, 300}}};
  std::vector<Layout::Entry> many{{kFirst, kSquarePiece * kTensorStrands + 1500}};  // strands of one and of two pieces
  while (many.size() < 300) many.push_back({many.back().first + many.back().count, many.size() % 7 * 50 + 1});
  const std::uint64_t most = many.back().first + many.back().count - kFirst;
  struct Tensors {
    std::span<const Layout::Entry> scaled;
    std::size_t count = 0;  // elements of the stripe
  };
  for (const RuleKind kind : kRuleKinds) {
    if (!needs_tensor_norms(kind)) continue;
    for (const auto& [scaled, count] : {Tensors{kScaled, 2500}, Tensors{many, most}}) {
      SCOPED_TRACE(text(name_of(kind), ", ", scaled.size(), " tensors"));
      Case made = make_case(kind, 3, count, 1, false, false, no_decay);
      const RuleStep rule = rule_for(kind, 3);
      std::vector<float> p = get(made.stripe.parameters), s0 = get(made.stripe.state[0]), s1(p.size());
      if (state_slots(kind) > 1) s1 = get(made.stripe.state[1]);
      std::vector<TensorSquares> expected(scaled.size(), TensorSquares{2, 3});  // is added to
      made.stripe.scaled = scaled;
      made.stripe.squares = take(expected.size() * sizeof(TensorSquares));
      write(made.stripe.squares, expected);
      UpdateAddresses at{.count = count, .parameters = p.data(), .state = {s0.data(), s1.data()}};
      at.first_element = kFirst;
      at.no_decay = no_decay;
      at.scaled = scaled;
      at.squares = expected.data();
      add_tensor_squares(at, rule, static_cast<float>(1.0 / 37), get(made.contributions[0]).data());
      stream->add_update_squares(rule, made.stripe, made.contributions[0], made.total);
      finish(*stream);
      const auto found = get<TensorSquares>(made.stripe.squares);
      for (std::size_t t = 0; t < scaled.size(); ++t) {
        EXPECT_EQ(found[t].weights, expected[t].weights) << "tensor " << t;
        EXPECT_EQ(found[t].update, expected[t].update) << "tensor " << t;
      }
      EXPECT_EQ(get(made.stripe.parameters), p) << "measuring changes nothing";
      EXPECT_GT(found[0].weights, 2);
      if (scaled.size() == kScaled.size()) {
        EXPECT_EQ(found[4].weights, 2) << "of a tensor elsewhere";
      }
    }
  }
}

TEST_P(StreamContract, ScalesTheRateOfEachTensorByItsNorms) {
  const auto stream = device().stream();
  const std::array<Layout::Entry, 2> no_decay{{{4000, 150}, {5000, 300}}};
  // The last but one has no weights yet, so its rate stays.
  const std::vector<TensorSquares> squares{{4, 9}, {1, 1e-6F}, {100, 0.5F}, {0, 3}, {1, 1}};
  for (const RuleKind kind : {RuleKind::sgd, RuleKind::lars, RuleKind::lamb}) {
    for (const bool journal : {false, true}) {
      SCOPED_TRACE(text(name_of(kind), journal ? " with" : " without", " a journal"));
      Case made = make_case(kind, 3, 2500, 2, !journal, journal, no_decay);
      made.stripe.scaled = kScaled;
      made.stripe.squares = take(squares.size() * sizeof(TensorSquares));
      write(made.stripe.squares, squares);
      made.parameters = get(made.stripe.parameters);
      const auto state = [&](std::size_t s) {
        return s < state_slots(kind) ? get(made.stripe.state[s]) : std::vector<float>(2500);
      };
      made.s0 = state(0);
      made.s1 = state(1);
      const std::vector<float> one = get(made.contributions[0]), two = get(made.contributions[1]);
      for (std::size_t i = 0; i < 2500; ++i) {
        RuleStep here = rule_for(kind, 3);
        if (!decays(no_decay, i)) here.decay = 0;
        const float whole_decay = here.decay;
        for (std::size_t t = 0; t < kScaled.size() && needs_tensor_norms(kind); ++t) {
          if (kFirst + i < kScaled[t].first || kFirst + i >= kScaled[t].first + kScaled[t].count) continue;
          const double weights = std::sqrt(double{squares[t].weights}), update = std::sqrt(double{squares[t].update});
          double ratio = weights / update;
          if (kind == RuleKind::lars) ratio = double{here.trust} * weights / (update + double{whole_decay} * weights);
          here.rate *= weights > 0 ? static_cast<float>(ratio) : 1;
        }
        update_element(here, static_cast<float>(1.0 / 37), one[i] + two[i], made.parameters[i], made.s0[i], made.s1[i]);
      }
      stream->update(rule_for(kind, 3), 3, made.stripe, made.contributions, made.total);
      finish(*stream);
      expect_updated(made, kind);
    }
  }
}

TEST_P(StreamContract, ChangesNothingInAnUpdateWithoutSamples) {
  const auto stream = device().stream();
  const Case made = make_case(RuleKind::adam, 1, 1500, 2, true, true);
  const std::vector<float> before = get(made.stripe.parameters), state = get(made.stripe.state[1]);
  write_sums(made.total, {.loss = 1, .correct = 2});
  stream->update(rule_for(RuleKind::adam, 1), 1, made.stripe, made.contributions, made.total);
  finish(*stream);
  EXPECT_EQ(get(made.stripe.parameters), before);
  EXPECT_EQ(get(made.stripe.state[1]), state);
}

TEST_P(StreamContract, TakesAnUpdateOfAnEmptyStripe) {
  const auto stream = device().stream();
  StripeMemory nothing;
  const std::vector<Memory> contributions{Memory{}};
  stream->update(rule_for(RuleKind::adam, 1), 1, nothing, contributions, put_sums(StepSums{.samples = 1}));
  finish(*stream);
}

TEST_P(StreamContract, DoesNotRepeatAnUpdateThatItsJournalTellsOf) {
  const auto stream = device().stream();
  const Case made = make_case(RuleKind::adam, 1, 2500, 2, true, true);
  for (int call = 0; call < 2; ++call) {
    stream->update(rule_for(RuleKind::adam, 1), 1, made.stripe, made.contributions, made.total);
    finish(*stream);
    expect_updated(made, RuleKind::adam);
  }
  stream->update(rule_for(RuleKind::adam, 2), 2, made.stripe, made.contributions, made.total);
  finish(*stream);
  EXPECT_NE(get(made.stripe.parameters), made.parameters);
}

TEST_P(StreamContract, CompletesAnUpdateThatAnotherProcessLeftAtAnyMoment) {
  const auto stream = device().stream();
  for (const RuleKind kind :
       {RuleKind::sgd, RuleKind::nesterov, RuleKind::adamw, RuleKind::rmsprop_momentum, RuleKind::lamb}) {
    for (const PassMoment moment : {PassMoment::undo_copied, PassMoment::progress_published,
                                    PassMoment::half_of_block_computed, PassMoment::block_done}) {
      for (std::uint64_t block = 0; block < 3; ++block) {
        SCOPED_TRACE(text(name_of(kind), ", moment ", static_cast<int>(moment), " of block ", block));
        const Case made = make_case(kind, 5, 2500, 2, false, true);
        begin_pass(made, kind, 5, moment, block);
        stream->update(rule_for(kind, 5), 5, made.stripe, made.contributions, made.total);
        finish(*stream);
        expect_updated(made, kind);
      }
    }
  }
}

TEST_P(StreamContract, DoesWorkThatComesAgainWithTheValuesOfThisTime) {
  Programs programs;
  const auto stream = device().stream(), plain = device().stream();
  Timeline& gate = make_line();
  const Case one = make_case(RuleKind::adam, 1, 1500, 2, true, true),
             other = make_case(RuleKind::adam, 1, 1500, 2, true, true);
  std::vector<Memory> sums;
  for (int i = 0; i < 3; ++i)
    sums.push_back(put_sums(StepSums{.loss = 1.0 * i, .samples = 30U + static_cast<unsigned>(i)}));
  const Memory total = put_sums({}), seen = put_sums({});
  Point last;
  for (std::uint64_t step = 1; step <= 40; ++step) {
    const Rule rule{.kind = RuleKind::adam, .rate = 0.01 / static_cast<double>(step)};
    stream->enqueue(programs, [&] {
      stream->wait({gate.id(), step});
      stream->sum_up(total, std::vector{sums[step % 3], sums[(step + 1) % 3]});
      stream->update(rule_step(rule, step), step, one.stripe, one.contributions, sums[step % 3]);
      if (step % 4 == 0) stream->copy(seen, total);
      last = stream->mark();
    });
    gate.signal(step);
    plain->update(rule_step(rule, step), step, other.stripe, other.contributions, sums[step % 3]);
  }
  EXPECT_TRUE(reach(last).ok());
  finish(*plain);
  EXPECT_EQ(get(one.stripe.parameters), get(other.stripe.parameters));
  EXPECT_EQ(get<std::uint16_t>(one.stripe.half), get<std::uint16_t>(other.stripe.half));
  EXPECT_EQ(get(one.stripe.state[1]), get(other.stripe.state[1]));
  EXPECT_EQ(value<StepSums>(seen).loss, 3);  // of the 40th
  EXPECT_EQ(value<StepSums>(total).samples, 63U);
  if (programs.replayed() == 0) GTEST_SKIP() << "this device keeps no programs";
  EXPECT_LE(programs.recorded(), 4U);
}

TEST_P(StreamContract, RepeatsWorkInWhichItWaitsForAnotherStreamThatWaitsForIt) {
  Programs programs, of_other;
  const auto stream = device().stream(), other = device().stream();
  const Memory sum = put({0, 0}), more = put({1, 2}), between = put({0, 0});
  const std::vector<RecordedStream> both{{*stream, programs}, {*other, of_other}};
  for (int step = 0; step < 20; ++step)
    enqueue_as_pieces(both, [&] {
      stream->reduce(sum, std::array{sum, more});
      other->wait(stream->mark());
      other->copy(between, sum);
      stream->wait(other->mark());
      stream->reduce(sum, std::array{between, more});
    });
  finish(*stream);
  finish(*other);
  EXPECT_EQ(get(sum), (std::vector<float>{40, 80}));
  if (programs.replayed() == 0) GTEST_SKIP() << "this device keeps no programs";
  EXPECT_EQ(of_other.recorded(), 1U);
  EXPECT_GT(of_other.replayed(), 0U);
}

TEST_P(StreamContract, KeepsWhatWasEnqueuedBeforeTheWorkThrew) {
  Programs programs;
  const auto stream = device().stream();
  const Memory a = put({1, 2}), b = put({3, 4}), c = put({5, 6});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(stream->enqueue(programs,
                                 [&] {
                                   stream->copy(b, a);
                                   fail(Code::invalid, "that was all");
                                 }),
                 Error);
    stream->copy(c, b);
    finish(*stream);
    EXPECT_EQ(get(c), (std::vector<float>{1, 2}));
    write(b, std::vector<float>{3, 4});
  }
  EXPECT_EQ(programs.replayed() + programs.recorded(), 0U);
}

TEST_P(StreamContract, RefusesMemoryOfAnArenaThatIsNotMapped) {
  const auto stream = device().stream();
  const Memory here = put({1}), nowhere{ArenaId{77777}, 4096, 4};
  EXPECT_THROW(stream->copy(here, nowhere), Error);
  EXPECT_THROW(stream->copy(nowhere, here), Error);
  EXPECT_THROW(stream->wait({TimelineId{ArenaId{77777}, 40}, 1}), Error);
  finish(*stream);
}

}  // namespace troupe::contracts
