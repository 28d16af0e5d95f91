#include "apps/session/view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>

#include "apps/session/device_kinds.hpp"
#include "apps/session/host_replica.hpp"
#include "apps/session/run_log.hpp"
#include "devices/cpu/try_threads.hpp"
#include "runtime/compute/library_stream.hpp"
#include "runtime/compute/rules/verdict.hpp"
#include "runtime/onnx/onnx_import.hpp"
#include "runtime/planning/planner.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// Additional bytes for alignment and small objects in the arena of a rank whose device has its own memory.
constexpr std::uint64_t kLeftInArena = 64 << 10;

/// How many steps that were left out get a note each.
constexpr std::uint64_t kLeftOutNotes = 5;
/// How many changes of the loss scale get one.
constexpr std::size_t kScaleNotes = 20;

/// 16777216, and not 1.67772e+07.
std::string shown(float scale) { return fmt::format("{}", static_cast<double>(scale)); }

/// How long a device's thread with its own core polls the bulk lane: as long as it polls a line elsewhere.
constexpr std::chrono::microseconds kPollLane{200};

/// How many ranks that are not where the plan wants them get notes, and how many bytes each may send.
constexpr std::size_t kMostMisplaced = 8;
constexpr std::size_t kMostLineBytes = 4096;

/// Lines as bytes, for another rank.
std::vector<std::byte> encode_lines(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + '\n';
  all.resize(std::min(all.size(), kMostLineBytes));
  const auto bytes = std::as_bytes(std::span{all});
  return {bytes.begin(), bytes.end()};
}

/// Lines from another rank: only printable characters are used.
std::vector<std::string> decode_lines(std::span<const std::byte> encoded) {
  std::vector<std::string> lines(1);
  for (const std::byte byte : encoded.first(std::min(encoded.size(), kMostLineBytes))) {
    const char c = static_cast<char>(byte);
    if (c == '\n')
      lines.emplace_back();
    else if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)
      lines.back() += c;
  }
  std::erase(lines, "");
  return lines;
}

/// The deadline of waits whose progress is monitored elsewhere.
constexpr std::chrono::milliseconds kWithWatch = 24h;

/// What a GPU's stream does beside its other work, the exchange over NCCL, appears in `row` of the trace; null: it is
/// not traced.
void trace_beside(Stream& stream, TraceRow* row) {
  auto* const lanes = dynamic_cast<LibraryStream*>(&stream);
  if (row != nullptr && lanes != nullptr) lanes->trace_beside(*row);
}

/// As Group::all_gather(), and names the setting of a deadline that has passed.
std::vector<std::vector<std::byte>> gather_at_start(Blocking& blocking, Group& group, const std::string& what,
                                                    std::span<const std::byte> mine, Deadline deadline) {
  try {
    return group.all_gather(blocking, what, mine, deadline);
  } catch (const Error& error) {
    if (error.code() != Code::timeout) throw;
    fail(Code::timeout, text(error.what(), "; it may still take memory or read a file: raise faults.start_s"));
  }
}

}  // namespace

View::View(Blocking& blocking, Job& job, Lineage lineage, Deadline deadline, std::unique_ptr<ViewState> before)
    : job_(job),
      options_(job.options()),
      joined_(job.joined()),
      lineage_(std::move(lineage)),
      deadline_(deadline),
      view_{job.group().next_number()},
      space_(job.space()),
      trace_(job.trace()),
      listener_(job.listener()),
      system_(job.system()),
      before_(std::move(before)),
      continues_(before_ != nullptr),
      left_(std::make_unique<ViewState>()),
      record_(before_ ? before_->record : std::make_shared<RunRecord>()) {
  const ScopedPlacement in_place(job_.place());  // also for the threads that are started here
  job_.quiet(false);
  space_.may_spin(joined_.mine().may_spin);
  make_device();
  make_memory();
  exchange_places(blocking);
  resume();
  make_steps(blocking);
  make_loop();
  load();
  make_actors();
  membership_ = actors_->membership();
  losses_ = job_.group().listen([this](Peer peer, const Status& why) {
    if (listener_ != nullptr) listener_->lost(peer.value, std::string{why.text()});
    caf::anon_send(membership_, PeerLost{peer, why});
  });
  publish("membership", membership_);
  if (leads_job()) {
    publish("evaluator", actors_->evaluator());
    publish("reporter", actors_->reporter());
    publish("steps", actors_->steps());
    publish("checkpointer", actors_->checkpointer());
    publish("balancer", actors_->balancer());
    publish("sums", actors_->sums());
    publish("digests", actors_->digests());
  }
  publish("loader", actors_->node_loader());
  wait_until_all_are_ready(blocking);
  before_.reset();
}

