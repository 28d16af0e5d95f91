#include "actors/exchange/hosted_shard.hpp"

#include <caf/actor_system.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/exchange/stripe_read.hpp"
#include "actors/group/promise.hpp"
#include "actors/point_messenger.hpp"

namespace troupe {
namespace {

/// Keys of the sinks for pushes. The shard chooses them and tells each worker its key with an answer. They differ from
/// the keys that an application would use.
constexpr std::uint64_t kPushSinks = std::uint64_t{0x7368} << 48;

/// Invariants:
/// - A worker has at most one open read (reads_), since it sends its next message after the answer to the previous one.
///   If an answer is lost, the repeated message replaces the read.
/// - A sink is posted only together with an answer. The worker pushes again only when the answer is valid. Its previous
///   push has been applied by then, so no enqueued work still reads the sink's memory.
/// - deferred_ is ordered by point, and watch() keeps one message outstanding for the newest point. Otherwise an entry
///   could wait until another message arrives.
/// Not final: the inline actor derives from it.
class HostedShardActor : public HostedShard::base, public CallTaker {
 public:
  HostedShardActor(caf::actor_config& config, const std::shared_ptr<HostedStripe>& hosted, RemoteActors* remote)
      : HostedShard::base(config), hosted_(hosted), remote_(remote), messenger_(hosted_->parts().space) {}

  behavior_type make_behavior() override {
    end_with_own_errors(this);
    set_down_handler([this](const caf::down_msg& down) { lose(down.source); });
    return {[this](const JoinHosting& join) { return this->join(join); },
            [this](const LeaveHosting& leave) { this->leave(Rank{leave.worker}); },
            [this](const PullRequest& read) { return this->read(read); },
            [this](PushRequest& push) { return this->push(push); },
            [this](const CallMessage& message) {
              late_reads_.push_back(message);
              read_late();
            },
            [this](AskHosting) { return report(); },
            [this](const StartHosting& start) { this->start(start); },
            [this](const PauseHosting& pause) { this->pause(pause); },
            [this](const EndHosting& end) { this->end(end.why); },
            [this](const HostingReached& reached) { this->reached(reached.status); }};
  }

  void take(Call& call) noexcept override {
    StripeQuestion asked;
    if (const Status why = parse(call.question(), asked); !why.ok()) return call.fail(why);
    bool all_done = false;
    try {
      all_done = hosted_->collect_finished();
    } catch (const Error& error) {  // the stream's error, which watch() reports
      return call.fail(error.status());
    }
    if (!all_done) {
      return caf::anon_send(HostedShard{this},
                            CallMessage{{call.question().begin(), call.question().end()}, call.keep()});
    }
    const StripeAnswer head{hosted_->policy().progress().version()};
    const HostedParts& parts = hosted_->parts();
    std::memcpy(call.buffer().data(), &head, sizeof head);
    std::memcpy(call.buffer().data() + sizeof head,
                parts.space.address_of<float>(parts.stripe.parameters) + asked.first, asked.count * sizeof(float));
    call.answer(sizeof head + asked.count * sizeof(float));
  }

  void on_exit() override {
    reads_.clear();
    joiners_.clear();
    deferred_.clear();
    late_reads_.clear();
    if (remote_)
      for (const auto& [worker, sink] : sinks_) remote_->withdraw_sinks(sink.key);
  }

 private:
  struct Waiting {  // a read without an answer
    Promise<PullReply> answer;
    SinkKey into;
  };
  struct Joiner {  // of a phase that has not begun
    JoinHosting message;
    Promise<HostingJoined> answer;
  };
  struct Later {  // called when the stream has reached `at`
    Point at;
    std::function<void()> run;
  };
  struct Sink {
    SinkKey key;
    Memory memory;
    bool posted = false;
  };

  void start(const StartHosting& start) {
    if (!start.status.ok()) return quit(to_caf(start.status));
    hosted_->start(start.policy, start.elastic_alpha, start.samples, start.idle_pushes);
    phase_ = start.phase;
    paused_ = false;
    for (Joiner& joiner : std::exchange(joiners_, {})) admit(joiner);
  }

  void pause(const PauseHosting& pause) {
    if (!pause.status.ok()) return quit(to_caf(pause.status));
    paused_ = true;
    const auto signal = [this, pause] { hosted_->parts().space.timeline(pause.line).signal(pause.value); };
    deferred_.push_back({hosted_->enqueued(), signal});  // after the copies that were enqueued
    watch();
  }

  caf::result<HostingJoined> join(const JoinHosting& message) {
    if (ended_) return to_caf(*ended_);
    const auto from = caf::actor_cast<caf::actor_addr>(current_sender());  // making the promise clears current_sender()
    Joiner joiner{message, Promise<HostingJoined>(this)};
    if (from && homes_.insert_or_assign(from, Rank{message.worker}).second) monitor(from);
    if (message.phase > phase_)
      joiners_.push_back(joiner);
    else
      admit(joiner);
    return joiner.answer.later();
  }

