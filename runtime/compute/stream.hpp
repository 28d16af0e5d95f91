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
#include "runtime/compute/rules/loss_scale.hpp"
#include "runtime/compute/rules/rule.hpp"
#include "runtime/compute/stream_times.hpp"
#include "runtime/compute/undo_copy.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// The sums of a step or an evaluation: over samples, over ranks, and over the elements of the summed gradient. Plain
/// data, because it lies in memory that devices and other ranks read.
struct StepSums {
  // Over samples.
  double loss = 0;
  std::uint64_t correct = 0;  // samples whose largest logit is that of their label
  std::uint64_t samples = 0;  // number of rows that count
  // Over ranks.
  std::uint64_t stop_requests = 0;  // number of ranks that ask to end the run after this step
  std::uint64_t still_saving = 0;   // number of ranks that are still writing a checkpoint when they begin this step
  // Over the elements that reduce() checked.
  double gradient_squares = 0;
  std::uint64_t bad_gradient = 0;  // bad_at() of the first element that is not finite; 0: all are
  /// A rank's own sums: its rank + 1, whatever its loss. A total: the first rank with a non-finite loss, + 1; 0: none.
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

/// An element of a group, and the rank whose gradient is not finite there, as one number that is smaller for an earlier
/// element; never 0.
inline constexpr unsigned kBadRankBits = 20;
TROUPE_ANY_PROCESSOR constexpr std::uint64_t bad_at(std::uint64_t element, std::uint64_t rank) noexcept {
  return (element + 1) << kBadRankBits | rank;
}
constexpr std::uint64_t bad_element(std::uint64_t bad) noexcept { return (bad >> kBadRankBits) - 1; }
constexpr std::uint64_t bad_rank(std::uint64_t bad) noexcept { return bad & ((1U << kBadRankBits) - 1); }

/// What an update multiplies a summed gradient with: 1 / samples, less where the norm of the mean is clipped; 0: the
/// update changes nothing. All ranks, and all buckets of a step, find the same. A swap reads neither gradient nor
/// samples.
TROUPE_ANY_PROCESSOR inline float gradient_scale(const RuleStep& rule, const StepSums& total) noexcept {
  if (rule.kind == RuleKind::swap) return 1;
  if (total.samples == 0) return 0;
  if (rule.judged && (total.bad_gradient != 0 || !std::isfinite(total.gradient_squares))) return 0;
  const double scale = 1.0 / static_cast<double>(total.samples);
  if (rule.clip_norm <= 0) return static_cast<float>(scale);
  const double norm = std::sqrt(total.gradient_squares) * scale;
  return static_cast<float>(norm > rule.clip_norm ? scale * (rule.clip_norm / norm) : scale);
}

/// For one tensor: the sum of squares of its weights, and of the direction in which an update moves them.
struct TensorSquares {
  float weights = 0;
  float update = 0;
};
static_assert(sizeof(TensorSquares) == 8);

/// The factor for a tensor's rate: 1 if one of the norms is 0, as in the reference code of both papers. `rule` has the
/// tensor's weight decay.
TROUPE_ANY_PROCESSOR inline float trust_ratio(const RuleStep& rule, const TensorSquares& squares) noexcept {
  const double weights = std::sqrt(static_cast<double>(squares.weights));
  const double update = std::sqrt(static_cast<double>(squares.update));
  if (!(weights > 0 && update > 0)) return 1;
  if (rule.kind == RuleKind::lars)
    return static_cast<float>(static_cast<double>(rule.trust) * weights /
                              (update + static_cast<double>(rule.decay) * weights));
  return static_cast<float>(weights / update);
}

/// The memory of a stripe, or of the part of it in one bucket. Sizes: count elements of f32; `half` of 16 bits.
struct StripeMemory {
  Stripe stripe;
  Memory parameters;
  Memory half;                                 // copy in `copy_type`, written with the parameters; empty: none
  DType copy_type = DType::bf16;               // or f16
  std::array<Memory, kMaxStateSlots> state{};  // state_slots(rule) of them
  Memory journal;                              // empty: the pass is not restartable
  Memory loss_scale;                           // a LossScaleState, which says what was left out; empty: nothing was
  /// The elements of the group without weight decay, ascending; outlives the work that is enqueued with it.
  std::span<const Layout::Entry> no_decay{};
  // For rules with tensor norms:
  /// The tensors whose rate depends on their norms, as elements of the group, ascending; outlives the work likewise.
  std::span<const Layout::Entry> scaled{};
  Memory squares;  // as many TensorSquares: those of whole tensors by the time when an update begins
};

/// What Stream::reduce reports about its result: the sum of its squares (in f64, as check_gradient), and its first
/// element that is not finite, with the rank that caused it.
struct NormCheck {
  Memory sums;                      // a StepSums, to which that is added; empty: nothing is reported
  std::uint64_t first_element = 0;  // first measured element, counted in the group
  std::span<const Rank> ranks{};    // the ranks of the parts; outlives the work. Empty: part r is rank r's
  bool squares = true;              // whether to add up squares; otherwise only the finite check is made

  std::uint64_t rank_of(std::uint64_t part) const noexcept { return ranks.empty() ? part : ranks[part].value; }
};

/// What Stream::convert does: to[i] = from[i] + residual[i], rounded to the nearest value of `to_type`, ties to even;
/// NaN stays NaN. The same number of elements everywhere.
struct NumberConversion {
  Memory to;
  DType to_type;
  Memory from;
  DType from_type;
  Memory residual{};  // f32, as is `from` then: becomes the rounding error, or 0 where that is not finite. Empty: none
  bool adds = false;  // to[i] += from[i] instead; `to` is f32, and there is no residual

