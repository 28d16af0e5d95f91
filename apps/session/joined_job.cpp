#include "apps/session/joined_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "actors/group/group.hpp"
#include "apps/models/models.hpp"
#include "apps/session/gpus.hpp"
#include "apps/session/system_config.hpp"
#include "devices/cuda/cuda_device.hpp"
#include "devices/discovery/discovery.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/recomputation.hpp"
#include "runtime/onnx/onnx_import.hpp"
#include "runtime/planning/planner.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe {
namespace {

Hello own_hello(const SessionOptions& options, const LaunchPlace& place, SessionListener* listener) {
  const Configuration& configuration = options.configuration;
  Hello hello;
  hello.ucx_version = ucx_available() ? ucx_version() : std::string{};
  hello.settings_hash = configuration.hash();
  hello.settings = configuration.lines();
  hello.topology = discover();
  if (may_use_gpus(options)) {
    OwnGpus own = find_gpus(configuration.settings, hello.topology);
    hello.topology.accelerators = std::move(own.gpus);
    hello.nccl = find_nccl(configuration.settings, hello.topology, place.world_size);
    if (listener != nullptr && place.local_rank == 0 && !own.note.empty()) listener->note(own.note);
  }
  return own_hello(std::move(hello), place, SystemConfig{1});
}

/// The hellos of a group that the app has made; its processes are the ranks.
std::vector<Hello> hellos_of(const Group& group) {
  for (std::uint32_t peer = 0; peer < group.size(); ++peer) {
    TROUPE_CHECK(!group.hellos()[peer].topology.cores.empty(), Code::invalid, "SessionOptions::group: peer ", peer,
                 " did not describe its machine, on whose cores ranks are placed; set GroupOptions::hello.topology = "
                 "discover() in every process, as ucx_group_options() does");
  }
  return group.hellos();
}

/// Adds the cores of `more` that `topology` lacks: a launcher may have bound each rank of a node to its own cores.
/// Cores are compared by their CPUs, since a process in a control group numbers only the cores that it may use.
void add_cores(Topology& topology, const Topology& more) {
  for (const Core& core : more.cores) {
    const auto same = [&](const Core& known) {
      return std::ranges::find_first_of(known.cpus, core.cpus) != known.cpus.end();
    };
    if (std::ranges::none_of(topology.cores, same)) topology.cores.push_back(core);
  }
  std::ranges::sort(topology.cores, {}, [](const Core& core) { return std::tie(core.index, core.cpus); });
}

/// Likewise GPUs: a launcher may show each rank of a node its own.
void add_gpus(Topology& topology, const Topology& more) {
  for (const Accelerator& gpu : more.accelerators)
    if (std::ranges::find(topology.accelerators, gpu.bus, &Accelerator::bus) == topology.accelerators.end())
      topology.accelerators.push_back(gpu);
  std::ranges::sort(topology.accelerators, {}, &Accelerator::bus);
}

/// One topology for each node among the hellos.
PlanInputs plan_inputs(const std::vector<Hello>& hellos) {
  PlanInputs inputs;
  for (const Hello& hello : hellos) {
    inputs.ranks.push_back({hello.topology.identity, hello.topology.host, hello.topology.accelerators, hello.nccl});
    const auto known = std::find_if(inputs.topologies.begin(), inputs.topologies.end(),
                                    [&](const Topology& t) { return t.identity == hello.topology.identity; });
    if (known == inputs.topologies.end()) {
      inputs.topologies.push_back(hello.topology);
    } else {
      add_cores(*known, hello.topology);
      add_gpus(*known, hello.topology);
    }
  }
  return inputs;
}

/// A run with GPUs at hand says why it does not use them.
void tell_of_idle_gpus(const PlanInputs& inputs, SessionListener* listener) {
  const auto has_gpus = [](const Topology& node) { return !node.accelerators.empty(); };
  if (inputs.cuda_refusal.empty() || std::ranges::none_of(inputs.topologies, has_gpus)) return;
  listener->note(text("GPUs are not used: ", inputs.cuda_refusal));
}

/// Whether this rank is the first of its node.
bool is_first_of_node(const std::vector<Hello>& hellos, std::uint32_t rank) {
  const NodeIdentity& node = hellos[rank].topology.identity;
  return std::none_of(hellos.begin(), hellos.begin() + rank,
                      [&](const Hello& hello) { return hello.topology.identity == node; });
}

DataFacts facts_of(const DataSet& data) {
  return {.fields = data.train->fields(),
          .train_samples = data.train->count_samples(),
          .test_samples = data.test->count_samples(),
          .size_bytes = data.train->size_bytes() + data.test->size_bytes()};
}

/// The facts of the job's data; reads the data if this rank makes batches.
DataFacts find_facts(const SessionOptions& options, bool reads, DataSet& data, SessionListener* listener) {
  if (options.own_samples != 0) return {.fields = {}, .train_samples = options.own_samples};
  if (options.own_data) {
    if (reads) {
      data = options.own_data->read();
      TROUPE_CHECK(data.train && data.test, Code::invalid, "SessionOptions::own_data: read() returned no ",
                   data.train ? "test" : "train", " set; return both, a test set may have no samples");
    }
    TROUPE_CHECK(!reads || facts_of(data) == options.own_data->facts, Code::invalid,
                 "SessionOptions::own_data: the data that was read does not match its facts");
    return options.own_data->facts;
  }
  DataPlace place = *options.data;
  const Settings::Data& settings = options.configuration.settings.data;
  place.options.stage = {.stage = settings.stage, .folder = settings.stage_path};
  if (listener != nullptr) {
    place.options.note = [listener](const std::string& note) { listener->note(note); };
    place.options.stage.progress = [listener](std::uint64_t done, std::uint64_t total, const std::string& what) {
      listener->preparing(done, total, what);
    };
  }
  if (reads) data = read_data(place);
  return reads ? facts_of(data) : look_at_data(place);
}

Graph make_graph(const SessionOptions& options, const DataFacts& facts) {
  const Settings& settings = options.configuration.settings;
  if (options.model) {
    Graph graph{options.model->name, facts.fields, options.model->parameters};
    check_generates(settings, graph);
    return graph;
  }
  Graph graph = options.graph ? options.graph(settings, facts.fields) : build_model(settings, facts.fields);
  if (options.graph && !settings.train.recompute.empty())
    graph.recompute(recomputed_ranges(graph, settings.train.recompute));
  check_generates(settings, graph);
  for (const Field& field : graph.fields())
    if (field.name != kSampleKey) check_offered(field, facts.fields, text("model ", graph.name()));
  return graph;
}

/// As Bootstrap::join(), and names the setting of a deadline that has passed.
std::unique_ptr<Bootstrap> join_ranks(Blocking& blocking, const LaunchPlace& place, const Hello& mine,
                                      Deadline deadline, const std::function<void(const std::string&)>& waiting) {
  try {
    return Bootstrap::join(blocking, place, mine, deadline, waiting);
  } catch (const Error& error) {
    if (error.code() != Code::timeout) throw;
    fail(Code::timeout, text(error.what(), ", or raise faults.start_s"));
  }
}

}  // namespace

