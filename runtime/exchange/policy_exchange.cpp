#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "runtime/exchange/exchange.hpp"
#include "runtime/exchange/relieved_ranks.hpp"

namespace troupe {
namespace {

Memory of_bucket(const Memory& whole, const Bucket& bucket) noexcept {
  return elements(whole, bucket.first, bucket.count, sizeof(float));
}

Memory image_of(const Memory& whole, const Bucket& bucket) noexcept {
  return elements(whole, bucket.first, bucket.count, size_bytes(DType::bf16));
}

/// The memory and parts without which the orders cannot be carried out.
PolicyNeeds needs_of(const StepActions& actions) {
  const bool delta = actions.sent == Sent::delta;
  const bool behind = actions.sent != Sent::nothing && !actions.finish;
  return {.own_weights = actions.local_update || delta || behind,
          .held = actions.keep || behind,
          .whole_state = actions.local_update || delta,
          .outer_state = delta && state_slots(actions.outer) != 0,
          .side_stream = behind,
          .hosted = actions.hosted};
}

void copy_some(Stream& stream, const Memory& to, const Memory& from) {
  if (from.size_bytes != 0) stream.copy(to, from);
}

class PolicyExchange final : public Exchange {
 public:
  explicit PolicyExchange(ExchangeParts parts)
      : parts_(std::move(parts)), memory_(parts_.memory), updates_(parts_.updates), idle_updates_(parts_.idle_updates) {
    TROUPE_CHECK(parts_.policy != nullptr && !parts_.buckets.empty(), Code::invalid,
                 "a group needs a policy and buckets");
    TROUPE_CHECK(parts_.communicator != nullptr || parts_.policy->is_hosted_only(), Code::invalid,
                 "a group whose policy exchanges in rounds needs a communicator");
    TROUPE_CHECK(!parts_.policy->works_locally() || !needs_common_verdict(parts_.rule), Code::unsupported,
                 "ranks that work locally cannot agree on each update: optimizer.clip_norm and train.non_finite = "
                 "\"skip\" need update.policy = \"sync\" or \"double_buffered\"");
    TROUPE_CHECK(!keeps_average() || (!parts_.policy->works_locally() && !parts_.policy->is_hosted_only()),
                 Code::unsupported,
                 "an average of the parameters is kept where each update has a round of all ranks: optimizer.ema_decay "
                 "needs update.policy = \"sync\" or \"double_buffered\"");
    TROUPE_CHECK(!parts_.policy->works_locally() || has_own_weights(), Code::invalid,
                 "ranks that work locally need weights of their own");
    TROUPE_CHECK(memory_.stripes.empty() || memory_.relief_journal.size_bytes == 0 ||
                     memory_.relief_journal.size_bytes >= relief_journals(),
                 Code::invalid, "the journals for pieces of other ranks' stripes have ",
                 memory_.relief_journal.size_bytes, " bytes, ", relief_journals(), " are needed");
    for (const Bucket& bucket : parts_.buckets) valid_.resize(std::max<std::size_t>(valid_.size(), bucket.index + 1));
    adopts_.resize(valid_.size());
  }

