#include "tools/bench/bare.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "apps/session/exchange_groups.hpp"
#include "apps/session/gathered_places.hpp"
#include "apps/session/joined_job.hpp"
#include "devices/cpu/cpu_device.hpp"
#include "runtime/base/thread_affinity.hpp"
#include "runtime/data/batch_cursor.hpp"
#include "runtime/planning/planner.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::bench {
namespace {

constexpr ViewId kView{1};
constexpr std::chrono::seconds kPatience{60};

class BareRank {
 public:
  BareRank(Blocking& blocking, const SessionOptions& options)
      : settings_(options.configuration.settings),
        deadline_(Deadline::after(kPatience)),
        job_(join_job(blocking, options, deadline_, nullptr)),
        affinity_(job_.mine().cpus),
        schedule_(job_.schedule(settings_, {})),
        ledger_(schedule_),
        cursor_(schedule_, job_.self(), job_.batch.rows()),
        order_(job_.data.train->count_samples(), job_.plan.seed) {
    const std::vector<PolicyPhase>& policies = job_.plan.groups.front().policies;
    TROUPE_CHECK(job_.plan.is_in_one_arena() && job_.plan.groups.size() == 1 && !job_.plan.measured &&
                     policies.size() == 1 && policies.front().policy.kind == PolicyKind::sync &&
                     settings_.evaluate.every_epochs == 0,
                 Code::unsupported,
                 "--bare is for ranks of one node, one group with update.policy = \"sync\", an equal split and no "
                 "evaluation; leave other settings out");
    space_.may_spin(job_.mine().may_spin);
    make_memory(blocking);
    fill_parameters();
    make_device();
    if (job_.bootstrap) job_.bootstrap->all_gather(blocking, "ready", {}, deadline_);
  }
  ~BareRank() { communicator_->abort({Code::aborted, "the run is over"}); }

  StepClock run(Blocking& blocking, double seconds) {
    const Deadline end = Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
    const std::uint64_t ahead = std::min<std::uint64_t>(kStepsAhead, slots_.size());
    StepClock clock{job_.mine().device_threads};
    std::vector<Point> committed;
    for (std::uint64_t step = 0;; ++step) {
      if (step >= ahead) {
        const Step done{step - ahead};
        wait(blocking, committed[done.value]);
        const StepSums total = exchange_->total(done);
        clock.note(total.samples);
        if (total.stop_requests > 0) break;  // all ranks see it after the same step
      }
      committed.push_back(enqueue({step}, end.passed()));
    }
    for (const Point point : committed) wait(blocking, point);
    return clock;
  }

  /// Microseconds that a step's products take, repeated for `span`. A whole step must have run before.
  double run_products(Blocking& blocking, Clock::duration span) {
    if (!ran_) wait(blocking, enqueue({0}, false));
    const auto begun = Clock::now();
    const Deadline end = Deadline::after(span);
    std::uint64_t steps = 0;
    while (!end.passed()) {
      for (std::uint64_t ahead = 0; ahead < kStepsAhead; ++ahead, ++steps)
        enqueue_products(*replica_, *stream_, slots_.front(), sums_of_step_);
      wait(blocking, stream_->mark());
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begun).count() / static_cast<double>(steps);
  }

 private:
  void make_memory(Blocking& blocking) {
    arena_ = Arena::create(arena_id({job_.self().value}, 1), job_.mine().arena_bytes);
    space_.map(arena_);
    RankStore store(*arena_);
    memory_ = allocate_rank_memory(store, job_.plan, job_.self());
    for (std::uint64_t slot = 0; slot < job_.plan.prefetch; ++slot)
      slots_.push_back(arena_->allocate(job_.batch.size_bytes()));
    arenas_ = {arena_->id()};
    const GatheredPlace mine{.plan_hash = job_.plan.hash(), .arena = arena_->ticket(), .start = {}};
    if (job_.bootstrap) {
      arenas_.clear();
      for (const auto& blob : job_.bootstrap->all_gather(blocking, "places", encode(mine), deadline_)) {
        const ArenaTicket ticket = decode_place(blob).arena;
        if (ticket.id != arena_->id()) space_.map(Arena::open(ticket));
        arenas_.push_back(ticket.id);
      }
    }
    join_node_memory(memory_, job_.plan, space_.arena(arenas_[job_.plan.nodes[job_.mine().node].leader]));
  }