std::vector<std::string> JoinedJob::hosts() const {
  std::vector<std::string> names;
  for (const RankPlan& rank : plan.ranks) names.push_back(plan.nodes.at(rank.node).host);
  return names;
}

Schedule JoinedJob::schedule(const Settings& settings, const std::optional<Position>& from) const {
  Schedule schedule{.train_samples = plan.train_samples,
                    .test_samples = plan.test_samples,
                    .rows = plan.batch,
                    .ranks = plan.world_size(),
                    .steps = plan.steps,
                    .evaluate_every = can_evaluate ? settings.evaluate.every_epochs : 0,
                    .later = {},
                    .scatter = plan.scatter};
  if (from) {
    schedule.first_step = from->steps;
    schedule.first_sample = from->samples;
  }
  schedule = with_batches(schedule, plan.batches);
  if (!from) return schedule;
  if (settings.train.steps == 0)
    schedule.steps = schedule.steps_until(std::uint64_t{settings.train.epochs} * plan.train_samples);
  return schedule;
}

SampleLedger JoinedJob::ledger(const Schedule& schedule, const std::vector<std::uint32_t>& rows) const {
  if (!plan.measured) return SampleLedger(schedule);
  const Step first{schedule.first_step};
  const Step horizon{first.value + horizon_steps(steps_ahead())};
  if (rows.empty()) return {schedule, plan.range, horizon};
  SampleLedger ledger{schedule, plan.range, first};
  ledger.append({first, rows}, horizon);
  return ledger;
}