  void begin(Stream& stream, const StepFacts& facts, Memory sums, Memory total) override {
    check_not_retired(facts.step);
    step_ = facts.step;
    idle_ = facts.idle;
    sums_ = sums;
    total_ = total;
    rule_ = parts_.rule;
    const bool was_hosted = actions_.hosted;
    // First, because all that follows depends on this step's orders.
    actions_ = parts_.policy->next(facts);
    const char* const lacks = missing(needs_of(actions_));
    TROUPE_CHECK(lacks == nullptr, Code::invalid, "step ", step_.value, ": group ", group().value, "'s policy needs ",
                 lacks, ", which ", name_of(policy().kind), " does not have: let update.policy name one that does");
    TROUPE_CHECK(actions_.finish_previous == in_progress_, Code::invalid, "step ", step_.value, ": group ",
                 group().value, "'s policy ", in_progress_ ? "does not finish" : "finishes", " a previous round, and ",
                 in_progress_ ? "one is" : "none is", " in progress");
    if (parts_.rate) {
      const std::uint64_t steps = parts_.policy->policy().accumulate;  // number of steps in an update
      rule_.rate = parts_.rate->at(facts.samples_before, facts.computed() * steps);
    }
    relieve(stream, facts);
    const bool first = !std::exchange(begun_, true);
    if (actions_.hosted) return begin_hosted(stream, facts, was_hosted);
    // The shard stops using the stripe before a round may update it, and the weights are copied after that.
    if (was_hosted) {
      parts_.hosted->close(stream);
      updates_ = parts_.hosted->updates();
    }
    if (first && parts_.average_begins && keeps_average()) begin_average(stream);
    if (first || was_hosted) adopt(stream);
    first_ = true;
    if (actions_.sent == Sent::gradient) ++updates_;
    if (actions_.switched) begin_policy(stream);
  }

  void show_between_steps() noexcept override { shows_between_steps_ = true; }

  bool has_round() const noexcept override { return actions_.hosted || actions_.sent != Sent::nothing; }
  bool totals_are_common() const noexcept override { return !actions_.hosted || parts_.hosted->totals_are_common(); }

  void acquire(Stream& stream, const Bucket& bucket) override {
    stream.wait(std::exchange(valid_.at(bucket.index), {}));
    adapt_when_joined(stream);
    if (std::exchange(adopts_[bucket.index], 0) == 0) return;
    stream.copy(of_bucket(memory_.weights, bucket), of_bucket(memory_.common, bucket));
    copy_some(stream, image_of(memory_.half, bucket), image_of(memory_.common_half, bucket));
  }

  std::span<const Point> pending() const noexcept override { return valid_; }

  void join(Stream& stream) override {
    for (const Bucket& bucket : parts_.buckets) acquire(stream, bucket);
  }

  void contribute(Stream& stream, const Bucket& bucket) override {
    check_not_retired(step_);
    TROUPE_CHECK(bucket.count > 0 && (bucket.first + bucket.count) * sizeof(float) <= memory_.gradients.size_bytes,
                 Code::invalid, "bucket ", bucket.index, " covers elements ", bucket.first, " to ",
                 bucket.first + bucket.count, " of group ", bucket.group.value, ", which has ",
                 memory_.gradients.size_bytes / sizeof(float));
    if (actions_.hosted) return;  // the shards get whole stripes later
    if (actions_.keep) {
      keep(stream, bucket);
    } else if (sends_at_once()) {
      send_gradients(stream, bucket);
    }
  }

  /// The order of the parts matters. The previous round ends first: the next one uses the same memory (held,
  /// round_total), and the communicator's rounds follow each other in the same order at all ranks. The state is
  /// gathered before a local update uses it. A delta is computed from the weights after the local update. The published
  /// parameters are copied after the round that produces them. The state and the count of updates are cleared last,
  /// because this step's update still uses both.
  void commit(Stream& stream) override {
    if (actions_.finish_previous) finish_previous(stream);
    if (actions_.gather_state) gather_state(stream);
    if (actions_.hosted) {
      if (parts_.rule.scales_loss) leave_out_bad(stream);
      return parts_.hosted->commit(stream, actions_.finish);
    }
    if (actions_.local_update) update_locally(stream);
    if (actions_.sent == Sent::nothing) carry(stream);
    if (actions_.sent == Sent::delta) send_delta(stream);
    if (sends_at_once()) {
      conclude(stream);
      adapt_later(ScaleVerdict::common, total_, 1);
    }
    if (actions_.sent == Sent::gradient && !sends_at_once()) {
      actions_.finish ? send_all_gradients(stream) : begin_round_behind(stream);
    }
    if (actions_.sent != Sent::nothing && actions_.finish) {
      shows_between_steps_ ? adopt(stream) : adopt_by_bucket();
    }
    if (actions_.clear_state) clear_state(stream);
    kept_ = actions_.keep;
  }

