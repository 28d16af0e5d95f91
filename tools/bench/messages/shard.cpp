#include <caf/event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "actors/exchange/hosted_shard.hpp"
#include "actors/exchange/stripe_read.hpp"
#include "devices/reference/reference_device.hpp"
#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/hosted.hpp"
#include "tools/bench/messages/actors.hpp"

// A shard that hosts a stripe, and a worker that pushes to it and pulls from it, or reads a few of its elements.
namespace troupe::bench {
namespace {

constexpr SinkKey kPulled{1};

/// A worker's rounds: each pushes and then pulls the whole stripe. There are no samples, so nothing is computed.
struct Rounds {
  HostedShard shard;
  Tensor values;
  Memory landing;
  RemoteActors* remote = nullptr;
  RoundTrips trips;
  std::uint64_t round = 0;
  std::uint64_t sink_there = 0;
  std::uint64_t in_place = 0;  // pulls that were stored in `landing`
  Finish finish;
};

template <class Question, class Answered>
void ask(caf::event_based_actor* self, const HostedShard& shard, Question question, Answered answered) {
  self->request(shard, std::chrono::seconds(10), std::move(question)).then(answered, [self](const caf::error& error) {
    self->quit(error);
  });
}

void push_and_pull(caf::event_based_actor* self, const std::shared_ptr<Rounds>& rounds) {
  Rounds& r = *rounds;
  r.remote->post_sink(kPulled, r.landing);
  PushRequest push{.sequence = r.round + 1, .clock = r.round, .base_version = r.round};
  push.values = r.values.into({r.sink_there});
  push.next = {.clock = ++r.round, .into = kPulled.value};
  ask(self, r.shard, std::move(push), [=](const PullReply& pulled) {
    Rounds& r = *rounds;
    r.sink_there = pulled.sink;
    if (pulled.values.memory() == r.landing)
      ++r.in_place;
    else
      r.remote->withdraw_sinks(kPulled);
    if (r.trips.again()) return push_and_pull(self, rounds);
    r.finish.tell();
  });
}

caf::behavior worker(caf::event_based_actor* self, const std::shared_ptr<Rounds>& rounds) {
  return {[=](Go) {
    ask(self, rounds->shard, JoinHosting{}, [=](const HostingJoined&) {
      rounds->trips.begin();
      push_and_pull(self, rounds);
    });
  }};
}

Figures measure_rounds(Blocking& blocking, PairSide& side, const EndCase& what, const HostedShard& shard,
                       Clock::duration patience) {
  const auto rounds = std::make_shared<Rounds>(Rounds{.shard = shard,
                                                      .values = side.tensor(),
                                                      .landing = side.arena().allocate(what.bytes),
                                                      .remote = &side.remote(),
                                                      .trips = RoundTrips(what)});
  const Ending near(side.stage().spawn(worker, rounds));
  caf::anon_send(near.get(), Go::value);
  rounds->finish.wait(blocking, patience);
  TROUPE_CHECK(rounds->in_place + 1 >= rounds->round, Code::corrupt, "only ", rounds->in_place, " of ", rounds->round,
               " pulls landed where the worker said");
  const auto* pushed = side.space().address_of<const float>(rounds->landing);
  TROUPE_CHECK(pushed[0] == 1.0F, Code::corrupt, "the shard's parameters are ", pushed[0], " instead of 1");
  return rounds->trips.figures();
}

/// Reads of a few elements, one after the other, on the control lane. A read has no time limit, which would take longer
/// than the read itself; the thread that waits for all of them has one.
class Reads final : public StripeRead {
 public:
  Reads(RemoteActors& remote, const HostedShard& shard, const EndCase& what)
      : StripeRead(remote, shard), elements_(what.bytes / sizeof(float)), trips_(what) {}

  /// It keeps itself alive until the last read has ended, even if the waiting thread has given up.
  void begin(std::shared_ptr<Reads> itself) {
    itself_ = std::move(itself);
    trips_.begin();
    start(0, elements_);
  }
  void wait(Blocking& blocking, Clock::duration patience) {
    finish_.wait(blocking, patience);
    TROUPE_CHECK(wrong_.ok(), wrong_.code(), wrong_.text());
  }
  const RoundTrips& trips() const noexcept { return trips_; }

 private:
  void read(const Status& status, std::uint64_t, std::span<const float> values) noexcept override {
    wrong_ = status;
    if (wrong_.ok() && values.back() != 1.0F) wrong_ = {Code::corrupt, "a read has another value than the stripe"};
    if (wrong_.ok() && trips_.again()) return start(0, elements_);
    const auto itself = std::move(itself_);
    finish_.tell();
  }

  std::shared_ptr<Reads> itself_;
  const std::uint64_t elements_;
  RoundTrips trips_;
  Status wrong_;
  Finish finish_;
};

Figures measure_reads(Blocking& blocking, PairSide& side, const EndCase& what, const HostedShard& shard,
                      Clock::duration patience) {
  const auto reads = std::make_shared<Reads>(side.remote(), shard, what);
  reads->begin(reads);
  reads->wait(blocking, patience);
  return reads->trips().figures();
}

}  // namespace

Figures run_shard(Blocking& blocking, const EndCase& what, Line& line) {
  PairSide side(blocking, what);
  Figures figures;
  if (what.client) {
    const auto shard = caf::actor_cast<HostedShard>(
        side.remote().resolve(blocking, PairSide::kServer, "shard", Deadline::after(line.patience())));
    const auto measure = what.bytes <= kMostReadElements * sizeof(float) ? measure_reads : measure_rounds;
    figures = measure(blocking, side, what, shard, line.patience());
    side.end(blocking, line);
    return figures;
  }
  const auto device = make_reference_device(side.space());
  const auto stream = device->stream();
  HostedParts parts{.stream = *stream, .space = side.space(), .arena = side.arena()};
  parts.rule.kind = RuleKind::sgd;
  parts.stripe.stripe.count = what.bytes / sizeof(float);
  parts.stripe.parameters = side.arena().allocate(what.bytes);
  std::fill_n(side.space().address_of<float>(parts.stripe.parameters), parts.stripe.stripe.count, 1.0F);
  const HostedShard shard =
      spawn_hosted_shard(side.stage().system, std::move(parts), &side.remote(), /*runs_inline=*/true);
  caf::anon_send(shard, StartHosting{.policy = make_plain_hosted_policy({.kind = PolicyKind::ssp, .staleness = 0}, 1)});
  const Ending ending(caf::actor_cast<caf::actor>(shard));
  side.publish("shard", shard);
  side.end(blocking, line);
  return figures;
}

}  // namespace troupe::bench
