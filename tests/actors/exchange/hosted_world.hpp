#pragma once

#include <caf/scoped_actor.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/exchange/hosted_exchange.hpp"
#include "devices/fake/fake_device.hpp"
#include "devices/reference/reference_device.hpp"
#include "runtime/exchange/policies/hosted.hpp"
#include "tests/contracts/communicator_contract.hpp"
#include "tests/support/actor_world.hpp"

// Ranks of a hosted group in one process: each with a device, memory of its own, a worker, and a shard that hosts its
// stripe.
namespace troupe::test {

/// An actor system with threads.
struct ThreadedActors {
  struct Config : caf::actor_system_config {
    Config() {
      set("scheduler.policy", caf::atom("sharing"));
      set("scheduler.max-threads", std::size_t{2});
      set("logger.verbosity", caf::atom("quiet"));
    }
  };
  caf::actor_system& system() { return system_; }
  void run() { std::this_thread::yield(); }

 private:
  Config config_;
  caf::actor_system system_{config_};
};

struct HostedOptions {
  PolicySettings settings{.kind = PolicyKind::ssp, .staleness = 0};
  std::uint64_t updates = 0;  // made before, by version and clock
};

/// `Actors` is ActorWorld with fake devices, and ThreadedActors with others.
template <class Actors>
class HostedWorld final : public contracts::CommunicatorWorld {
 public:
  using MakeDevice = std::function<std::unique_ptr<Device>(AddressSpace&, std::uint32_t rank)>;