  bool is_consistent() const noexcept override {
    return actions_.hosted ? parts_.hosted->is_consistent() : !in_progress_ && !kept_ && !moved_;
  }

  void show_common(Stream& stream) override {
    join(stream);
    if (actions_.hosted) return parts_.hosted->show_common(stream);
    if (!moved_) return;
    stream.copy(memory_.held, memory_.weights);
    copy_some(stream, memory_.held_half, memory_.half);
    copy_some(stream, memory_.half, memory_.common_half);
    stream.copy(memory_.weights, memory_.common);
  }

  void show_own(Stream& stream) override {
    if (actions_.hosted) return parts_.hosted->show_own(stream);
    if (!moved_) return;
    stream.copy(memory_.weights, memory_.held);
    copy_some(stream, memory_.half, memory_.held_half);
  }

  bool keeps_average() const noexcept override { return parts_.rule.ema_decay > 0; }

  /// A round under way ends first. What it leads to is averaged too, but this rank's weights do not have it yet: they
  /// are put aside.
  void show_average(Stream& stream) override {
    if (!keeps_average()) return;
    if (in_progress_) stream.wait(round_end_);
    swap_average(stream);
    if (!has_own_weights()) return;
    if (in_progress_) {
      stream.copy(memory_.held, memory_.weights);
      copy_some(stream, memory_.held_half, memory_.half);
    }
    adopt(stream);
  }

  void hide_average(Stream& stream) override {
    if (!keeps_average()) return;
    swap_average(stream);
    if (!in_progress_) return adopt(stream);
    stream.copy(memory_.weights, memory_.held);
    copy_some(stream, memory_.half, memory_.held_half);
  }

  const PolicySettings& policy() const noexcept override { return parts_.policy->policy(); }
  PolicyProgress policy_progress() const noexcept override { return parts_.policy->progress(); }

  std::string refusal(const PolicySettings& wished) const override {
    const PolicySettings policy = of_group(wished);
    if (keeps_average() && !has_verdicts(policy.kind))
      return text("a switch to ", name_of(policy.kind),
                  " is not possible while the parameters are averaged (optimizer.ema_decay)");
    const bool in_rounds = !is_hosted(policy.kind);
    const char* const lacks =
        in_rounds && parts_.communicator == nullptr ? "a communicator" : missing(troupe::needs_of(policy));
    if (lacks == nullptr) return {};
    return text("a switch to ", name_of(policy.kind), " needs ", lacks,
                ", for which this job has no memory: name the policy in update.switch");
  }

  void switch_at(Step step, const PolicySettings& policy) override {
    const std::string why = refusal(policy);
    TROUPE_CHECK(why.empty(), Code::invalid, why);
    TROUPE_CHECK(!begun_ || step.value > step_.value + 1, Code::invalid, "a switch at step ", step.value, ", but step ",
                 step_.value, " has begun");
    parts_.policy->switch_at(step, of_group(policy));
  }

  std::uint64_t updates() const noexcept override { return actions_.hosted ? parts_.hosted->updates() : updates_; }

  std::vector<StripeMemory> retire(const Status& why) noexcept override {
    if (!retired_.exchange(true, std::memory_order_acq_rel)) {
      if (parts_.communicator != nullptr) parts_.communicator->abort(why);
      if (parts_.hosted != nullptr) parts_.hosted->retire(why);
    }
    return memory_.mine;
  }

  ExchangeProgress hand_over() override {
    TROUPE_CHECK(retired_.load(std::memory_order_acquire), Code::invalid, "group ", group().value,
                 " is still exchanged: retire it first");
    TROUPE_CHECK(!begun_ || is_consistent(), Code::invalid, "group ", group().value, ": step ", step_.value,
                 " left an unfinished round");
    const std::uint64_t made = updates();
    return {std::move(parts_.policy), made, idle_updates_};
  }

