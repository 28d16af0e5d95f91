#include "apps/session/job.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/thread.hpp"
#include "runtime/topology/machine_json.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLandingBytes = std::uint64_t{16} << 20;  // the training actors' messages have no tensors

constexpr std::chrono::milliseconds kStagingPatience = 2h;

/// Threads that a rank starts from its actor system on, besides CAF's workers and those of the device: CAF's clock and
/// multiplexer, UCX's, two lanes, two that watch the other processes, the control server's. And two to spare, since the
/// kernel counts a thread for a moment after its end.
constexpr std::size_t kThreadsBesides = 8 + 2;

/// A run that resumes reads its checkpoint first, and all ranks wait for the ranks that copy the data set.
std::chrono::milliseconds start_within(const Settings& settings) {
  return settings.faults.start + (settings.checkpoint.resume == "never" ? 0ms : settings.checkpoint.save) +
         (settings.data.stage == Stage::none ? 0ms : kStagingPatience);
}

/// With "auto", UCX uses shared memory if all ranks are on one node, without a TCP port.
UcxMeans means(const Settings& settings) {
  if (settings.cluster.transport == "shm") return UcxMeans::shm;
  return settings.cluster.transport == "tcp" ? UcxMeans::tcp : UcxMeans::automatic;
}

/// The rank in the machine's list, with what it said of itself and what its plan says; /proc shows less, and ranks of
/// other jobs, too.
topology::RankPlace& place_of(topology::Machine& machine, const topology::RankPlace& said, const RankPlan& planned) {
  auto at = std::find_if(machine.ranks.begin(), machine.ranks.end(), [&](const topology::RankPlace& each) {
    return each.rank == said.rank && each.pid == said.pid;
  });
  if (at == machine.ranks.end()) at = machine.ranks.insert(at, said);
  at->placement = said.placement;
  at->gpu = planned.gpu;
  if (at->nic.empty() && said.placement->open_devices.size() == 1) at->nic = said.placement->open_devices.front();
  return *at;
}

/// The other ranks' median of a part of their steps, in ms.
double others_ms(const ShareWindow& window, std::uint32_t rank, StepPart part) {
  std::vector<double> others;
  for (std::uint32_t r = 0; r < window.ranks.size(); ++r)
    if (r != rank) others.push_back(window.ranks[r].step_ms[static_cast<std::size_t>(part)]);
  if (others.empty()) return 0;
  std::ranges::nth_element(others, others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2));
  return others[others.size() / 2];
}

topology::RankSteps steps_of(std::uint32_t rank, const ShareWindow& window) {
  const RankShare& share = window.ranks[rank];
  const auto ms = [&](StepPart part) { return share.step_ms[static_cast<std::size_t>(part)]; };
  topology::RankSteps steps{.steps = window.steps,
                            .last = share.last,
                            .load_ms = ms(StepPart::load),
                            .compute_ms = ms(StepPart::compute),
                            .update_ms = ms(StepPart::update),
                            .copy_ms = ms(StepPart::copy),
                            .exchange_ms = ms(StepPart::exchange),
                            .slower_part = {}};
  if (!window.straggler || window.straggler->rank != rank) return steps;
  steps.slower_part = name_of(window.straggler->because);
  steps.others_part_ms = others_ms(window, rank, window.straggler->because);
  return steps;
}

SessionOptions checked(SessionOptions options) {
  TROUPE_CHECK(options.own_samples == 0 || options.model, Code::invalid,
               "SessionOptions::own_samples says that the app brings its samples; it must bring the model too");
  TROUPE_CHECK(options.own_samples <= kMostSamples, Code::invalid,
               "SessionOptions::own_samples = ", options.own_samples, " is more than ", kMostSamples,
               ", which no epoch has; a negative number becomes such a large one");
  TROUPE_CHECK(!options.model || options.configuration.settings.model.dtype == DType::f32, Code::invalid,
               "model.dtype = \"", name_of(options.configuration.settings.model.dtype),
               "\": a model of the app's own is computed in f32; write \"f32\"");
  TROUPE_CHECK(
      !options.model || options.configuration.settings.placement.split == "equal", Code::invalid,
      "placement.split = \"measured\": a model of the app's own is computed by the app, and nobody measures how "
      "fast; write \"equal\"");
  const Settings::Data& data = options.configuration.settings.data;
  TROUPE_CHECK(options.own_samples == 0 || (data.scatter == Scatter::endless && data.loader == "rank"), Code::invalid,
               "data.scatter = ", name_of(data.scatter), " and data.loader = ", data.loader,
               ": SessionOptions::own_samples says that the app brings its samples, which are its own to share out; "
               "leave both keys out");
  TROUPE_CHECK(!options.graph || !options.model, Code::invalid,
               "SessionOptions::graph and ::model: a session has one model; give a graph for the device, or a model "
               "that the app computes");
  TROUPE_CHECK(!options.own_data || (options.own_samples == 0 && options.own_data->read), Code::invalid,
               "SessionOptions::own_data: it must have a function that reads, and no own_samples beside it");
  TROUPE_CHECK(options.group == nullptr || !options.place, Code::invalid,
               "SessionOptions::group and ::place: the ranks are the group's processes; leave place out");
  if (options.group != nullptr) check_knows_sessions(options.group->system().config());
  if (options.own_data) options.data = DataPlace{.folder = {}, .description = options.own_data->description};
  return options;
}

}  // namespace

