#include "apps/session/view.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>

#include "apps/session/device_kinds.hpp"
#include "apps/session/host_replica.hpp"
#include "devices/cpu/try_threads.hpp"
#include "runtime/compute/library_stream.hpp"
#include "runtime/onnx/onnx_import.hpp"
#include "runtime/planning/planner.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// Additional bytes for alignment and small objects in the arena of a rank whose device has its own memory.
constexpr std::uint64_t kLeftInArena = 64 << 10;

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
      so_far_(before_ ? before_->so_far : std::make_shared<RunSoFar>(job)) {
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
  const CoordinatorHandles own = actors_->for_other_ranks();
  publish("membership", own.membership);
  publish("evaluator", own.evaluator);
  publish("reporter", own.values);
  publish("steps", own.steps);
  publish("checkpointer", own.checkpointer);
  publish("balancer", own.balancer);
  publish("sums", own.sums);
  publish("digests", own.digests);
  publish("loader", own.loader);
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
    note(text("warning: ", ranks - kMostMisplaced, " more ranks are not where the plan places them (`rtrun plan`)"));
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

void View::note_resumed(const CheckpointStart& start) {
  if (listener_) listener_->resumed(start.folder, schedule_.first_step);
  const std::string from = CheckpointStore(start.folder).folder_of(start.id);
  if (start.over)
    return note(text(so_far_->early_stop_reason(), ": nothing is left to train after step ", schedule_.first_step,
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
GatheredPlace View::own_place(Blocking& blocking) {
  GatheredPlace mine{.plan_hash = joined_.plan.hash(),
                     .settings_hash = options_.configuration.hash(),
                     .arena = arena_->ticket(),
                     .device_memory = uses_device_memory()};
  if (makes_nccl_ids()) {
    for (std::size_t group = 0; group < joined_.plan.groups.size(); ++group) mine.nccl.push_back(make_nccl_id());
  }
  if (!leads_job()) return mine;
  if (before_) {
    mine.start = before_->start;
    if (so_far_->shares_measured) mine.rows = so_far_->shares_measured->rows;
    return mine;
  }
  lock_checkpoints(blocking);
  mine.start = decide_start(blocking, settings(), [this](const std::string& what) { note(what); });
  if (!lineage_.run.empty()) mine.start.run = lineage_.run;
  if (job_.checkpoints_lock) job_.checkpoints_lock->name("run " + mine.start.run);
  so_far_->begin_early_stop(mine.start, lineage_.run.empty() ? nullptr : &lineage_.evaluations);
  if (!mine.start.folder.empty()) check_fits(mine.start, joined_);  // rank 0 checks it for all
  return mine;
}

/// Sends the other ranks this rank's place, checks that all have made the same plan, and connects to all of them.
void View::exchange_places(Blocking& blocking) {
  const GatheredPlace mine = own_place(blocking);
  const auto blobs =
      gather_at_start(blocking, job_.group(), text("view ", view_.value, ": places"), encode(mine), deadline_);
  for (std::uint32_t rank = 0; rank < blobs.size(); ++rank) {
    const GatheredPlace& place = places_.emplace_back(decode_place(blobs[rank]));
    TROUPE_CHECK(place.plan_hash == mine.plan_hash, Code::invalid, "rank ", rank, " made plan ",
                 hexadecimal(place.plan_hash), ", rank ", joined_.place.rank, " made ", hexadecimal(mine.plan_hash),
                 ": give every rank the same app.toml, --set options and data (compare their `rtrun plan`)");
    TROUPE_CHECK(place.settings_hash == mine.settings_hash, Code::invalid, "rank ", rank,
                 " has other settings than rank ", joined_.place.rank,
                 ": give every rank the same app.toml and --set options (compare their `rtrun check`)");
    TROUPE_CHECK(place.device_memory == mine.device_memory, Code::unsupported, "rank ",
                 mine.device_memory ? joined_.place.rank : rank, " trains in its device's memory, rank ",
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
    note(text(store.folder(), ": this file system has no locks; make sure that no other job saves there"));
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
  // A replica's own stream waits as long as the replica lives.
  if (traits.memory == MemoryKind::device) copies_->prepare();
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
  if (options_.make_device) {
    std::unique_ptr<Device> device = options_.make_device(context);
    TROUPE_CHECK(device, Code::invalid,
                 "SessionOptions::make_device returned no device; leave it empty for a device "
                 "of placement.device");
    return device;
  }
  return make_planned_device(context,
                             {.cpu_threads = [&] { return threads_for(mine); }, .tf32 = settings().model.tf32});
}

/// As many as its plan says, or as the trial of the run's first view chose.
std::uint32_t View::threads_for(const RankPlan& mine) {
  const bool tries = settings().placement.device_threads.tried && mine.device_threads > 1 && !options_.model;
  if (!tries) return mine.device_threads;
  if (so_far_->device_threads == 0) {
    const ThreadTrial trial = try_threads(joined_.graph, joined_.plan.batch, mine.device_threads);
    so_far_->device_threads = trial.chosen;
    note(text("device threads of rank ", joined_.self().value, ": ", text_of(trial),
              " (placement.device_threads = ", trial.chosen, " fixes it)"));
  }
  return so_far_->device_threads;
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

}  // namespace troupe