 private:
  GroupId group() const noexcept { return parts_.buckets.front().group; }
  PolicySettings of_group(const PolicySettings& policy) const {
    return parts_.running ? without_outer_momentum(policy) : policy;
  }
  /// For people: the first of `needs` that the group does not have; null: it has all.
  const char* missing(const PolicyNeeds& needs) const noexcept {
    return needs.own_weights && !has_own_weights()                ? "weights of each rank's own"
           : needs.held && memory_.held.size_bytes == 0           ? "room for gradients that wait"
           : needs.whole_state && !parts_.policy->works_locally() ? "all of the optimizer's state at each rank"
           : needs.outer_state && !has_outer_state()              ? "an outer momentum"
           : needs.hosted && parts_.hosted == nullptr             ? "shards and workers"
           : needs.landing && !parts_.hosted->has_landing()       ? "room for what ranks read"
           : needs.side_stream && parts_.side == nullptr          ? "a second stream"
                                                                  : nullptr;
  }
  bool has_own_weights() const noexcept { return memory_.weights.size_bytes != 0; }
  bool has_outer_state() const noexcept {
    return std::all_of(memory_.outer.begin(), memory_.outer.end(), [](const StripeMemory& part) {
      return part.stripe.count == 0 || part.state[0].size_bytes != 0;
    });
  }
  /// How many arrays a stripe has beside the parameters.
  std::size_t slots() const noexcept { return state_slots(parts_.rule); }

  /// Only an owner updates its stripe, and not before all ranks have contributed to it, which is later on their
  /// streams.
  void begin_average(Stream& stream) {
    for (const StripeMemory& part : memory_.mine)
      if (part.stripe.count != 0) stream.copy(part.state[slots() - 1], part.parameters);
  }

  /// A round without gradients, in which owners exchange their parameters with the average. Nobody reads the weights
  /// any more when all have come to its barrier.
  void swap_average(Stream& stream) {
    join(stream);
    if (!relieved_.empty()) parts_.communicator->barrier_with_relieved(stream);
    relieved_.clear();
    parts_.communicator->barrier(stream);
    ++rounds_;
    for (const Bucket& bucket : parts_.buckets) {
      StripeMemory part = parts_of(bucket).front();
      part.state = {part.state[slots() - 1]};
      part.no_decay = {};
      BucketWork work;
      work.bucket = bucket;
      work.step = step_;
      work.update = rounds_;
      work.gradients = of_bucket(memory_.gradients, bucket);
      work.sums = sums_;
      work.total = total_;
      work.mine = {&part, 1};
      valid_[bucket.index] = parts_.communicator->update_gather(stream, work, RuleStep{.kind = RuleKind::swap});
    }
    join(stream);
  }

  /// Whether each bucket leaves as soon as it is ready.
  bool sends_at_once() const noexcept {
    return actions_.sent == Sent::gradient && actions_.finish && !actions_.finish_previous;
  }

  void check_not_retired(Step step) const {
    TROUPE_CHECK(!retired_.load(std::memory_order_acquire), Code::aborted, "step ", step.value,
                 ": the exchange of group ", group().value, " was retired");
  }

  /// Sets the ranks that update nothing in this step. In a round the others do not wait for relieved ranks. They do
  /// before the next step without a round, and in the last step nobody is relieved: relieved ranks still read the
  /// others' memory, which is then reused or unmapped.
  void relieve(Stream& stream, const StepFacts& facts) {
    const bool rounds = !actions_.hosted && actions_.sent == Sent::gradient;
    if (!rounds && !relieved_.empty()) parts_.communicator->barrier_with_relieved(stream);
    relieved_.clear();
    // A rank that updates a tensor with norms must have computed that tensor's sum of squares, for which it needs the
    // gradient sum; each rank has that for its own stripe only, so no other rank can update it.
    if (rounds && !facts.last && !memory_.stripes.empty() && !needs_tensor_norms(rule_.kind))
      relieved_.assign(facts.relieved.begin(), facts.relieved.end());
  }

