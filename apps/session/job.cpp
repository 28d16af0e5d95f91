#include "apps/session/job.hpp"

#include <algorithm>
#include <utility>

#include "transports/ucx/ucx_transport.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLandingBytes = std::uint64_t{16} << 20;  // the training actors' messages have no tensors

constexpr std::chrono::milliseconds kStagingPatience = 2h;

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
  TROUPE_CHECK(
      !options.graph || !options.model, Code::invalid,
      "SessionOptions::graph and ::model: there is one model; give a graph for the device, or arithmetic of the "
      "app's own");
  TROUPE_CHECK(!options.own_data || (options.own_samples == 0 && options.own_data->read), Code::invalid,
               "SessionOptions::own_data: it must have a function that reads, and no own_samples beside it");
  TROUPE_CHECK(options.group == nullptr || !options.place, Code::invalid,
               "SessionOptions::group and ::place: the ranks are the group's processes; leave place out");
  if (options.group != nullptr) check_knows_sessions(options.group->system().config());
  if (options.own_data) options.data = DataPlace{.folder = {}, .description = options.own_data->description};
  if (!options.data && options.own_samples == 0) options.data = find_data(data_request(options.configuration));
  return options;
}

}  // namespace

Job::Job(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log)
    : options_(checked(std::move(options))),
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
  own_config_ = std::make_unique<SystemConfig>(std::max<std::size_t>(1, joined_.mine().cpus.size() / 2));
  own_system_ = std::make_unique<caf::actor_system>(*own_config_);
  own_group_ = Group::join(blocking, *own_system_, group_options());
  group_ = own_group_.get();
  machine_ = std::make_unique<MachineReporter>(*group_);
}

std::string Job::machines(Blocking& blocking, Deadline deadline) const {
  TROUPE_CHECK(machine_, Code::unsupported, "the ranks of a group that an app has made tell no machines");
  std::vector<Peer> leaders;
  for (const NodePlan& node : joined_.plan.nodes) leaders.push_back({node.leader});
  const std::vector<std::string> machines = MachineReporter::ask(blocking, *group_, leaders, deadline);
  std::string all;
  for (std::size_t n = 0; n < machines.size(); ++n)
    all +=
        text(n == 0 ? "" : ",", R"({"count":1,"source":"rank )", leaders[n].value, R"(","machine":)", machines[n], '}');
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
                 "this build has no UCX, which ranks need to talk to each other: configure with TROUPE_WITH_UCX=ON");
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
  checkpoints_lock.reset();  // no thread of this process writes checkpoints now
  if (listener_) listener_->finish();
  if (log_) log_->release();
}

}  // namespace troupe