/// Waits until all ranks are ready. They send what is not where the plan wants it, and rank 0 makes notes of it.
void View::wait_until_all_are_ready(Blocking& blocking) {
  const auto all_lines = gather_at_start(blocking, job_.group(), text("view ", view_.value, ": ready"),
                                         encode_lines(job_.placement_check().new_differences(arena_.get())), deadline_);
  if (!leads_job()) return;
  std::size_t ranks = 0;
  for (const std::vector<std::byte>& lines : all_lines) {
    if (lines.empty() || ++ranks > kMostMisplaced) continue;
    for (const std::string& line : decode_lines(lines)) note(line);
  }
  if (ranks > kMostMisplaced)
    note(text("warning: ", ranks - kMostMisplaced, " more ranks are not where the plan wants them (`rtrun plan`)"));
}

View::~View() {
  Blocking blocking = Blocking::on_thread("session");
  take_down(blocking);
  if (lane_resources_) job_.group().keep(std::move(lane_resources_));
}

void View::make_memory() {
  const Peer self{joined_.self().value};
  if (uses_device_memory()) {
    const MemoryNeeds needs = memory_needs(joined_.plan, joined_.graph, joined_.self());
    const std::uint64_t own = needs.device_bytes();
    const std::uint64_t staging = device_staging_bytes(joined_.plan, joined_.self());
    arena_ = Arena::create(space_.new_arena(self),
                           needs.arena_bytes() - own - needs.staging + needs.words + staging + kLeftInArena,
                           job_.place().memory());
    space_.map(arena_);
    const ArenaId id = space_.new_arena(self);
    arenas_.push_back(id);
    const Memory device = lane_resources_->device->allocate(id, MemoryKind::device, own);
    RankStore store(*arena_, device, lane_resources_->device->ticket(id));
    memory_ = allocate_rank_memory(store, joined_.plan, joined_.self());
  } else {
    arena_ = Arena::create(space_.new_arena(self), joined_.mine().arena_bytes, job_.place().memory());
    space_.map(arena_);
    RankStore store(*arena_);
    memory_ = allocate_rank_memory(store, joined_.plan, joined_.self());
  }
  arenas_.push_back(arena_->id());
  if (joined_.plan.digest_steps != 0) memory_.digests = arena_->allocate(digest_bytes(joined_.layout.entries().size()));
  pool_ = std::make_unique<LeasePool>(space_, *arena_, joined_.plan.prefetch, joined_.batch.size_bytes());
  if (holds_parameters()) join_node_memory(memory_, joined_.plan, *arena_);
}

/// Whether to use device memory: if the device has some, unless others than the device access gradients and parameters,
/// which hosting shards, CPUs of other ranks and a model of the app's own do.
bool View::uses_device_memory() const {
  if (lane_resources_->device->traits().memory != MemoryKind::device || options_.model) return false;
  return options_.make_device ? !needs_of(joined_.plan).hosted : joined_.plan.in_gpu_memory;
}

/// Maps the arena of another rank of the node.
void View::map_arena(Rank rank) {
  const auto arena = Arena::open(places_[rank.value].arena);
  space_.map(arena);
  arenas_.push_back(arena->id());
}

/// Maps the memory that another rank of the node shares, including its device's.
void View::map_peer(Rank rank) {
  map_arena(rank);
  if (const auto ticket = find_device_ticket(space_, space_.arena(places_[rank.value].arena.id)))
    arenas_.push_back(lane_resources_->device->import(*ticket).arena);
}

/// Opens the checkpoint from which the job resumes, chosen by rank 0, or continues from the retired view.
void View::resume() {
  const CheckpointStart& start = places_[0].start;
  if (!start.folder.empty()) resumed_ = std::make_unique<Resumed>(start, joined_);
  std::optional<JoinedJob::Position> from;
  if (resumed_) {
    from = {resumed_->manifest().steps, resumed_->manifest().samples};
    if (const std::string first = resumed_->manifest().lineage(); first != start.run) first_run_ = first;
  }
  if (before_) {
    TROUPE_CHECK(start.id.steps == before_->steps, Code::corrupt, "rank 0 continues after step ", start.id.steps,
                 " in the next view, rank ", joined_.self().value, " has come to step ", before_->steps);
    from = {before_->steps, before_->samples};
    first_run_ = before_->first_run;
  }
  schedule_ = joined_.schedule(settings(), from);
  TROUPE_CHECK(settings().evaluate.patience == 0 || (schedule_.evaluate_every != 0 && schedule_.test_samples != 0),
               Code::invalid, "evaluate.patience = ", settings().evaluate.patience,
               " counts evaluations of a test set, and this run has none: set evaluate.every_epochs, give a model of "
               "your own its evaluate function, or leave evaluate.patience out");
  committed_ = values_.taken = values_.handed_over = schedule_.first_step;
  if (lineage_.run.empty() && resumed_) lineage_.roll_backs = resumed_->manifest().roll_backs;
  lineage_.run = places_[0].start.run;
  if (resumed_ && leads_job()) note_resumed(start);
}