  /// How many numbers it has. Throws Error{invalid} if what must be f32 is not: every device asks, so none reads or
  /// writes past its memory.
  std::uint64_t count() const {
    const bool keeps = residual.size_bytes != 0;
    TROUPE_CHECK(!adds || (to_type == DType::f32 && !keeps), Code::invalid,
                 "converted numbers are added to f32, without a residual; leave `adds` or the rest out");
    TROUPE_CHECK(!keeps || from_type == DType::f32, Code::invalid,
                 "a residual is kept of f32; convert from f32, or leave it out");
    return from.size_bytes / size_bytes(from_type);
  }
};

/// A queue of work on one device, executed in the order of enqueueing; every call only enqueues and returns. The first
/// failure (a poisoned or overdue wait, a fault) ends the stream: later work is dropped, and the stream's timeline is
/// poisoned with the reason. Threads: one caller at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Work enqueued later starts when `point` is reached. Its timeline must be in the device's address space.
  virtual void wait(Point point) = 0;
  /// The point that is reached when all work enqueued so far is completed; on the stream's own timeline.
  virtual Point mark() = 0;
  /// Raises a timeline when all work enqueued so far is completed. If several streams signal one timeline, each must
  /// have waited for the previous one.
  virtual void signal(Point point) = 0;
  /// Copies memory of equal size.
  virtual void copy(Memory to, Memory from) = 0;
  /// Adds up the StepSums at `parts`, in order, and writes the result to the one at `total`, which may be one of
  /// them.
  virtual void sum_up(Memory total, std::span<const Memory> parts) = 0;
  /// to[i] = sum of parts[.][i] in the order of `parts`; f32, all of the same size. `to` may be one of the parts.
  virtual void reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) = 0;
  void reduce(Memory to, std::span<const Memory> parts) { reduce(to, parts, {}); }
  /// to[i] = samples * (anchor[i] - from[i]), with the samples of the StepSums at `sums`; f32, all of the same size.
  /// `to` may be one of the others.
  virtual void weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) = 0;
  /// Writes zero bytes.
  virtual void clear(Memory memory) = 0;
  /// Throws Error{unsupported} if the device cannot do it.
  virtual void convert(const NumberConversion& what) {
    fail(Code::unsupported, what.residual.size_bytes == 0
                                ? "this device converts no numbers; leave update.compress out"
                                : "this device keeps no residual of what it converts; leave update.error_feedback out");
  }
  /// Writes the xxh3 of the bytes at `of` to `to`, as a u64. Throws Error{unsupported} if the device cannot do
  /// it.
  virtual void digest(Memory /*to*/, Memory /*of*/) {
    fail(Code::unsupported, "this device computes no digests; leave update.digest_steps out");
  }
  /// Adds to `stripe.squares`, for the stripe's part of each tensor, the squares of its weights, and of the direction
  /// in which an update with the same rule, stripe and total would move them; `sum` ([stripe.count] f32) is the sum of
  /// the gradients. Changes nothing else. Only for rules with tensor norms. Throws Error{unsupported} if the device
  /// cannot do it.
  virtual void add_update_squares(const RuleStep& rule, const StripeMemory& /*stripe*/, Memory /*sum*/,
                                  Memory /*total*/) {
    fail(Code::unsupported, text("this device measures no tensors, which optimizer.rule = \"", name_of(rule.kind),
                                 "\" needs; choose another rule"));
  }
  /// Moves the LossScaleState at `state` by the verdict in the StepSums at `sums` on `updates` updates. Throws
  /// Error{unsupported} if the device cannot do it.
  virtual void adapt_loss_scale(Memory /*state*/, const LossScaling& /*how*/, ScaleVerdict /*verdict*/, Memory /*sums*/,
                                std::uint32_t /*updates*/) {
    fail(Code::unsupported, "this device scales no loss; write model.dtype = \"bf16\"");
  }
  /// If the StepSums at `sums` say that a gradient is not finite: the gradients become zeros, and `sums` are those of
  /// no samples. Throws likewise.
  virtual void leave_out_bad(Memory /*gradients*/, Memory /*sums*/) {
    fail(Code::unsupported, "this device leaves no gradient out; write model.dtype = \"bf16\"");
  }
  /// One pass over a stripe: adds up the gradients at `contributions` (each [stripe.count] f32) in order, multiplies
  /// them by the gradient_scale of the StepSums at `total`, applies the rule, writes the parameters and their
  /// copy in 16 bits. Without samples nothing changes. With a journal the pass is restartable: if this process or
  /// thread dies at any instruction, another one of the node that calls update with the same arguments completes the
  /// pass, with the same bits.
  virtual void update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
                      std::span<const Memory> contributions, Memory total) = 0;
  /// Enqueues the work that `work` enqueues on this stream; nothing else may enqueue meanwhile. If one of `programs`
  /// has that form, it is replayed; otherwise the work is enqueued piece by piece, and recorded there. If `work`
  /// throws, its earlier work stays. Points that `work` gets are valid either way. A device need not replay work.
  virtual void enqueue(Programs& /*programs*/, const std::function<void()>& work) { work(); }
  /// Records the stream's work in `row`, which outlives the stream; before the first work. Optional for devices.
  virtual void trace(TraceRow& /*row*/) {}
  /// The step and bucket of the work that is enqueued from here on, for the trace.
  virtual void about(const WorkLabel& /*label*/) {}
  /// How its time was spent so far. Any thread.
  virtual StreamTimes times() const noexcept { return {}; }
};

}  // namespace troupe
