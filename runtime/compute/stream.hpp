#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/base/any_processor.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/compute/program.hpp"
#include "runtime/compute/rules/rule.hpp"
#include "runtime/compute/stream_times.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// What a step, or an evaluation, adds up: over samples, over ranks, and over the summed gradient's elements. Lies in
/// memory that devices and other ranks read, so plain data.
struct StepSums {
  // Over samples.
  double loss = 0;
  std::uint64_t correct = 0;  // samples whose largest logit is their label's
  std::uint64_t samples = 0;  // rows that counted
  // Over ranks.
  std::uint64_t stop_requests = 0;  // ranks that ask to end after this step
  std::uint64_t still_saving = 0;   // ranks that are still writing a checkpoint when they begin it
  // Over elements that reduce_with_norm() saw.
  double gradient_squares = 0;
  std::uint64_t bad_gradient = 0;  // bad_at() of the first element that is not finite; 0: all are
  /// A rank's own: its rank + 1, whatever its loss. A total: the first rank whose loss is not finite, + 1; 0: none.
  std::uint64_t bad_loss = 0;

  TROUPE_ANY_PROCESSOR void add(const StepSums& other) noexcept {
    if (bad_loss == 0 && !std::isfinite(other.loss)) bad_loss = other.bad_loss;
    if (other.bad_gradient != 0 && (bad_gradient == 0 || other.bad_gradient < bad_gradient))
      bad_gradient = other.bad_gradient;
    gradient_squares += other.gradient_squares;
    loss += other.loss;
    correct += other.correct;
    samples += other.samples;
    stop_requests += other.stop_requests;
    still_saving += other.still_saving;
  }
};
static_assert(sizeof(StepSums) == 64);

/// An element of a group and the rank whose gradient is not finite there, as one number that is less for an earlier
/// element; never 0.
inline constexpr unsigned kBadRankBits = 20;
TROUPE_ANY_PROCESSOR constexpr std::uint64_t bad_at(std::uint64_t element, std::uint64_t rank) noexcept {
  return (element + 1) << kBadRankBits | rank;
}
constexpr std::uint64_t bad_element(std::uint64_t bad) noexcept { return (bad >> kBadRankBits) - 1; }
constexpr std::uint64_t bad_rank(std::uint64_t bad) noexcept { return bad & ((1U << kBadRankBits) - 1); }

/// What an update multiplies a summed gradient with: 1 / samples, less where the norm of the mean is clipped; 0: the
/// update changes nothing. All ranks, and all buckets of a step, find the same.
TROUPE_ANY_PROCESSOR inline float gradient_scale(const RuleStep& rule, const StepSums& total) noexcept {
  if (total.samples == 0 || (rule.judged && !std::isfinite(total.gradient_squares))) return 0;
  const double scale = 1.0 / static_cast<double>(total.samples);
  if (rule.clip_norm <= 0) return static_cast<float>(scale);
  const double norm = std::sqrt(total.gradient_squares) * scale;
  return static_cast<float>(norm > rule.clip_norm ? scale * (rule.clip_norm / norm) : scale);
}

/// The journal of a restartable update pass, at the start of StripeMemory::journal; the undo blocks follow.
/// `progress` is (update number << 24 | blocks done + 1); undo block (b mod 2) holds block b as it was before.
struct alignas(64) UpdateJournal {
  static constexpr std::uint64_t kBlockElements = 1024;  // 4 KiB of f32
  std::uint64_t progress = 0;
  std::array<std::uint64_t, 7> reserved{};
};
/// Bytes a journal needs: the word and two undo blocks of parameters and `state_slots` states.
constexpr std::uint64_t journal_bytes(std::size_t state_slots) noexcept {
  return sizeof(UpdateJournal) + 2 * UpdateJournal::kBlockElements * sizeof(float) * (1 + state_slots);
}

/// Of one tensor: the sum of the squares of its weights, and of the direction in which an update moves them.
struct TensorSquares {
  float weights = 0;
  float update = 0;
};
static_assert(sizeof(TensorSquares) == 8);

/// What the rate of a tensor is multiplied by: 1 where one of the norms is 0, as in the reference code of both papers.
/// `rule` has the weight decay of the tensor.
TROUPE_ANY_PROCESSOR inline float trust_ratio(const RuleStep& rule, const TensorSquares& squares) noexcept {
  const double weights = std::sqrt(static_cast<double>(squares.weights));
  const double update = std::sqrt(static_cast<double>(squares.update));
  if (!(weights > 0 && update > 0)) return 1;
  if (rule.kind == RuleKind::lars)
    return static_cast<float>(static_cast<double>(rule.trust) * weights /
                              (update + static_cast<double>(rule.decay) * weights));
  return static_cast<float>(weights / update);
}

/// Where a stripe (or the part of it that one bucket covers) lies. Sizes: count elements of f32; `bf16` of bf16.
struct StripeMemory {
  Stripe stripe;
  Memory parameters;
  Memory bf16;                                 // bf16 image written along with the parameters; empty: none
  std::array<Memory, kMaxStateSlots> state{};  // state_slots(rule) of them
  Memory journal;                              // empty: the pass is not restartable
  /// Elements of the group without weight decay, growing; outlives the work that is enqueued with it.
  std::span<const Layout::Entry> no_decay{};
  // Of rules with tensor norms:
  /// The tensors whose rate follows from their norms, as elements of the group, growing; outlives the work likewise.
  std::span<const Layout::Entry> scaled{};
  Memory squares;  // as many TensorSquares: of whole tensors, when an update begins
};