  void begin_hosted(Stream& stream, const StepFacts& facts, bool was_hosted) {
    join(stream);
    if (actions_.switched || !was_hosted) {
      if (was_hosted) updates_ = parts_.hosted->updates();
      parts_.hosted->open(stream,
                          {parts_.policy->policy(), updates_, parts_.policy->steps_taken(), facts.samples_before});
    }
    parts_.hosted->begin(facts, rule_, sums_, total_);
  }

  /// Copies the parameters that the owners have published into this rank's weights.
  void adopt(Stream& stream) {
    if (!has_own_weights()) return;
    join(stream);
    stream.copy(memory_.weights, memory_.common);
    copy_some(stream, memory_.half, memory_.common_half);
    moved_ = false;
  }

  /// The same for each bucket, when its weights are read next or when the round is joined: so the first layers can
  /// compute while later layers' results are still arriving.
  void adopt_by_bucket() {
    if (!has_own_weights()) return;
    for (const Bucket& bucket : parts_.buckets) adopts_[bucket.index] = 1;
    moved_ = false;
  }

  void keep(Stream& stream, const Bucket& bucket) {
    const Memory held = of_bucket(memory_.held, bucket), fresh = of_bucket(memory_.gradients, bucket);
    if (kept_) {
      stream.reduce(held, std::array{held, fresh});
    } else {
      stream.copy(held, fresh);
    }
  }

  /// This step's sums are sent in the round that ends the block.
  void carry(Stream& stream) {
    if (carried_) {
      stream.sum_up(memory_.carry, std::array{memory_.carry, sums_});
    } else {
      stream.sum_up(memory_.carry, std::array{sums_});
    }
    carried_ = true;
  }

  void take_carried(Stream& stream) {
    if (std::exchange(carried_, false)) stream.sum_up(sums_, std::array{memory_.carry, sums_});
  }

  BucketWork work_of(const Bucket& bucket, const Memory& contributions, const Memory& total) {
    BucketWork work;
    work.bucket = bucket;
    work.step = step_;
    work.first = std::exchange(first_, false);
    if (work.first) ++rounds_;
    work.update = rounds_;
    work.gradients = of_bucket(contributions, bucket);
    work.sums = sums_;
    work.total = total;
    work.squares = !rule_.scales_loss || rule_.clip_norm > 0;
    return work;
  }

  void exchange(Stream& stream, const Bucket& bucket, const Memory& contributions, const Memory& total) {
    BucketWork work = work_of(bucket, contributions, total);
    work.relieved = relieved_;
    work.mine = parts_of(bucket);
    if (!gathers_first(rule_)) {
      valid_[bucket.index] = parts_.communicator->reduce_update_gather(stream, work, rule_step(rule_, updates_));
      return;
    }
    measured_.push_back(parts_.communicator->gather_gradients(stream, work));
    gathered_.push_back(work);
  }

  /// Agrees on the verdict over all gathered buckets and on the norms of tensors, then updates.
  void conclude(Stream& stream) {
    if (gathered_.empty()) return;
    measured_.push_back(parts_.communicator->agree(stream, gathered_.front()));
    if (needs_tensor_norms(rule_.kind)) agree_on_norms(stream);
    measured_.clear();
    for (BucketWork& work : gathered_) {
      work.mine = parts_of(work.bucket);
      valid_[work.bucket.index] = parts_.communicator->update_gather(stream, work, rule_step(rule_, updates_));
    }
    gathered_.clear();
  }

  /// Each rank computes the squares of the parts of tensors that it owns. All ranks have the norms of whole tensors
  /// before the first weight changes, so if a rank dies in its update, another one can finish it.
  void agree_on_norms(Stream& stream) {
    const Memory& squares = memory_.mine.front().squares;
    if (squares.size_bytes == 0) return;
    for (const Point& point : measured_) stream.wait(point);
    stream.clear(squares);
    for (const BucketWork& work : gathered_) {
      for (const StripeMemory& part : parts_of(work.bucket)) {
        const std::uint64_t first = part.stripe.first - work.bucket.first;
        stream.add_update_squares(rule_step(rule_, updates_), part,
                                  elements(work.gradients, first, part.stripe.count, sizeof(float)), work.total);
      }
    }
    parts_.communicator->all_reduce(stream, squares);
  }