/// Begins with the evaluations in report.dir's log of the run that the job resumes. Sets `start.over` if they end the
/// run.
void View::make_early_stop(CheckpointStart& start) {
  const Settings::Evaluate& evaluate = settings().evaluate;
  if (evaluate.patience == 0) return;
  record_->early_stop.emplace(evaluate.patience, evaluate.min_change);
  if (start.folder.empty()) return;
  std::error_code unknown;  // a checkpoint in another folder does not belong to the log in this one
  std::vector<LoggedEvaluation> before;
  if (std::filesystem::equivalent(start.folder, checkpoint_folder(settings()), unknown))
    before = evaluations_in(settings().report.dir + "/log", start.id.steps);
  for (const LoggedEvaluation& one : before) start.over = record_->early_stop->add(one.epoch, one.loss);
  if (before.empty())
    note(text(settings().report.dir, "/log has no evaluations of this run's first ", start.id.steps,
              " steps: evaluate.patience counts from here"));
}

/// Called on the reporter's thread. After the last step no device waits for a verdict.
void View::take_evaluation(Step step, const EpochReport& line) {
  const bool ends = line.test_loss && record_->early_stop->add(line.epoch, *line.test_loss);
  if (schedule_.is_last(step)) return;
  if (ends) {
    record_->result.reason = record_->early_stop->reason();
    note(record_->result.reason);
  }
  actors_->judge({.step = step.value, .end = ends});
}

void View::note_resumed(const CheckpointStart& start) {
  if (listener_) listener_->resumed(start.folder, schedule_.first_step);
  const std::string from = CheckpointStore(start.folder).folder_of(start.id);
  if (start.over)
    return note(text(record_->early_stop->reason(), ": nothing is left to train after step ", schedule_.first_step,
                     " (raise evaluate.patience)"));
  note(nothing_left() ? text(from, " has all ", schedule_.first_step,
                             " steps: nothing is left to train (raise train.epochs or train.steps)")
                      : text("going on from ", from, ", step ", schedule_.first_step, " of ", schedule_.steps));
}

/// Loads the state before the first step. Other ranks read it when the view is ready.
void View::load() {
  if (holds_parameters()) fill_parameters();
  fill_loss_scale();
  if (resumed_) resumed_->load_state(joined_, *copies_, memory_);
  if (before_) before_->memory.restore(*copies_, joined_.plan, memory_);
}

void View::fill_loss_scale() {
  if (memory_.replica.loss_scale.size_bytes == 0) return;
  LossScale scale = first_scale(settings().model.scaling);
  if (const auto saved = resumed_ ? resumed_->manifest().loss_scale : std::nullopt) {
    if (settings().model.scaling.fixed > 0)
      scale.left_out = saved->left_out;
    else
      scale = *saved;
  }
  const LossScaleState state{scale, scale};
  copies_->write(memory_.replica.loss_scale,
                 [&](std::span<std::byte> bytes) { std::memcpy(bytes.data(), &state, sizeof state); });
}

void View::fill_parameters() {
  copies_->write(memory_.parameters, [this](std::span<std::byte> bytes) {
    const std::span<float> parameters = numbers<float>(bytes);
    if (before_) {
      const std::span<const std::byte> kept = before_->memory.parameters();
      TROUPE_CHECK(kept.size() == bytes.size(), Code::unsupported, "the view before kept ", kept.size(),
                   " bytes of parameters at this rank, this one keeps ", bytes.size());
      std::copy(kept.begin(), kept.end(), bytes.begin());
    } else if (resumed_) {
      resumed_->load_parameters(joined_, parameters);
    } else {
      fill_initial(joined_.graph, joined_.layout, joined_.plan.seed, parameters);
      if (!settings().model.onnx.empty() && !options_.graph && !options_.model)
        fill_from_onnx(settings().model.onnx_file, parameters);
    }
    copies_->write(memory_.half, [&](std::span<std::byte> image) {
      convert_elements(image.data(), joined_.plan.dtype, bytes.data(), DType::f32, parameters.size());
    });
  });
}

/// Parameters of layers that are not in the file, those of model.layers, keep their numbers.
void View::fill_from_onnx(const std::string& file, std::span<float> to) const {
  const OnnxModel model = read_onnx_file(file, joined_.graph.fields(), settings().model.onnx_output);
  const auto& parameters = joined_.graph.parameters();
  for (const auto& [name, numbers] : model.parameters) {
    const auto at = std::ranges::find(parameters, name, &Parameter::name);
    const bool found = at != parameters.end();
    const Layout::Entry entry =
        found ? joined_.layout.entries()[static_cast<std::size_t>(at - parameters.begin())] : Layout::Entry{};
    TROUPE_CHECK(found && numbers.size() == entry.count, Code::invalid, file, ": has changed since the run began: its ",
                 name, " has ", numbers.size(), " numbers, and had ", entry.count);
    std::ranges::copy(numbers, to.begin() + static_cast<std::ptrdiff_t>(entry.first));
  }
}