  HostedWorld(const contracts::GroupSpec& spec, const MakeDevice& make_device) : spec_(spec) {
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      arenas_.push_back(Arena::create(arena_id(Peer{r}, 1), 2 * contracts::kTestBytes));
      space_.map(arenas_[r]);
    }
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      Arena& arena = *arenas_[r];
      contracts::RankView view{.space = &space_};
      view.parameters = arena.allocate(spec.elements * sizeof(float));
      view.half = spec.half ? arena.allocate(spec.elements * size_bytes(DType::bf16)) : Memory{};
      contracts::allocate_rank(spec, r, arena, view);
      view.mine.parameters =
          spec.stripes[r].count > 0 ? arena.allocate(spec.stripes[r].count * sizeof(float)) : Memory{};
      view.mine.half = spec.half ? arena.allocate(spec.stripes[r].count * size_bytes(DType::bf16)) : Memory{};
      view.mine.journal = {};
      devices_.push_back(make_device(space_, r));
      view.copies =
          std::make_shared<HostCopies>(*devices_[r], space_, arena_id(Peer{r}, 3), std::chrono::milliseconds{30000});
      streams_.push_back(devices_[r]->stream());
      sides_.push_back(devices_[r]->stream());
      shard_streams_.push_back(devices_[r]->stream());
      view.stream = streams_[r].get();
      views_.push_back(view);
    }
  }
  ~HostedWorld() override {
    {
      caf::scoped_actor self(actors_.system());
      const auto end = [&](auto& all) {
        for (const auto& one : all) self->send_exit(one, caf::exit_reason::user_shutdown);
        actors_.run();
        for (const auto& one : all) self->wait_for(one);
        all.clear();
      };
      end(shards_);
      end(workers_);
    }
    // Streams first: their threads may still be working.
    streams_.clear();
    sides_.clear();
    shard_streams_.clear();
    devices_.clear();
  }

  contracts::RankView& rank(std::uint32_t rank) override { return views_.at(rank); }
  void drive() override {
    actors_.run();
    bool driven = false;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const std::uint64_t pick = random_below(spec_.seed, draws_++, devices_.size());
      if (auto* fake = dynamic_cast<FakeDevice*>(devices_[pick].get())) driven |= fake->run_one();
    }
    if (!driven) std::this_thread::yield();
  }

  /// Spawns shards and workers.
  void host(const HostedOptions& options) {
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      if (spec_.stripes[r].count == 0) continue;
      const contracts::RankView& view = views_[r];
      HostedParts parts{.stream = *shard_streams_[r], .space = space_, .arena = *arenas_[r]};
      parts.shard = static_cast<std::uint32_t>(shards_.size());
      parts.stripe = view.mine;
      parts.rule = spec_.rule;
      parts.log =
          [log = logs_.emplace_back(std::make_unique<UpdateLog>()).get()](std::span<const AppliedRecord> records) {
            log->insert(log->end(), records.begin(), records.end());
          };
      shards_.push_back(spawn_hosted_shard(actors_.system(), std::move(parts)));
      owners_.push_back(r);
    }
    const bool elastic = options.settings.kind == PolicyKind::easgd;
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      const contracts::RankView& view = views_[r];
      HostedMemory& memory = memories_.emplace_back();
      memory = {.gradients = view.gradients, .weights = view.parameters, .half = view.half, .landing = view.parameters};
      if (elastic || spec_.half) {
        memory.landing = arenas_[r]->allocate(spec_.elements * sizeof(float));
        memory.one = arenas_[r]->allocate(sizeof(StepSums));
      }
      if (elastic) {
        memory.held = arenas_[r]->allocate(spec_.elements * sizeof(float));
        for (std::size_t s = 0; s < state_slots(spec_.rule.kind); ++s)
          memory.state[s] = arenas_[r]->allocate(spec_.elements * sizeof(float));
      }
      lines_.push_back(space_.make_private_timeline());
      workers_.push_back(
          spawn_hosted_worker(actors_.system(), {Rank{r}, *sides_[r], space_, lines_[r], memory.landing}));
      caf::anon_send(workers_.back(), SetShards{shards_});
    }
  }
  /// Copies the ranks' parameters into the shards' stripes. Call it before the first step.
  void start() {
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      const Stripe& stripe = spec_.stripes[r];
      const Memory from = slice(views_[r].parameters, stripe.first * sizeof(float), stripe.count * sizeof(float));
      if (stripe.count > 0)
        std::memcpy(space_.address(views_[r].mine.parameters), space_.address(from), from.size_bytes);
    }
  }
  std::unique_ptr<Exchange> exchange(std::uint32_t r, const HostedOptions& options) {
    HostedExchangeParts hosted{.space = space_,
                               .worker = workers_[r],
                               .line = lines_[r],
                               .self = Rank{r},
                               .ranks = spec_.ranks,
                               .memory = memories_[r],
                               .shard = {},
                               .mine = views_[r].mine};
    for (std::size_t s = 0; s < shards_.size(); ++s)
      if (owners_[s] == r) hosted.shard = shards_[s];
    ExchangeMemory memory{.gradients = views_[r].gradients, .mine = {views_[r].mine}};
    memory.weights = memories_[r].weights;
    const std::vector<PolicyPhase> phases{{.policy = options.settings}};
    return make_policy_exchange({.rule = spec_.rule,
                                 .policy = std::make_unique<PolicySequence>(phases, spec_.ranks),
                                 .buckets = spec_.buckets,
                                 .memory = std::move(memory),
                                 .hosted = exchanges_.emplace_back(hosted_exchange(std::move(hosted))).get(),
                                 .updates = options.updates});
  }

  Actors& actors() { return actors_; }
  AddressSpace& space() { return space_; }
  const std::vector<HostedShard>& shards() const { return shards_; }
  const std::vector<HostedWorkerActor>& workers() const { return workers_; }
  /// The log of a shard.
  const UpdateLog& log(std::size_t shard) const { return *logs_.at(shard); }
  /// The rank whose process hosts it.
  std::uint32_t owner(std::size_t shard) const { return owners_.at(shard); }

 private:
  const contracts::GroupSpec spec_;
  AddressSpace space_;
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::vector<contracts::RankView> views_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Stream>> shard_streams_, sides_, streams_;
  std::vector<std::unique_ptr<UpdateLog>> logs_;
  Actors actors_;
  std::vector<HostedMemory> memories_;
  std::vector<TimelineId> lines_;
  std::vector<std::unique_ptr<HostedExchange>> exchanges_;
  std::vector<HostedShard> shards_;
  std::vector<HostedWorkerActor> workers_;
  std::vector<std::uint32_t> owners_;  // by shard
  std::uint64_t draws_ = 0;
};

inline std::unique_ptr<Device> fake_device_of(std::uint64_t seed, AddressSpace& space, std::uint32_t rank) {
  return std::make_unique<FakeDevice>(space, FakeOptions{.seed = sub_key(seed, rank), .delay_one_in = 4});
}

}  // namespace troupe::test