  /// What this rank updates of the bucket: its own part, unless it is relieved, and pieces of relieved ranks' parts.
  std::span<const StripeMemory> parts_of(const Bucket& bucket) {
    updated_.clear();
    if (relieved_.empty()) {
      updated_.push_back(common_part(memory_.mine, bucket, slots(), slots()));
      return updated_;
    }
    const Rank self = memory_.mine.front().stripe.owner;
    std::uint64_t journal = journals_before(bucket);
    for (const StripeMemory& theirs : memory_.stripes) {
      const Stripe part = common_part(theirs.stripe, bucket);
      if (part.count == 0) continue;
      // Counted even if this rank does not update the part: two buckets, which may be updated at the same time, never
      // share a journal.
      const std::uint64_t place = journal++;
      const Stripe piece = piece_of(part, self, memory_.stripes.size(), relieved_);
      if (piece.count == 0) continue;
      if (piece.owner == self) {
        updated_.push_back(common_part(memory_.mine, bucket, slots(), slots()));
        continue;
      }
      StripeMemory& taken = updated_.emplace_back(slice_of(theirs, piece, slots()));
      taken.no_decay = memory_.mine.front().no_decay;
      const std::uint64_t each = journal_bytes(slots());
      if (memory_.relief_journal.size_bytes != 0) taken.journal = slice(memory_.relief_journal, place * each, each);
    }
    return updated_;
  }

  std::uint64_t relief_journals() const {
    std::vector<Stripe> stripes;
    for (const StripeMemory& stripe : memory_.stripes) stripes.push_back(stripe.stripe);
    return relief_journal_bytes(stripes, parts_.buckets, slots());
  }

  /// The number of parts that earlier buckets and the stripes have in common.
  std::uint64_t journals_before(const Bucket& bucket) const noexcept {
    std::uint64_t parts = 0;
    for (const Bucket& before : parts_.buckets) {
      if (before.index >= bucket.index) continue;
      for (const StripeMemory& stripe : memory_.stripes) parts += common_part(stripe.stripe, before).count > 0 ? 1 : 0;
    }
    return parts;
  }

  void send_gradients(Stream& stream, const Bucket& bucket) {
    if (first_) take_carried(stream);
    const Memory fresh = of_bucket(memory_.gradients, bucket);
    if (kept_) stream.reduce(fresh, std::array{of_bucket(memory_.held, bucket), fresh});
    exchange(stream, bucket, memory_.gradients, total_);
  }

  /// Sends the gradients of a step that had to wait for the previous round; both rounds' sums become known with it.
  void send_all_gradients(Stream& stream) {
    for (const Bucket& bucket : parts_.buckets) exchange(stream, bucket, memory_.gradients, memory_.carry);
    conclude(stream);
    adapt_later(ScaleVerdict::common, memory_.carry, 1);
    join(stream);
    stream.sum_up(total_, std::array{total_, memory_.carry});
  }

  /// Sends the gradients from a copy, on the side stream, while the stream continues.
  void begin_round_behind(Stream& stream) {
    stream.copy(memory_.held, memory_.gradients);
    parts_.side->wait(stream.mark());
    for (const Bucket& bucket : parts_.buckets) exchange(*parts_.side, bucket, memory_.held, memory_.round_total);
    conclude(*parts_.side);
    join(*parts_.side);
    round_end_ = parts_.side->mark();
    in_progress_ = true;
  }

  void finish_previous(Stream& stream) {
    stream.wait(round_end_);
    stream.sum_up(total_, std::array{memory_.round_total});
    adapt_later(ScaleVerdict::common, memory_.round_total, 1);
    adapt_when_joined(stream);
    adopt(stream);
    in_progress_ = false;
  }