std::vector<float> View::parameters() const {
  if (!last_parameters_.empty()) return last_parameters_;
  std::vector<float> all;
  copies_->read(memory_.parameters, [&](std::span<const std::byte> bytes) {
    const std::span<const float> found = numbers<float>(bytes);
    all.assign(found.begin(), found.end());
  });
  return all;
}

/// This rank's place, with rank 0's decisions for all ranks.
PlaceBlob View::own_place(Blocking& blocking) {
  PlaceBlob mine{.plan_hash = joined_.plan.hash(),
                 .settings_hash = options_.configuration.hash(),
                 .arena = arena_->ticket(),
                 .device_memory = uses_device_memory()};
  if (makes_nccl_ids()) {
    for (std::size_t group = 0; group < joined_.plan.groups.size(); ++group) mine.nccl.push_back(make_nccl_id());
  }
  if (!leads_job()) return mine;
  if (before_) {
    mine.start = before_->start;
    if (record_->shares_measured) mine.rows = record_->shares_measured->rows;
    return mine;
  }
  lock_checkpoints(blocking);
  mine.start = decide_start(blocking, settings(), [this](const std::string& what) { note(what); });
  if (!lineage_.run.empty()) mine.start.run = lineage_.run;
  if (job_.checkpoints_lock) job_.checkpoints_lock->name("run " + mine.start.run);
  make_early_stop(mine.start);
  if (!mine.start.folder.empty()) check_fits(mine.start, joined_);  // rank 0 checks it for all
  return mine;
}

/// Sends the other ranks this rank's place, checks that all have made the same plan, and connects to all of them.
void View::exchange_places(Blocking& blocking) {
  const PlaceBlob mine = own_place(blocking);
  const auto blobs =
      gather_at_start(blocking, job_.group(), text("view ", view_.value, ": places"), encode(mine), deadline_);
  for (std::uint32_t rank = 0; rank < blobs.size(); ++rank) {
    const PlaceBlob& place = places_.emplace_back(decode_place(blobs[rank]));
    TROUPE_CHECK(place.plan_hash == mine.plan_hash, Code::invalid, "rank ", rank, " made plan ",
                 hexadecimal(place.plan_hash), ", rank ", joined_.place.rank, " made ", hexadecimal(mine.plan_hash),
                 ": give every rank the same app.toml, --set options and data (compare their `rtrun plan`)");
    TROUPE_CHECK(place.settings_hash == mine.settings_hash, Code::invalid, "rank ", rank,
                 " has other settings than rank ", joined_.place.rank,
                 ": give every rank the same app.toml and --set options (compare their `rtrun check`)");
    TROUPE_CHECK(place.device_memory == mine.device_memory, Code::unsupported, "rank ",
                 mine.device_memory ? joined_.place.rank : rank, " trains in memory of its device's own, rank ",
                 mine.device_memory ? rank : joined_.place.rank,
                 " in the host's; one job cannot have both: give all ranks devices of one kind");
  }
  const std::uint32_t from = nccl_leader();
  TROUPE_CHECK(!joined_.plan.uses_nccl() || places_[from].nccl.size() == joined_.plan.groups.size(), Code::corrupt,
               "rank ", from, " gave ", places_[from].nccl.size(), " ids for NCCL, and there are ",
               joined_.plan.groups.size(), " groups");
}

/// Two jobs in one folder would use the same numbers for their checkpoints and remove each other's files.
void View::lock_checkpoints(Blocking& blocking) {
  if (settings().checkpoint.every_steps == 0 || job_.checkpoints_lock) return;
  const CheckpointStore store(checkpoint_folder(settings()));
  job_.checkpoints_lock =
      std::make_shared<const FolderLock>(store.lock(blocking, "a run that begins", Deadline::after(kLockPatience)));
  if (!job_.checkpoints_lock->held())
    note(text(store.folder(), ": this file system keeps no locks; see to it that no other job saves there"));
}

void View::make_device() {
  const RankPlan& mine = joined_.mine();
  // Between nodes the stream waits for data that the bulk lane receives.
  if (joined_.plan.uses_transport()) {
    const auto spin = mine.may_spin ? kPollLane : std::chrono::microseconds::zero();
    lane_resources_->waits = std::make_unique<LaneWait>(job_.group().bulk(), spin);
  }
  lane_resources_->device = make_device_for(job_.place().rank());
  const DeviceTraits& traits = lane_resources_->device->traits();
  TROUPE_CHECK(joined_.plan.dtype != DType::f16 || traits.f16, Code::invalid, "model.dtype = \"f16\": a ", traits.kind,
               " device does not compute in f16; write \"bf16\" or \"f32\"");
  const ArenaId buffer = space_.new_arena({joined_.self().value});
  arenas_.push_back(buffer);  // bound when it is needed
  copies_ = std::make_unique<HostCopies>(*lane_resources_->device, space_, buffer, settings().faults.exchange);
}