std::vector<Bucket> JoinedJob::buckets() const {
  std::vector<Bucket> all;
  for (const GroupPlan& group : plan.groups) all.insert(all.end(), group.buckets.begin(), group.buckets.end());
  return in_backward_order(graph, layout, std::move(all));
}

JoinedJob join_job(Blocking& blocking, const SessionOptions& options, Deadline deadline, SessionListener* listener) {
  const Settings& settings = options.configuration.settings;
  LaunchPlace place = options.place.value_or(LaunchPlace{});
  if (options.group != nullptr) place = {.rank = options.group->self().value, .world_size = options.group->size()};
  std::vector<Hello> hellos;
  std::unique_ptr<Bootstrap> bootstrap;
  if (options.group != nullptr) {
    hellos = hellos_of(*options.group);
  } else {
    hellos = {own_hello(options, place, listener)};
  }
  if (options.group == nullptr && place.world_size > 1) {
    const auto waiting = [&](const std::string& note) {
      if (listener != nullptr) listener->note(note);
    };
    bootstrap = join_ranks(blocking, place, hellos.front(), deadline, waiting);
    hellos = bootstrap->hellos();
  }
  PlanInputs inputs = plan_inputs(hellos);
  DataSet data;
  const bool reads = settings.data.loader != "node" || is_first_of_node(hellos, place.rank);
  const DataFacts facts = find_facts(options, reads, data, listener);
  inputs.train_samples = facts.train_samples;
  inputs.test_samples = facts.test_samples;
  inputs.data_bytes = facts.size_bytes;
  const auto& own = options.model;
  Graph graph = make_graph(options, facts);
  Layout layout = layout_of(settings, graph);
  inputs.cuda_refusal = options.model         ? "the app computes its model itself"
                        : options.make_device ? "the app brings its own device"
                                              : cuda_refusal(graph, hellos.size());
  inputs.brings_devices = static_cast<bool>(options.make_device);
  // A run that resumes may have had another number of ranks before, and with it other steps.
  if (settings.checkpoint.resume == "never") check_order_of_switches(settings, inputs);
  Plan plan = make_plan(settings, graph, inputs);
  if (place.rank == 0 && listener != nullptr) {
    tell_of_idle_gpus(inputs, listener);
    if (const std::string repeated = repeated_samples(plan); !repeated.empty()) listener->note(repeated);
  }
  if (!own && !options.graph && !settings.model.onnx.empty())  // whoever has another file makes another plan
    plan.reasons.push_back(
        fmt::format("Weights start as {} has them, whose xxh3 is {:016x}.", settings.model.onnx,
                    read_onnx_file(settings.model.onnx_file, facts.fields, settings.model.onnx_output).hash));
  const bool can_evaluate = !own || (own->evaluate && options.own_samples == 0);
  if (!can_evaluate) plan.model += " without evaluation";  // the same at all ranks
  BatchLayout batch{plan.max_rows, graph.fields()};
  return {place,           std::move(bootstrap), std::move(hellos),
          std::move(data), std::move(graph),     std::move(layout),
          std::move(plan), std::move(batch),     can_evaluate};
}

}  // namespace troupe