  /// Every rank gets all owners' parts of the state: the sum over the ranks, each with zeros where it is not the owner.
  void gather_state(Stream& stream) {
    join(stream);
    std::vector<Stripe> own;
    for (const StripeMemory& part : memory_.mine) own.push_back(part.stripe);
    std::sort(own.begin(), own.end(), [](const Stripe& one, const Stripe& other) { return one.first < other.first; });
    for (const Memory& state : memory_.state) {
      if (state.size_bytes == 0) continue;
      std::uint64_t done = 0;  // bytes
      const auto clear_until = [&](std::uint64_t end) {
        if (end > done) stream.clear(slice(state, done, end - done));
      };
      for (const Stripe& stripe : own) {
        if (stripe.count == 0) continue;
        clear_until(stripe.first * sizeof(float));
        done = (stripe.first + stripe.count) * sizeof(float);
      }
      clear_until(state.size_bytes);
      parts_.communicator->all_reduce(stream, state);
    }
    idle_updates_ = 0;  // the state is that of all owners, not this rank's
  }

  /// Another policy has another momentum, and sends values of another magnitude, so the outer state and the residual
  /// are cleared. They may still be in use by the last round; join() waits for that.
  void begin_policy(Stream& stream) {
    join(stream);
    if (memory_.residual.size_bytes != 0) stream.clear(memory_.residual);
    for (const StripeMemory& part : memory_.outer)
      if (part.state[0].size_bytes != 0) stream.clear(part.state[0]);
  }

  // The loss scale. Updates read what was left out, on streams of the communicator, until all buckets of a round are
  // valid. So the scale moves right then: when the next forward pass has acquired the last of them, before its loss.

  bool moves_scale() const noexcept { return memory_.loss_scale.size_bytes != 0; }

  void adapt_later(ScaleVerdict verdict, const Memory& sums, std::uint32_t updates) {
    if (moves_scale()) adapts_ = Adaptation{verdict, sums, updates};
  }

  void adapt_when_joined(Stream& stream) {
    if (!adapts_ || std::ranges::any_of(valid_, [](const Point& point) { return point.value != 0; })) return;
    adapt(stream, *std::exchange(adapts_, {}));
  }

  struct Adaptation {
    ScaleVerdict verdict{};
    Memory sums;
    std::uint32_t updates = 1;
    bool clears = false;  // what is left out is counted anew behind it
  };
  void adapt(Stream& stream, const Adaptation& by) {
    if (!moves_scale()) return;
    stream.adapt_loss_scale(memory_.loss_scale, parts_.scaling, by.verdict, by.sums, by.updates);
    if (by.clears) clear_left_out(stream);
  }

  void clear_left_out(Stream& stream) {
    constexpr std::uint64_t kPlace = offsetof(LossScale, left_out), kBytes = sizeof(LossScale::left_out);
    stream.clear(slice(memory_.loss_scale, offsetof(LossScaleState, now) + kPlace, kBytes));
    stream.clear(slice(memory_.loss_scale, offsetof(LossScaleState, agreed) + kPlace, kBytes));
  }

  /// Looks for a number in this rank's gradients that is not finite; the sums tell of it.
  void check_own(Stream& stream) {
    self_ = memory_.mine.front().stripe.owner;
    stream.reduce(memory_.gradients, std::array{memory_.gradients},
                  {sums_, 0, std::span{&self_, 1}, /*squares=*/false});
  }

  /// A shard takes what it gets, so what is not finite is replaced by nothing: no gradient of no samples.
  void leave_out_bad(Stream& stream) {
    check_own(stream);
    adapt(stream, {ScaleVerdict::common, sums_, 1});
    stream.leave_out_bad(memory_.gradients, sums_);
  }