void View::make_steps(Blocking& blocking) {
  const RankPlan& mine = joined_.mine();
  if (joined_.plan.shares_memory()) {
    for (const Rank rank : joined_.plan.node_members(joined_.self()))
      if (rank != joined_.self()) map_peer(rank);
    const std::uint32_t leader = joined_.plan.nodes[mine.node].leader;
    join_node_memory(memory_, joined_.plan, space_.arena(places_[leader].arena.id));
  }
  if (joined_.plan.uses_nccl()) {
    for (const Rank rank : joined_.plan.node_members(joined_.self()))
      if (rank != joined_.self()) map_arena(rank);
  }
  lane_resources_->device->prepare(arenas_);
  make_communicators(blocking);
  const std::vector<Bucket> buckets = joined_.buckets();
  if (options_.model) {
    work_.replica = std::make_unique<HostReplica>(space_, buckets, [this](const HostWork& work) { loop_->post(work); });
  } else {
    work_.replica =
        lane_resources_->device->compile(joined_.graph, joined_.layout, joined_.batch, buckets, memory_.replica);
  }
  work_.stream = traced_stream(trace_.compute);
  trace_beside(*work_.stream, trace_.exchange);
  for (const GroupPlan& group : joined_.plan.groups) {
    work_.side_streams.push_back(needs_of(group.policies).side_stream ? traced_stream(trace_.side) : nullptr);
    if (work_.side_streams.back()) trace_beside(*work_.side_streams.back(), trace_.side_exchange);
    const std::span<const std::string> no_decay = settings().no_decay;
    const bool has_norms = needs_tensor_norms(group.kind);
    lane_resources_->no_decay.push_back(entries_matching(joined_.graph, joined_.layout,
                                                         group.running ? no_decay.first(0) : no_decay, group.id,
                                                         /*with_vectors=*/has_norms));
    lane_resources_->scaled.push_back(has_norms ? entries_of_tensors(joined_.graph, joined_.layout, group.id)
                                                : std::vector<Layout::Entry>{});
  }
  work_.hosted.resize(joined_.plan.groups.size());
  for (const GroupPlan& group : joined_.plan.groups) work_.exchanges.push_back(make_exchange(group));
  work_.steps = std::make_unique<StepExchange>(view_, space_, memory_.sums, memory_.totals, all_exchanges(),
                                               buckets.size(), GroupId{}, memory_.replica.loss_scale);
  work_.step_messages = std::make_unique<PointMessenger<StepReached, kStepsAhead + 1>>(space_);
  work_.snapshot_messages = std::make_unique<PointMessenger<SnapshotReached, 1>>(space_);
  work_.evaluation_messages = std::make_unique<PointMessenger<EvaluationReached, kEvaluationsKept + 1>>(space_);
}

/// The stream's work appears in `row` of the trace; null: it is not traced.
std::unique_ptr<Stream> View::traced_stream(TraceRow* row) {
  std::unique_ptr<Stream> stream = lane_resources_->device->stream();
  if (row != nullptr) stream->trace(*row);
  return stream;
}

std::unique_ptr<Device> View::make_device_for(const RankPlan& mine) {
  // Ranks that push to shards may be ahead of others by more than any deadline; their workers monitor the progress.
  const auto deadline = needs_of(joined_.plan).hosted ? kWithWatch : settings().faults.exchange;
  const DeviceContext context{space_, mine, deadline, lane_resources_->waits.get()};
  if (options_.make_device) return options_.make_device(context);
  return make_planned_device(context,
                             {.cpu_threads = [&] { return threads_for(mine); }, .tf32 = settings().model.tf32});
}

/// As many as its plan says, or as the trial of the run's first view chose.
std::uint32_t View::threads_for(const RankPlan& mine) {
  const bool tries = settings().placement.device_threads.tried && mine.device_threads > 1 && !options_.model;
  if (!tries) return mine.device_threads;
  if (record_->device_threads == 0) {
    const ThreadTrial trial = try_threads(joined_.graph, joined_.plan.batch, mine.device_threads);
    record_->device_threads = trial.chosen;
    note(text("device threads of rank ", joined_.self().value, ": ", text_of(trial),
              " (placement.device_threads = ", trial.chosen, " fixes it)"));
  }
  return record_->device_threads;
}