  void fill_parameters() {
    if (job_.plan.nodes[job_.mine().node].leader != job_.self().value) return;
    const std::uint64_t count = job_.layout.count_elements();
    float* parameters = space_.address_of<float>(memory_.parameters);
    fill_initial(job_.graph, job_.layout, job_.plan.seed, {parameters, count});
    if (memory_.half.size_bytes == 0) return;
    auto* half = space_.address_of<std::uint16_t>(memory_.half);
    std::transform(parameters, parameters + count, half, to_bf16);
  }

  void make_device() {
    const RankPlan& mine = job_.mine();
    const GroupPlan& group = job_.plan.groups.front();
    device_ = make_cpu_device(space_, {.cpus = mine.cpus,
                                       .threads = mine.device_threads,
                                       .may_spin = mine.may_spin,
                                       .wait_deadline = settings_.faults.exchange});
    replica_ = device_->compile(job_.graph, job_.layout, job_.batch, job_.buckets(), memory_.replica);
    stream_ = device_->stream();
    ArenaGroup members = arena_group(space_, job_.plan, group, arenas_, job_.self());
    members.rank = job_.self();
    communicator_ = std::make_unique<ArenaCommunicator>(space_, std::move(members));
    lent_ = make_policy_exchange({.communicator = communicator_.get(),
                                  .rule = settings_.rule,
                                  .policy = std::make_unique<PolicySequence>(group.policies, job_.plan.world_size()),
                                  .buckets = group.buckets,
                                  .memory = memory_.groups.front().own});
    exchange_ = std::make_unique<StepExchange>(kView, space_, memory_.sums, memory_.totals,
                                               std::vector<Exchange*>{lent_.get()}, group.buckets.size());
  }

  Point enqueue(Step step, bool stop) {
    const Memory slot = slots_[step.value % slots_.size()];
    const BatchHead head = cursor_.next(ledger_, order_, samples_);
    fill_now(*job_.data.train, {samples_, job_.plan.seed, &job_.batch, space_.address(slot)});
    const StepFacts facts{
        .step = step, .samples_before = schedule_.samples_before(step), .samples = schedule_.global_rows(step)};
    ran_ = true;
    sums_of_step_ = exchange_->begin(*stream_, facts, {.stop = stop, .rank = job_.self()});
    replica_->step(*stream_, slot, head.rows, sums_of_step_, *exchange_);
    return exchange_->commit(*stream_);
  }

  void wait(Blocking& blocking, Point point) {
    const Status status =
        space_.timeline(point.line).wait(blocking, point.value, Deadline::after(kPatience), "a step's end");
    TROUPE_CHECK(status.ok(), status.code(), status.text());
  }

  const Settings settings_;
  const Deadline deadline_;
  JoinedJob job_;
  ThreadAffinity affinity_;
  const Schedule schedule_;
  const SampleLedger ledger_;
  BatchCursor cursor_;
  SampleOrder order_;
  std::vector<Sample> samples_;
  AddressSpace space_;
  std::shared_ptr<Arena> arena_;
  RankMemory memory_;
  std::vector<Memory> slots_;
  std::vector<ArenaId> arenas_;
  std::unique_ptr<ArenaCommunicator> communicator_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Exchange> lent_;
  std::unique_ptr<StepExchange> exchange_;
  bool ran_ = false;     // a step has run
  Memory sums_of_step_;  // of the last step
};

}  // namespace

StepClock run_bare(Blocking& blocking, const SessionOptions& options, double seconds) {
  return BareRank{blocking, options}.run(blocking, seconds);
}

std::vector<double> run_products(Blocking& blocking, const SessionOptions& options, double seconds) {
  BareRank rank{blocking, options};
  rank.run_products(blocking, std::chrono::milliseconds(300));
  const std::chrono::duration<double> window{seconds / StepClock::kWindows};
  std::vector<double> us;
  for (std::size_t w = 0; w < StepClock::kWindows; ++w)
    us.push_back(std::round(rank.run_products(blocking, std::chrono::duration_cast<Clock::duration>(window)) * 10) /
                 10);
  return us;
}

}  // namespace troupe::bench