  void clear_state(Stream& stream) {
    for (const Memory& state : memory_.state)
      if (state.size_bytes != 0) stream.clear(state);
    updates_ = idle_updates_ = 0;
    if (adapts_) adapts_->clears = true;
  }

  void update_locally(Stream& stream) {
    join(stream);
    StripeMemory own{.stripe = memory_.mine.front().stripe};
    own.stripe.first = 0;
    own.stripe.count = memory_.weights.size_bytes / sizeof(float);
    own.parameters = memory_.weights;
    own.half = memory_.half;
    own.copy_type = memory_.mine.front().copy_type;
    own.loss_scale = memory_.mine.front().loss_scale;
    own.state = memory_.state;
    own.no_decay = memory_.mine.front().no_decay;
    own.scaled = memory_.mine.front().scaled;
    own.squares = memory_.mine.front().squares;
    ++updates_;
    if (idle_) ++idle_updates_;
    const RuleStep rule = rule_step(rule_, std::max<std::uint64_t>(updates_ - idle_updates_, 1));
    if (rule_.scales_loss) check_own(stream);
    if (needs_tensor_norms(rule.kind) && own.squares.size_bytes != 0) {  // this rank has the whole of each tensor
      stream.clear(own.squares);
      stream.add_update_squares(rule, own, memory_.gradients, sums_);
    }
    stream.update(rule, updates_, own, std::array{memory_.gradients}, sums_);
    adapt(stream, {ScaleVerdict::own, sums_, 1});
    ++local_steps_;
    moved_ = true;
  }

  /// The local update has used the gradients, so the delta can be written in their place.
  void send_delta(Stream& stream) {
    take_carried(stream);
    stream.weighted_delta(memory_.gradients, memory_.common, memory_.weights, sums_);
    for (const Bucket& bucket : parts_.buckets) {
      BucketWork work = work_of(bucket, memory_.gradients, total_);
      const StripeMemory mine = common_part(memory_.outer, bucket, state_slots(actions_.outer), kMaxOuterSlots);
      work.mine = {&mine, 1};
      valid_[bucket.index] = parts_.communicator->reduce_update_gather(stream, work, rule_step(actions_.outer, 1));
    }
    adapt_later(ScaleVerdict::round, total_, std::exchange(local_steps_, 0));
  }

  ExchangeParts parts_;
  const ExchangeMemory memory_;
  Rule rule_;                          // with this step's rate
  std::vector<BucketWork> gathered_;   // of a step that gathers first, until its verdict is known
  std::vector<Point> measured_;        // likewise: the points at which these buckets' norms, and the verdict, are valid
  std::vector<Rank> relieved_;         // in this step
  std::vector<StripeMemory> updated_;  // by the present call
  std::uint64_t updates_;              // the same at all ranks
  std::uint64_t idle_updates_;         // which left this rank's own state as it was
  std::uint64_t rounds_ = 0;
  Step step_{};
  std::vector<Point> valid_;  // by bucket: the point when its weights are valid; value 0: already waited for
  bool shows_between_steps_ = false;
  std::vector<std::uint8_t> adopts_;  // by bucket: 1 if the published parameters must still be copied into the weights
  Memory sums_, total_;
  StepActions actions_;
  bool begun_ = false;
  bool idle_ = false;                 // this rank has no samples in this step
  bool first_ = false;                // no bucket of this step's round has been sent yet
  bool kept_ = false;                 // gradients of earlier steps are kept
  bool carried_ = false;              // sums of earlier steps are kept
  bool moved_ = false;                // this rank's weights differ from the common ones
  bool in_progress_ = false;          // a round runs on the side stream
  std::optional<Adaptation> adapts_;  // once all buckets are valid
  std::uint32_t local_steps_ = 0;     // since the last round
  Rank self_{};
  Point round_end_;
  std::atomic<bool> retired_{false};
};

}  // namespace

std::unique_ptr<Exchange> make_policy_exchange(ExchangeParts parts) {
  return std::make_unique<PolicyExchange>(std::move(parts));
}

}  // namespace troupe