void View::make_loop() {
  std::span<const float> parameters;
  std::span<float> gradients;
  if (!uses_device_memory()) {
    const std::uint64_t count = joined_.layout.count_elements();
    parameters = {space_.address_of<const float>(memory_.replica.parameters), count};
    gradients = {space_.address_of<float>(memory_.replica.gradients), count};
  }
  for (std::size_t p = 0; p < joined_.layout.entries().size(); ++p) {
    const auto [first, count] = joined_.layout.entries()[p];
    const Parameter& parameter = joined_.graph.parameters()[p];
    SessionTensor& tensor = tensors_.emplace_back();
    tensor.name = parameter.name;
    tensor.extents = parameter.extents;
    if (!parameters.empty()) tensor.parameters = parameters.subspan(first, count);
    if (!gradients.empty()) tensor.gradients = gradients.subspan(first, count);
  }
  // The loss of a graph shows what its gradients became; an app's own loss may be anything.
  const bool checked = options_.model && !needs_verdict(settings().rule);
  loop_ = std::make_unique<OwnLoop>(OwnLoopParts{.space = space_,
                                                 .batch = joined_.batch,
                                                 .schedule = schedule_,
                                                 .tensors = tensors_,
                                                 .model = options_.model ? &*options_.model : nullptr,
                                                 .empty_batches = options_.own_samples != 0 ? pool_.get() : nullptr,
                                                 .gradients = gradients,
                                                 .checked_rank = checked ? std::optional{joined_.self()} : std::nullopt,
                                                 .wait_deadline = settings().faults.exchange,
                                                 .sums_are_common = sums_are_common(),
                                                 .stop = [this] { request_stop(); }});
}

RateSchedule View::rate(const Rule& rule) const {
  const Settings& s = settings();
  const bool by_steps = s.train.steps != 0;
  const double lowered = s.rule.stops_non_finite ? std::pow(s.train.roll_back_rate, lineage_.roll_backs) : 1;
  return {rule.rate * lowered,
          s.rate,
          {.epoch_samples = joined_.plan.train_samples,
           .run_samples = by_steps ? schedule_.samples_before({schedule_.steps})
                                   : std::uint64_t{s.train.epochs} * joined_.plan.train_samples,
           .rank_batch = joined_.plan.batch}};
}

/// Whether the run continues; rank 0 notes which steps were left out.
Status View::judge(Step step, const StepSums& total) {
  const Rule& rule = settings().rule;
  const LossScaleState scale = work_.steps->loss_scale(step);
  if (rule.scales_loss && leads_job()) note_scale(step, scale.now.scale);
  Status end = judge_step(rule, step, total, joined_.graph, joined_.layout);
  if (!end.ok()) bad_step_ = text("step ", step.value, ": ", describe_bad(total, joined_.graph, joined_.layout));
  if (!end.ok() || !is_skipped(rule, total)) return end;
  const std::string what = text(describe_bad(total, joined_.graph, joined_.layout), left_out_because(scale));
  if (rule.scales_loss && settings().model.scaling.fixed == 0 && scale.agreed.scale <= kLeastLossScale)
    return {Code::device_fault, text("step ", step.value, ": ", what, ", which is the smallest; ", kAgainstNonFinite)};
  if (!leads_job() || ++record_->left_out > kLeftOutNotes) return end;
  const bool was_local = works_locally(work_.steps->policy().kind);
  note(text(was_local ? "local steps up to step " : "step ", step.value, was_local ? " were" : " was", " left out: ",
            what, record_->left_out == kLeftOutNotes ? " (further ones are counted in the log alone)" : ""));
  return end;
}

std::string View::left_out_because(const LossScaleState& scale) const {
  if (!settings().rule.scales_loss) return " is not finite";
  return text(" is not finite with a loss scale of ", shown(scale.agreed.scale));
}

void View::note_scale(Step step, float scale) {
  const std::lock_guard lock{record_->mutex};
  std::vector<ScaleChange>& scales = record_->scales;
  if (!scales.empty() && scales.back().scale == scale) return;
  scales.push_back({step, scale});
  if (scales.size() > 1 && scales.size() <= kScaleNotes)
    note(text("from step ", step.value, " on the loss scale is ", shown(scale),
              scales.size() == kScaleNotes ? " (further changes are in the log alone)" : ""));
}

/// With which the last step before `steps` was computed; 0: the loss is not scaled.
double View::loss_scale_before(std::uint64_t steps) const {
  const std::lock_guard lock{record_->mutex};
  double found = 0;
  for (const ScaleChange& change : record_->scales)
    if (change.step.value < steps || found == 0) found = static_cast<double>(change.scale);
  return found;
}