  void admit(Joiner& joiner) {
    const Rank worker{joiner.message.worker};
    if (!hosted_->policy().progress().takes_part(worker)) {
      const HostedStripe::Outcome outcome = hosted_->join(worker);
      if (!outcome.wrong.ok()) return joiner.answer.fail(outcome.wrong);
      answer(outcome);
    }
    const HostedProgress& progress = hosted_->policy().progress();
    const Stripe& stripe = hosted_->parts().stripe.stripe;
    joiner.answer.deliver(HostingJoined{hosted_->parts().shard, progress.pushed(worker), progress.taken(worker),
                                        stripe.first, stripe.count});
  }

  /// The error for a worker that has not joined; ok if the shard hosts.
  Status idle() const {
    if (ended_) return *ended_;
    if (hosted_->started()) return {};
    return {Code::invalid, text("shard ", hosted_->parts().shard, " hosts nothing yet")};
  }

  void leave(Rank worker) {
    reads_.erase(worker);
    if (const auto sink = sinks_.find(worker); sink != sinks_.end() && std::exchange(sink->second.posted, false)) {
      remote_->withdraw_sinks(sink->second.key);
    }
    if (hosted_->started()) answer(hosted_->leave(worker));
    watch();
  }

  void lose(const caf::actor_addr& home) {
    if (auto found = homes_.extract(home)) leave(found.mapped());
  }

  caf::result<PullReply> read(const PullRequest& read) {
    if (const Status why = idle(); !why.ok()) return to_caf(why);
    const TraceSpan span(hosted_->parts().trace, "answer read");
    const Rank worker{read.worker};
    const Promise<PullReply> answer = wait_for(worker, read);
    handle(worker, hosted_->read({worker, read.clock, read.barrier}));
    return answer.later();
  }

  caf::result<PullReply> push(PushRequest& push) {
    if (const Status why = idle(); !why.ok()) return to_caf(why);
    const TraceSpan span(hosted_->parts().trace, "take push");
    const Rank worker{push.worker};
    const Promise<PullReply> answer = wait_for(worker, push.next);
    const bool own_memory = landed_in_sink(worker, push.values);
    HostedStripe::Outcome outcome = hosted_->push({worker, push.sequence, push.clock, push.base_version},
                                                  {push.sums, push.taken, push.computed, std::move(push.values)});
    if (own_memory) sinks_.at(worker).posted = false;
    const bool repeated = outcome.refused == Refusal::duplicate;  // the worker has not got the answer to the first one
    if (repeated) outcome.refused = Refusal::none;
    handle(worker, outcome);
    if (answer.pending() && (repeated || outcome.refused == Refusal::none) && outcome.wrong.ok())
      handle(worker, hosted_->read({worker, push.next.clock, push.next.barrier}));
    return answer.later();
  }

  Promise<PullReply> wait_for(Rank worker, const PullRequest& read) {
    Promise<PullReply> promise(this);
    reads_.insert_or_assign(worker, Waiting{promise, SinkKey{read.into}});
    return promise;
  }

  /// Answers all reads that can be answered now; if the message of `worker` was invalid, answers it with an error.
  void handle(Rank worker, const HostedStripe::Outcome& outcome) {
    Status wrong = outcome.wrong;
    if (outcome.refused != Refusal::none) {
      wrong = {Code::invalid, text("shard ", hosted_->parts().shard, " refuses what rank ", worker.value, " sent as ",
                                   name_of(outcome.refused))};
    }
    if (!wrong.ok()) {
      if (auto found = reads_.extract(worker)) found.mapped().answer.fail(wrong);
    }
    answer(outcome);
    watch();
  }

  void answer(const HostedStripe::Outcome& outcome) {
    for (const HostedStripe::Answer& one : outcome.answers) {
      auto found = reads_.extract(one.read.worker);
      if (!found) continue;
      const SinkKey into = found.mapped().into;
      found.mapped().answer.deliver(
          PullReply{hosted_->parts().shard, one.read.clock, one.read.version, one.read.content, one.total,
                    into.value == 0 ? one.values : one.values.into(into), sink_for(one.read.worker)});
    }
  }

  /// The sink for the worker's next push. The worker gets it with its answer, so its previous push has been applied by
  /// then.
  std::uint64_t sink_for(Rank worker) {
    if (remote_ == nullptr) return 0;
    auto [at, fresh] = sinks_.try_emplace(worker);
    Sink& sink = at->second;
    if (fresh) {
      sink.key = {kPushSinks | (std::uint64_t{id()} << 16 & 0xffffffff0000) | worker.value};
      sink.memory = hosted_->parts().arena.allocate(hosted_->parts().stripe.stripe.count * sizeof(float));
    }
    if (!sink.posted) remote_->post_sink(sink.key, sink.memory);
    sink.posted = true;
    return sink.key.value;
  }

  bool landed_in_sink(Rank worker, const Tensor& values) const {
    const auto found = sinks_.find(worker);
    const Memory memory = values.memory();
    return found != sinks_.end() && memory.size_bytes > 0 && memory.arena == found->second.memory.arena &&
           memory.offset == found->second.memory.offset;
  }

