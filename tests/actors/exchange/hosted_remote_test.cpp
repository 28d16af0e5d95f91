// A hosted group whose ranks are in processes without shared memory: pushed and pulled values are sent, and stored in
// memory that the receiver has chosen.

#include <gtest/gtest.h>

#include <caf/scoped_actor.hpp>

#include "actors/exchange/hosted_exchange.hpp"
#include "devices/reference/reference_device.hpp"
#include "tests/contracts/communicator_contract.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::test {
namespace {

using contracts::GroupSpec;
using contracts::SerialRun;

constexpr auto kLong = std::chrono::seconds(20);
constexpr std::uint64_t kSteps = 5;

struct Config final : caf::actor_system_config {
  Config() {
    configure_remote(*this);
    configure_exchange(*this);
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", std::size_t{1});
    set("logger.verbosity", caf::atom("quiet"));
  }
};

/// One process: a rank, and the shard of its stripe.
class End {
 public:
  End(const GroupSpec& spec, std::uint32_t rank, LoopbackNetwork& network)
      : spec_(spec), rank_(rank), arena_(Arena::create(arena_id(Peer{rank}, 1), 4 << 20)) {
    space_.map(arena_);
    transport_ = network.endpoint(Peer{rank}, space_);
    control_ = std::make_unique<LaneLoop>(*transport_, Lane::control, LaneOptions{}, "control");
    bulk_ = std::make_unique<LaneLoop>(*transport_, Lane::bulk, LaneOptions{}, "bulk");
    remote_ = std::make_unique<RemoteActors>(system_, space_, *control_, *bulk_, Peer{rank},
                                             RemoteOptions{.landing_bytes = 4 << 20, .sending_bytes = 4 << 20});
  }
  ~End() {
    exchange_.reset();
    remote_->stop(blocking_, Deadline::after(kLong));
    caf::scoped_actor self(system_);
    self->send_exit(worker_, caf::exit_reason::user_shutdown);
    self->send_exit(shard_, caf::exit_reason::user_shutdown);
    self->wait_for(worker_, shard_);
    worker_ = HostedWorkerActor{};
    shard_ = HostedShard{};
    control_.reset();
    bulk_.reset();
    transport_.reset();
    remote_.reset();
    system_.await_actors_before_shutdown(false);
  }

  void meet(End& other) {
    remote_->add_peer(Peer{other.rank_}, other.remote_->identity());
    transport_->connect(Peer{other.rank_}, other.transport_->address());
  }
  void host(bool runs_inline) {
    control_->start();
    bulk_->start();
    const Stripe& stripe = spec_.stripes[rank_];
    HostedParts parts{.stream = *shard_stream_, .space = space_, .arena = *arena_, .shard = rank_};
    parts.rule = spec_.rule;
    parts.stripe.stripe = stripe;
    const std::vector<float> start = SerialRun{spec_}.parameters;
    parts.stripe.parameters = put({start.begin() + static_cast<std::ptrdiff_t>(stripe.first),
                                   start.begin() + static_cast<std::ptrdiff_t>(stripe.first + stripe.count)});
    for (std::size_t s = 0; s < state_slots(spec_.rule.kind); ++s)
      parts.stripe.state[s] = arena_->allocate(stripe.count * sizeof(float));
    mine_ = parts.stripe;
    shard_ = spawn_hosted_shard(system_, std::move(parts), remote_.get(), runs_inline);
    remote_->publish("shard", shard_);
  }
  void work() {
    std::vector<HostedShard> shards;
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      const caf::actor found = remote_->resolve(blocking_, Peer{r}, "shard", Deadline::after(kLong));
      shards.push_back(caf::actor_cast<HostedShard>(found));
    }
    gradients_ = arena_->allocate(spec_.elements * sizeof(float));
    weights_ = arena_->allocate(spec_.elements * sizeof(float));
    const TimelineId line = space_.make_private_timeline();
    worker_ = spawn_hosted_worker(system_, {Rank{rank_}, *side_, space_, line, weights_, remote_.get(), kLong});
    caf::anon_send(worker_, SetShards{std::move(shards)});
    HostedExchangeParts parts{.space = space_, .worker = worker_, .line = line, .self = Rank{rank_}};
    parts.ranks = spec_.ranks;
    parts.memory = {.gradients = gradients_, .weights = weights_, .landing = weights_};
    parts.shard = shard_;
    parts.mine = mine_;
    hosted_ = hosted_exchange(std::move(parts));
    const std::vector<PolicyPhase> phases{{.policy = {.kind = PolicyKind::ssp, .staleness = 0}}};
    ExchangeMemory memory{.gradients = gradients_, .mine = {mine_}};
    memory.weights = weights_;
    exchange_ = make_policy_exchange({.rule = spec_.rule,
                                      .policy = std::make_unique<PolicySequence>(phases, spec_.ranks),
                                      .buckets = spec_.buckets,
                                      .memory = std::move(memory),
                                      .hosted = hosted_.get()});
    for (std::uint64_t step = 0; step < kSteps; ++step) enqueue(step);
    end_ = stream_->mark();
  }
  Status finish() {
    return space_.timeline(end_.line).wait(blocking_, end_.value, Deadline::after(kLong), "the last step of a rank");
  }
  std::vector<float> weights_after(std::uint64_t step) const {
    const float* at = space_.address_of<float>(seen_[step]);
    return {at, at + spec_.elements};
  }
  StepSums total_of(std::uint64_t step) const { return *space_.address_of<StepSums>(totals_[step]); }
  RemoteActors& remote() { return *remote_; }
  const HostedShard& shard() const { return shard_; }
  caf::actor_system& system() { return system_; }