void View::make_actors() {
  TrainingParts parts{
      .loader = {},
      .device = {*work_.stream, *work_.replica, *work_.steps, space_, *work_.step_messages, *work_.evaluation_messages,
                 memory_.evaluations, schedule_, *work_.snapshot_messages, save_plan(), joined_.self(),
                 [this](Step step, const StepSums& total) { return judge(step, total); },
                 [this](Step step, const PolicySettings& policy, const std::string& reason) {
                   note_switch(step, policy, reason);
                 }},
      .view = view_,
      .self = joined_.self(),
      .hosts = joined_.hosts(),
      .start_within = settings().faults.start,
      .end_within = settings().faults.exchange + (saves() ? settings().checkpoint.save : 0ms),
      .report = report_targets(),
      .abort_view = [this](const Status& why) { abort_exchanges(why); },
      .ended =
          [this](const RunEnd& end) {
            end_.put(end);
            loop_->close();
          },
      .committed =
          [this](Step step) {
            committed_ = step.value + 1;
            if (step.value == schedule_.first_step) job_.look_again();  // kernels have their threads now
            if (owned_) loop_->committed(step, work_.steps->total(step));
          },
      .checkpoints = {},
      .balancer = {},
      .answer_within = settings().faults.exchange,
      .so_far = {}};
  parts.device.ends_early = [this](Step last) { loop_->ends_early(last); };
  parts.device.sums_are_common = sums_are_common();
  parts.device.trace = trace_.device_actor;
  parts.device.recorded.push_back({*work_.stream, work_.programs});
  if (joined_.plan.uses_nccl() && joined_.plan.has_two_levels())
    parts.device.recorded.push_back({*lane_resources_->node_streams.front(), lane_resources_->node_programs});
  keep_progress(parts.device);
  parts.report.trace = trace_.reporter_actor;
  parts.evaluator_trace = trace_.evaluator_actor;
  parts.membership_trace = trace_.membership_actor;
  parts.coordinator_trace = trace_.step_coordinator;
  parts.device.awaits_verdicts = settings().evaluate.patience != 0;
  for (const auto& group : work_.hosted) {
    if (!group) continue;
    for (caf::actor& actor : group->actors()) parts.hosting.push_back(std::move(actor));
  }
  parts.device.digests = digest_plan();
  if (auto texts = text_plan()) parts.device.texts.emplace(std::move(*texts));
  for (const Parameter& parameter : joined_.graph.parameters()) parts.tensors.push_back(parameter.name);
  parts.device.order_within = 2 * settings().faults.exchange;  // rank 0 may wait for the others so long
  if (options_.own_samples == 0) add_loader(parts);
  if (!is_alone()) parts.balancer.emplace(balancer_parts());
  if (saves()) parts.checkpoints.emplace(checkpointer_parts());
  if (resumed_) {
    const EpochSoFar& epoch = resumed_->manifest().epoch;
    parts.so_far.line_sums = {.loss = epoch.loss, .correct = epoch.correct, .samples = epoch.samples};
  }
  if (before_) parts.so_far = before_->report;
  actors_ = std::make_unique<TrainingActors>(system_, std::move(parts));
}

void View::add_loader(TrainingParts& parts) {
  const Ledger ledger = joined_.ledger(schedule_, places_[0].rows);
  const bool blocks =
      joined_.data.train != nullptr && (joined_.data.train->reads_files() || joined_.data.test->reads_files());
  data_threads_ = std::make_unique<IoThreads>("data", std::max(joined_.plan.decoding_threads, blocks ? 1U : 0U));
  if (!joined_.plan.node_loader) {
    parts.loader.emplace(LoaderParts{*pool_, *joined_.data.train, *joined_.data.test, joined_.batch, schedule_,
                                     joined_.self(), *data_threads_, joined_.plan.seed, ledger, trace_.loader_actor});
    return;
  }
  parts.lent = pool_.get();
  if (!leads_node()) return;
  NodeLoaderParts loader{space_, *joined_.data.train, *joined_.data.test, joined_.batch, schedule_,
                         {},     *data_threads_,      joined_.plan.seed,  ledger,        trace_.loader_actor};
  for (const RankPlan& rank : joined_.plan.ranks) {
    if (rank.node != joined_.mine().node) continue;
    loader.ranks.push_back(rank.rank);
    // Otherwise this memory is mapped already.
    if (joined_.plan.uses_transport() && !joined_.plan.has_two_levels() && rank.rank != joined_.self())
      map_arena(rank.rank);
  }
  parts.node_loader.emplace(std::move(loader));
}

std::optional<SavePlan> View::save_plan() const {
  if (!saves()) return {};
  return SavePlan{.every_steps = settings().checkpoint.every_steps,
                  .evaluated = settings().checkpoint.keep_best,
                  .first_number = places_[0].start.first_number,
                  .parts = copies_of(snapshot_pieces())};
}