  /// Reads a question; returns why its elements cannot be read, or ok.
  Status parse(std::span<const std::byte> bytes, StripeQuestion& asked) const {
    if (bytes.size() != sizeof asked) return {Code::invalid, "a call to a shard that is not a StripeQuestion"};
    std::memcpy(&asked, bytes.data(), sizeof asked);
    const Stripe& stripe = hosted_->parts().stripe.stripe;
    if (asked.count > kMostReadElements || asked.first > stripe.count || stripe.count - asked.first < asked.count) {
      return {Code::invalid,
              text("a read of ", asked.count, " elements from ", asked.first, " of a stripe of ", stripe.count)};
    }
    if (paused_)
      return {Code::invalid,
              text("shard ", hosted_->parts().shard, " hosts nothing now: the devices update its stripe")};
    return idle();
  }

  static std::vector<std::byte> answer_of(const StripeAnswer& head, const std::byte* values, std::uint64_t count) {
    std::vector<std::byte> bytes(sizeof head + count * sizeof(float));
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, values, count * sizeof(float));
    return bytes;
  }

  /// Answers calls that could not be answered when they arrived, one after the other. If an update is in progress, the
  /// elements are copied after it into one small buffer.
  void read_late() {
    while (!reading_ && !late_reads_.empty()) {
      const CallMessage message = std::move(late_reads_.front());
      late_reads_.pop_front();
      StripeQuestion asked;
      if (const Status why = parse(message.question, asked); !why.ok()) {
        message.call.fail(why);
        continue;
      }
      const HostedParts& parts = hosted_->parts();
      const StripeAnswer head{hosted_->policy().progress().version()};
      if (hosted_->collect_finished()) {
        const Memory there = elements(parts.stripe.parameters, asked.first, asked.count, sizeof(float));
        message.call.answer(answer_of(head, parts.space.address(there), asked.count));
        continue;
      }
      if (read_buffer_.size_bytes == 0) read_buffer_ = parts.arena.allocate(kMostReadElements * sizeof(float));
      reading_ = true;
      hosted_->copy(asked.first, asked.count, slice(read_buffer_, 0, asked.count * sizeof(float)));
      deferred_.push_back({hosted_->enqueued(), [this, call = message.call, head, count = asked.count] {
                             reading_ = false;
                             call.answer(answer_of(head, hosted_->parts().space.address(read_buffer_), count));
                             read_late();
                           }});
      watch();
    }
  }

  HostingReport report() {
    if (!hosted_->started()) return {hosted_->parts().shard, 0, {}, {}, {}};
    const HostedProgress& progress = hosted_->policy().progress();
    const HostedPolicy& policy = hosted_->policy();
    return {hosted_->parts().shard, progress.version(), progress.version_vector(), policy.staleness(),
            std::string{policy.staleness_unit()}};
  }

  void end(const Status& why) {
    if (ended_) return;
    ended_ = why;
    for (auto& [worker, waiting] : reads_) waiting.answer.fail(why);
    for (Joiner& joiner : joiners_) joiner.answer.fail(why);
    reads_.clear();
    joiners_.clear();
  }

  /// Asks the stream for a message when its enqueued work is done. Thus a failure is noticed even if no other message
  /// arrives.
  void watch() {
    if (watching_) return;
    if (hosted_->enqueued().value == 0 || hosted_->collect_finished()) return run_deferred();
    watching_ = true;
    messenger_.send_at(hosted_->enqueued(), HostedShard{this}, HostingReached{});
  }

  void reached(const Status& status) {
    watching_ = false;
    if (!status.ok()) return quit(to_caf(status));
    hosted_->collect_finished();
    run_deferred();
    watch();
  }

  void run_deferred() {
    while (!deferred_.empty() && hosted_->reached(deferred_.front().at)) {
      const auto run = std::move(deferred_.front().run);
      deferred_.pop_front();
      run();
    }
  }

  const std::shared_ptr<HostedStripe> hosted_;
  RemoteActors* const remote_;
  PointMessenger<HostingReached, 1> messenger_;
  bool watching_ = false;
  std::optional<Status> ended_;
  std::uint64_t phase_ = 0;
  bool paused_ = false;  // the stripe is updated by the devices at present
  std::vector<Joiner> joiners_;
  std::map<Rank, Waiting> reads_;
  std::map<caf::actor_addr, Rank> homes_;
  std::map<Rank, Sink> sinks_;
  std::deque<Later> deferred_;  // in the order of their points
  std::deque<CallMessage> late_reads_;
  Memory read_buffer_;    // for the read in progress
  bool reading_ = false;  // a read is in progress
};

}  // namespace

HostedShard spawn_hosted_shard(caf::actor_system& system, HostedParts parts, RemoteActors* remote, bool runs_inline) {
  TROUPE_CHECK(remote != nullptr || !runs_inline, Code::invalid, "shard ", parts.shard,
               " cannot run inline without remote actors, on whose lane it would");
  const auto hosted = std::make_shared<HostedStripe>(std::move(parts));
  if (runs_inline) return remote->spawn_inline<HostedShardActor>(hosted, remote);
  return system.spawn<HostedShardActor>(hosted, remote);
}

}  // namespace troupe