 private:
  Memory put(const std::vector<float>& values) {
    const Memory memory = arena_->allocate(std::max<std::uint64_t>(64, values.size() * sizeof(float)));
    std::copy(values.begin(), values.end(), space_.address_of<float>(memory));
    return slice(memory, 0, values.size() * sizeof(float));
  }
  void enqueue(std::uint64_t step) {
    const Memory sums = arena_->allocate(sizeof(StepSums));
    *space_.address_of<StepSums>(sums) = SerialRun::sums(spec_, rank_, step);
    totals_.push_back(arena_->allocate(sizeof(StepSums)));
    exchange_->begin(*stream_, {.step = Step{step}, .samples = spec_.ranks}, sums, totals_.back());
    stream_->copy(gradients_, put(SerialRun::gradients(spec_, rank_, step)));
    for (const Bucket& bucket : spec_.buckets) exchange_->contribute(*stream_, bucket);
    exchange_->commit(*stream_);
    seen_.push_back(arena_->allocate(weights_.size_bytes));
    stream_->copy(seen_.back(), weights_);
  }

  const GroupSpec spec_;
  const std::uint32_t rank_;
  Blocking blocking_ = Blocking::on_thread("test");
  AddressSpace space_;
  std::shared_ptr<Arena> arena_;
  Config config_;
  caf::actor_system system_{config_};
  std::unique_ptr<Device> device_ = make_reference_device(space_);
  std::unique_ptr<Stream> shard_stream_ = device_->stream(), side_ = device_->stream();
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<LaneLoop> control_, bulk_;
  std::unique_ptr<RemoteActors> remote_;
  HostedShard shard_;
  HostedWorkerActor worker_;
  StripeMemory mine_;
  std::unique_ptr<HostedExchange> hosted_;
  std::unique_ptr<Exchange> exchange_;
  Memory gradients_, weights_;
  std::vector<Memory> seen_, totals_;
  Point end_;
  std::unique_ptr<Stream> stream_ = device_->stream();  // ends first: it may be in the middle of something
};

/// Groups without empty stripes; another test checks the copy in half precision.
GroupSpec spec_of(std::uint64_t seed) {
  GroupSpec spec = contracts::random_group(2, seed);
  spec.half = false;
  const std::uint64_t middle = std::max<std::uint64_t>(16, spec.elements / 32 * 16);
  spec.elements = std::max<std::uint64_t>(spec.elements, 32);
  spec.stripes[0] = {GroupId{}, Rank{0}, 0, middle};
  spec.stripes[1] = {GroupId{}, Rank{1}, middle, spec.elements - middle};
  spec.buckets = {{GroupId{}, 0, 0, spec.elements}};
  return spec;
}

class HostedProcesses : public ::testing::TestWithParam<bool> {};

TEST_P(HostedProcesses, GiveTheBitsOfASerialRunInEveryStep) {
  for (std::uint64_t seed = 60; seed < 66 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(text("seed ", seed));
    const GroupSpec spec = spec_of(seed);
    LoopbackNetwork network;
    End one{spec, 0, network}, other{spec, 1, network};
    one.meet(other);
    other.meet(one);
    for (End* end : {&one, &other}) end->host(GetParam());
    for (End* end : {&one, &other}) end->work();
    SerialRun serial{spec};
    for (End* end : {&one, &other}) {
      const Status status = end->finish();
      ASSERT_TRUE(status.ok()) << status.text();
    }
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      serial.take_step(step);
      for (End* end : {&one, &other}) {
        ASSERT_EQ(end->weights_after(step), serial.parameters) << "step " << step;
        ASSERT_EQ(end->total_of(step).samples, serial.total.samples);
        ASSERT_EQ(end->total_of(step).loss, serial.total.loss);
        ASSERT_EQ(end->total_of(step).stop_requests, serial.total.stop_requests);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, HostedProcesses, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Inline" : "Scheduled"; });

}  // namespace
}  // namespace troupe::test