CheckpointerParts View::checkpointer_parts() {
  const CheckpointStart& start = places_[0].start;
  io_ = std::make_unique<IoThreads>("io", 1);
  CheckpointManifest manifest{.seed = joined_.plan.seed, .model = joined_.plan.model};
  manifest.groups.clear();
  for (const GroupPlan& group : joined_.plan.groups)
    manifest.groups.push_back(
        {.name = group.name, .rule = std::string(name_of(group.kind)), .parameters = group.parameters});
  manifest.plan = joined_.plan.to_string();
  manifest.run = start.run;
  manifest.first_run = first_run_;
  manifest.roll_backs = lineage_.roll_backs;
  for (const Parameter& parameter : joined_.graph.parameters()) manifest.shapes[parameter.name] = parameter.extents;
  for (const EffectiveValue& value : options_.configuration.values)
    manifest.settings.push_back(text(value.key, " = ", value.value, "  # ", value.origin));
  CheckpointerParts parts{.store = CheckpointStore(checkpoint_folder(settings())),
                          .io = *io_,
                          .space = space_,
                          .self = joined_.self(),
                          .ranks = joined_.plan.world_size(),
                          .pieces = snapshot_pieces(),
                          .schedule = schedule_,
                          .keep = settings().checkpoint.keep,
                          .save_within = settings().checkpoint.save,
                          .manifest = std::move(manifest)};
  if (resumed_) parts.epoch = resumed_->manifest().epoch;
  if (before_) parts.epoch = before_->epoch;
  parts.retired = [this](const EpochSoFar& epoch) { left_->epoch = epoch; };
  parts.note = [this](const std::string& what) { note(what); };
  parts.trace = trace_.checkpointer_actor;
  parts.io_trace = trace_.files;
  return parts;
}

BalancerParts View::balancer_parts() {
  const SharesOptions options{.adapts = joined_.plan.measured,
                              .range = joined_.plan.range,
                              .rows = places_[0].rows,
                              .ahead = joined_.steps_ahead()};
  BalancerParts parts{.schedule = schedule_,
                      .self = joined_.self(),
                      .options = options,
                      .ledger = joined_.ledger(schedule_, places_[0].rows),
                      .times = [this] { return work_.stream->times(); },
                      .windows = {},
                      .trace = trace_.balancer_actor};
  if (leads_job()) parts.windows = [this](const ShareWindow& window) { note_shares(window); };
  return parts;
}

ShareWindow View::newest_window() const {
  const std::lock_guard lock(record_->mutex);
  return record_->window;
}

/// Notes what changed, and, if it is new, which ranks the others wait for.
void View::note_shares(const ShareWindow& window) {
  {
    const std::lock_guard lock(record_->mutex);
    record_->window = window;
  }
  if (window.change) {
    record_->shares_measured = window.change->span;
    note(to_string(*window.change, window));
  }
  switch_for_straggler(window);
  if (!window.straggler || window.straggler == record_->straggler) return;
  record_->straggler = window.straggler;
  note(to_string(*window.straggler, window));
}

ReportTargets View::report_targets() {
  ReportTargets targets;
  ListenerThread* const listener = listener_;
  targets.line = [this, listener](EpochReport line) {
    {
      const std::lock_guard lock(record_->mutex);
      line.ranks = record_->window.ranks;
    }
    line.switches = take_switches(line.steps);
    line.loss_scale = loss_scale_before(line.steps);
    note_not_finite(line);
    record_->result.epochs.push_back(line);
    if (listener != nullptr) listener->epoch(line);
  };
  // The first group's, as the other figures.
  const auto policies =
      std::make_shared<const PolicySequence>(joined_.plan.groups.front().policies, joined_.plan.world_size());
  targets.rate = [this, rate = rate(settings().rule), policies](Step step) {
    const std::uint64_t before = schedule_.samples_before(step);
    return rate.at(before, schedule_.global_rows(step) * policies->at(step, before).accumulate);
  };
  targets.skipped = [this](const StepSums& total) { return is_skipped(settings().rule, total); };
  targets.total = [this](const RunTotal& total) { record_->result.total = total; };
  targets.retired = [this](const ReportSoFar& report) { left_->report = report; };
  if (record_->early_stop) targets.tested = [this](Step step, const EpochReport& line) { take_evaluation(step, line); };
  targets.texts = settings().evaluate.text.bytes != 0;
  targets.value_ranks = joined_.plan.world_size();
  targets.values_within = settings().faults.exchange / 2;
  targets.times = [this] { return work_.stream->times(); };  // the actors end before the stream
  if (listener != nullptr && has_step_lines(settings().report.format)) {
    targets.steps = [listener](const StepsReport& part) { listener->steps(part); };
    targets.steps_every = settings().report.every_steps;
  }
  if (listener != nullptr) targets.progress = [listener](const RunProgress& progress) { listener->progress(progress); };
  if (!options_.every_step && !options_.time_limit) return targets;
  targets.step = [this, listener](Step step, const StepSums& total) {
    if (listener != nullptr && options_.every_step) listener->step(step, total);
    if (!options_.time_limit) return;
    if (!record_->time_limit) record_->time_limit = Deadline::after(*options_.time_limit);
    if (record_->time_limit->passed()) request_stop();
  };
  return targets;
}

}  // namespace troupe