Job::Job(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log)
    : options_(checked(std::move(options))),
      in_app_group_(options_.group != nullptr ? options_.group->begin_session() : nullptr),
      deadline_(Deadline::after(start_within(settings()))),
      listener_(options_.listener ? std::make_unique<ListenerThread>(*options_.listener) : nullptr),
      joined_(join_job(blocking, options_, deadline_, listener_.get())),
      place_(joined_.plan, joined_.self(), joined_.hellos.at(joined_.place.rank).topology, settings()),
      placement_check_(place_, options_.owns_process),
      trace_(settings().report.trace),
      log_(std::move(log)),
      silences_(joined_.hosts(), FailureDetectorOptions::with_dead(settings().faults.dead).suspect, listener_.get()),
      group_(options_.group) {
  placement_check_.joined(joined_.plan, joined_.self(), joined_.hellos, settings());
  if (options_.owns_process) place_.take_process();
  if (listener_) listener_->keep_on(place_.rank().cpus);
  if (group_ != nullptr) return;
  const ScopedPlacement in_place(place_);  // for the threads that are started here
  own_space_ = std::make_unique<AddressSpace>();
  own_space_->place(place_.memory(), place_.rank().cpus);
  const std::size_t workers = std::max<std::size_t>(1, joined_.mine().cpus.size() / 2);
  check_threads(kThreadsBesides + workers + joined_.mine().device_threads);
  own_config_ = std::make_unique<SystemConfig>(workers);
  own_system_ = std::make_unique<caf::actor_system>(*own_config_);
  own_group_ = Group::join(blocking, *own_system_, group_options());
  group_ = own_group_.get();
  machine_ = std::make_unique<MachineReporter>(*group_, [this] { return placement_check_.look(nullptr); });
}

std::string Job::machines(Blocking& blocking, const ShareWindow& window, Deadline deadline) const {
  TROUPE_CHECK(machine_, Code::unsupported, "in a group that an app has made, ranks do not describe their machines");
  std::vector<Peer> leaders;
  std::vector<Peer> ranks;
  for (const NodePlan& node : joined_.plan.nodes) leaders.push_back({node.leader});
  for (const RankPlan& rank : joined_.plan.ranks) ranks.push_back({rank.rank.value});
  std::vector<topology::Machine> machines = MachineReporter::ask(blocking, *group_, leaders, deadline);
  const std::vector<topology::Machine> places = MachineReporter::ask_places(blocking, *group_, ranks, deadline);
  const std::vector<ClockSeen> clocks = MachineReporter::ask_clocks(blocking, *group_, leaders, deadline);
  for (std::size_t n = 0; n < machines.size(); ++n) {
    machines[n].system.clock_ahead_ms = clocks[n].ahead_ms;
    machines[n].system.clock_within_ms = clocks[n].within_ms;
  }
  for (std::uint32_t r = 0; r < places.size(); ++r) {
    const RankPlan& planned = joined_.plan.ranks[r];
    topology::RankPlace& place = place_of(machines[planned.node], places[r].ranks.at(0), planned);
    if (r < window.ranks.size()) place.steps = steps_of(r, window);
  }
  std::string all;
  for (std::size_t n = 0; n < machines.size(); ++n)
    all += text(n == 0 ? "" : ",", R"({"count":1,"source":"rank )", leaders[n].value, R"(","machine":)",
                topology::to_json(machines[n], -1), '}');
  std::erase(all, '\n');
  return text(R"({"schema":"troupe.cluster","version":1,"machines":[)", all, "]}");
}

void Job::look_again() {
  if (!listener_) return;
  listener_->later([this](SessionListener& listener) {
    for (const std::string& line : placement_check_.new_differences(nullptr)) listener.note(line);
  });
}

Deadline Job::new_deadline() const { return Deadline::after(start_within(settings())); }

GroupOptions Job::group_options() {
  GroupOptions options{.place = joined_.place, .deadline = deadline_, .joined = std::move(joined_.bootstrap)};
  options.space = own_space_.get();
  options.make_transport = [this](const TransportContext& context) {
    TROUPE_CHECK(ucx_available(), Code::unsupported,
                 "this build has no UCX, which ranks need to exchange messages: configure with TROUPE_WITH_UCX=ON");
    auto transport = make_ucx_transport(context.space, {.self = context.self,
                                                        .means = means(settings()),
                                                        .hosts = hosts_of(context.hellos),
                                                        .network_devices = place_.network().devices});
    placement_check_.opened(ucx_network_devices(*transport));
    return transport;
  };
  LanePair lanes = lanes_on(place_.rank().control_cpus, place_.rank().bulk_cpus);
  options.control = lanes.control;
  options.control.trace = trace_.control_lane;
  options.bulk = lanes.bulk;
  options.bulk.trace = trace_.bulk_lane;
  options.remote.landing_bytes = kLandingBytes;
  options.remote.sending_bytes = kLandingBytes;
  options.remote.heartbeats = FailureDetectorOptions::with_dead(settings().faults.dead);
  options.remote.heartbeats_setting = "faults.dead_ms";
  options.remote.suspected = [this](Peer peer, bool suspected) {
    if (!quiet_) silences_.add(peer, suspected, Clock::now());
  };
  options.remote.dropped = [](std::string_view) {};  // actors of a run that ends may send to actors that have ended
  return options;
}

void Job::leave(Blocking& blocking, Deadline deadline, bool given_up) noexcept {
  if (std::exchange(left_, true)) return;
  quiet(true);
  if (own_group_) {
    try {
      given_up ? own_group_->leave(blocking, deadline) : own_group_->stop(blocking, deadline);
    } catch (const std::exception& error) {
      note(text("the ranks did not part as they should: ", error.what()));
    }
  }
  const Rank self = joined_.self();
  const std::string said = trace_.write(self.value, joined_.plan.world_size(), joined_.hosts()[self.value]);
  if (!said.empty()) note(said);
  in_app_group_.reset();
  checkpoints_lock.reset();  // no thread of this process writes checkpoints now
  if (listener_) listener_->finish();
  if (log_) log_->release();
}

}  // namespace troupe