/// What Stream::reduce_with_norm looks for, and where it tells it.
struct NormCheck {
  Memory sums;                      // a StepSums, to which what is found is added
  std::uint64_t first_element = 0;  // of the group: the one that is measured first
  std::span<const Rank> ranks{};    // whose the parts are; outlives the work. None: part r is rank r's
  bool squares = true;              // whether they are added up; otherwise it only looks whether all is finite

  std::uint64_t rank_of(std::uint64_t part) const noexcept { return ranks.empty() ? part : ranks[part].value; }
};

/// A queue of work on one device, done in the order it was enqueued; every call only enqueues and returns. The first
/// failure (a poisoned or overdue wait, a fault) ends the stream: later work is dropped and its timeline is poisoned
/// with the reason. Threads: one caller at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Work enqueued later starts when `point` is reached. Its line must be in the device's address space.
  virtual void wait(Point point) = 0;
  /// The point that is reached when everything enqueued so far is done; on the stream's own timeline.
  virtual Point mark() = 0;
  /// Raises a line, when everything enqueued so far is done. Of several streams that signal one line, each must have
  /// waited for the one before it.
  virtual void signal(Point point) = 0;
  /// Copies equal-sized memory.
  virtual void copy(Memory to, Memory from) = 0;
  /// Adds the StepSums at each of `parts`, in their order, into the one at `total` (overwritten; it may be one of
  /// them).
  virtual void sum_up(Memory total, std::span<const Memory> parts) = 0;
  /// to[i] = sum of parts[.][i] in the order of `parts`; f32, all of one size. `to` may be one of the parts.
  virtual void reduce(Memory to, std::span<const Memory> parts) = 0;
  /// As reduce, and tells of what `to` then holds: its squares (in f64, as measure_gradient), and its first element
  /// that is not finite, with the rank that made it so.
  virtual void reduce_with_norm(Memory to, std::span<const Memory> parts, const NormCheck& what) = 0;
  /// to[i] = samples * (anchor[i] - from[i]), samples those of the StepSums at `sums`; f32, all of one size. `to` may
  /// be one of the others.
  virtual void weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) = 0;
  /// Writes zero bytes.
  virtual void clear(Memory memory) = 0;
  /// to[i] = from[i], rounded to the nearest value of `to_type`, ties to even; NaN stays NaN. Equally many elements.
  /// Throws Error{unsupported} where the device has no way to.
  virtual void convert(Memory /*to*/, DType /*to_type*/, Memory /*from*/, DType /*from_type*/) {
    fail(Code::unsupported, "this device converts no numbers; leave update.compress out");
  }
  /// to[i] = from[i] + residual[i], rounded as convert() does; residual[i] = what that took away, 0 where it is not
  /// finite. `from` and `residual` f32. Throws as convert().
  virtual void convert_with_residual(Memory /*to*/, DType /*to_type*/, Memory /*from*/, Memory /*residual*/) {
    fail(Code::unsupported, "this device keeps no residual of what it converts; leave update.error_feedback out");
  }
  /// to[i] += from[i]; `to` f32. Throws as convert().
  virtual void add_converted(Memory /*to*/, Memory /*from*/, DType /*from_type*/) {
    fail(Code::unsupported, "this device converts no numbers; leave update.compress out");
  }
  /// Writes the xxh3 of the bytes at `of`, a u64 of 8 bytes, to `to`. Throws Error{unsupported} where the device has no
  /// way to.
  virtual void digest(Memory /*to*/, Memory /*of*/) {
    fail(Code::unsupported, "this device computes no digests; leave update.digest_steps out");
  }
  /// Adds to `stripe.squares` what the stripe has of each tensor: the squares of its weights, and of the direction in
  /// which an update with the same rule, stripe and total would move them, where `sum` ([stripe.count] f32) is the sum
  /// of the gradients. Changes nothing else. Only of rules with tensor norms. Throws Error{unsupported} where the
  /// device has no way to.
  virtual void measure_update(const RuleStep& rule, const StripeMemory& /*stripe*/, Memory /*sum*/, Memory /*total*/) {
    fail(Code::unsupported, text("this device measures no tensors, which optimizer.rule = \"", name_of(rule.kind),
                                 "\" needs; choose another rule"));
  }
  /// One pass over a stripe: adds up the gradients at `contributions` (each [stripe.count] f32) in their order,
  /// multiplies them by the gradient_scale of the StepSums at `total`, applies the rule, publishes parameters and their
  /// bf16 image. No samples: nothing changes. With a journal the pass is restartable: another thread or process of the
  /// node that calls update with the same arguments after this one died at any instruction completes it, with the same
  /// bits.
  virtual void update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
                      std::span<const Memory> contributions, Memory total) = 0;
  /// Enqueues what `work` enqueues on this stream, and nothing else may meanwhile: as one piece where one of `programs`
  /// has that form, otherwise piece by piece, and then `programs` has it. What it enqueued before it throws stays. The
  /// points that it is given are those of whatever is done. A device need not: then it is always piece by piece.
  virtual void enqueue(Programs& /*programs*/, const std::function<void()>& work) { work(); }
  /// Tells `row`, which outlives the stream, what it does when; before its first work. A device need not.
  virtual void trace(TraceRow& /*row*/) {}
  /// What the work that is enqueued from here on is about, for the trace.
  virtual void about(const WorkLabel& /*label*/) {}
  /// Where its time has gone so far. Any thread.
  virtual StreamTimes times() const noexcept { return {}; }
};

}  // namespace troupe
