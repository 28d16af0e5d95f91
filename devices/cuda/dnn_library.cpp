#include "devices/cuda/dnn_library.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <variant>

#include "devices/cuda/dnn_trial.hpp"
#include "devices/cuda/engine_timer.hpp"
#include "devices/cuda/library_choice.hpp"
#include "runtime/base/user_cache.hpp"

namespace troupe::cuda {
namespace {

constexpr LibraryChoice kChoice{"TROUPE_CUDA_CONVOLUTIONS", "cudnn", "convolutions"};
constexpr const char* kFile = "libcudnn.so.9";
constexpr std::size_t kMajorVersion = 9;
/// For making plans of a form's engines and measuring them; no longer than so many runs of the fastest one so far take,
/// which is the most that can be gained in as many steps. What takes a few kernels' launches is fast enough, and own
/// kernels that take one or two. Of own kernels that take long, one run tells the time well enough.
constexpr std::chrono::milliseconds kMostTime{300};
constexpr float kMostRuns = 5'000, kShortMicroseconds = 8, kShortestMicroseconds = 4, kLongMicroseconds = 100;
/// Source: NVIDIA's front end for cuDNN. Before 9.16, gradients for texts whose length is no multiple of 128 need
/// another graph, and 9.10 computes some of them wrong.
constexpr std::size_t kOldestForAttention = 91600;

/// Before version 9 the major one stood before three digits.
std::string text_of_version(std::size_t version) {
  return version < 10000 ? text(version / 1000, ".", version / 100 % 10, ".", version % 100)
                         : text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

/// Whether the library compiles a kernel for each plan of such a form, which takes about a second.
bool compiles_kernels(const DnnForm& form) noexcept { return std::holds_alternative<AttentionForm>(form); }

[[noreturn]] void fail_dnn(const dnn::Library& library, dnn::Status status, const char* what, const Gpu& gpu) {
  const bool lacks_memory =
      status == dnn::Status::host_allocation_failed || status == dnn::Status::device_allocation_failed;
  fail(lacks_memory ? Code::out_of_memory : Code::device_fault,
       text("cuDNN", what, " on ", gpu.name(), ": ", library.get_error_string(status)));
}

/// The file for this kind of GPU; empty: the user has no folder for it.
EngineChoices choices_for(const Gpu& gpu, std::size_t version) {
  const std::string folder = user_cache_folder();
  if (folder.empty()) return {};
  int driver = 0;
  (void)gpu.driver().driver_get_version(&driver);
  std::string name = gpu.model();
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return {text(folder, "/cudnn-", name, ".txt"),
          text(gpu.model(), ", cuDNN ", text_of_version(version), ", driver ", driver)};
}

}  // namespace

std::unique_ptr<DnnLibrary> DnnLibrary::open(std::shared_ptr<const Gpu> gpu, const DnnOptions& options,
                                             std::string& why) {
  const std::string choice = read_choice(kChoice, options.choice);
  why = "as TROUPE_CUDA_CONVOLUTIONS or the device's options ask";
  if (choice == "own") return nullptr;
  std::unique_ptr<DnnLibrary> opened;
  if (const auto found = dnn::Library::load(why, options.file.empty() ? kFile : options.file.c_str())) {
    try {
      opened = std::make_unique<DnnLibrary>(std::move(gpu), *found, options.tf32);
    } catch (const Error& error) {
      why = error.what();
    }
  }
  TROUPE_CHECK(opened != nullptr || choice.empty(), Code::environment, "there is no usable cuDNN (", why,
               "): add the folder of libcudnn.so.9 to LD_LIBRARY_PATH, or leave TROUPE_CUDA_CONVOLUTIONS out");
  return opened;
}

DnnLibrary::DnnLibrary(std::shared_ptr<const Gpu> gpu, const dnn::Library& library, bool tf32)
    : gpu_(std::move(gpu)), library_(library), tf32_(tf32) {
  const std::size_t version = library_.get_version();
  TROUPE_CHECK(version / 10000 == kMajorVersion, Code::unsupported, "cuDNN ", text_of_version(version),
               " is not one of version ", kMajorVersion);
  gpu_->use();
  TROUPE_CUDA(gpu_->driver(), stream_create_with_priority(&trials_, kStreamNonBlocking, 0), "a stream to record on");
  if (const dnn::Status made = library_.create(&handle_); made != dnn::Status::success) {
    (void)gpu_->driver().stream_destroy(trials_);
    fail_dnn(library_, made, ", a handle", *gpu_);
  }
  has_clock_ = EngineTimer::has_clock(*gpu_, trials_);
  choices_ = choices_for(*gpu_, version);
}

// Streams have ended: nobody uses the handle, or a plan of it.
DnnLibrary::~DnnLibrary() {
  choices_.save();
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  plans_.clear();
  (void)library_.destroy(handle_);
  (void)gpu_->driver().stream_destroy(trials_);
}

std::string DnnLibrary::name() const {
  const std::lock_guard lock{mutex_};
  const auto noted = [](const std::string& note) { return note.empty() ? "" : text(" (", note, ")"); };
  return text("cuDNN ", text_of_version(library_.get_version()), tf32_ ? " in TF32" : "", noted(choices_.note()),
              noted(refused_));
}

const DnnPlan* DnnLibrary::plan(const DnnOperation& what, const Workspace& workspace) {
  return find(what, workspace, /*in_step=*/false);
}

const DnnPlan* DnnLibrary::plan_in_step(const DnnOperation& what, const Workspace& workspace) {
  return find(what, workspace, /*in_step=*/true);
}

const DnnPlan* DnnLibrary::find(const DnnOperation& what, const Workspace& workspace, bool in_step) {
  const std::lock_guard lock{mutex_};
  auto found = plans_.find(what.form);
  // That there is none stays so: attention and its gradient, enqueued one after the other, must find the same.
  if (found == plans_.end()) found = plans_.emplace(what.form, choose(what, workspace, in_step)).first;
  const std::optional<DnnPlan>& plan = found->second;
  // Chosen for another replica, perhaps, with more memory.
  return plan && (plan->workspace_bytes == 0 || workspace(plan->workspace_bytes) != nullptr) ? &*plan : nullptr;
}

std::optional<DnnPlan> DnnLibrary::choose(const DnnOperation& what, const Workspace& workspace, bool in_step) {
  if (std::holds_alternative<AttentionForm>(what.form) && library_.get_version() < kOldestForAttention)
    return std::nullopt;
  if (in_step && compiles_kernels(what.form)) return std::nullopt;
  gpu_->use();
  const auto graph = std::make_shared<const DnnGraph>(library_, handle_, what.form);
  if (!graph->ok()) return std::nullopt;
  const std::string problem = text(text_of(what.form), tf32_ ? " tf32" : "");
  if (const EngineChoice* const known = choices_.find(problem)) {
    if (known->engine == EngineChoice::kOwn) return std::nullopt;
    if (auto plan = try_out(*graph, *known, what.places, workspace)) return plan;
  }
  if (!in_step) return choose_anew(*graph, what, workspace, problem);
  std::optional<DnnPlan> plan;
  for (const EngineChoice& choice : choices_of_others(what.form))
    if (!plan) plan = try_out(*graph, choice, what.places, workspace);
  if (plan) choices_.add(problem, plan->choice);
  return plan;
}

std::optional<DnnPlan> DnnLibrary::choose_anew(const DnnGraph& graph, const DnnOperation& what,
                                               const Workspace& workspace, const std::string& problem) {
  if (has_clock_ && EngineTimer::can_measure(what.form)) {
    try {
      EngineTimer timer{gpu_, trials_, what.form};
      return fastest_that_is_right(graph, what, workspace, problem, timer);
    } catch (const Error& error) {  // of memory for tensors there is too little
      if (error.code() != Code::out_of_memory) throw;
    }
  }
  std::optional<DnnPlan> plan = first_that_is_right(graph, what, workspace);
  if (plan) choices_.add(problem, plan->choice);
  return plan;
}

/// Plans for the proposals that can be recorded, with their times, the fastest one first. Heuristics have put first
/// what they expect to be fast, so making plans and measuring them may end before the last one. `best`: the least time.
std::vector<DnnPlan> DnnLibrary::by_time(const DnnGraph& graph, const std::string& problem, EngineTimer& timer,
                                         float& best) {
  std::vector<DnnPlan> found;
  std::vector<EngineChoice> seen;
  const auto begin = std::chrono::steady_clock::now();
  const auto is_enough = [&] {
    const std::chrono::duration<float, std::micro> worth{best <= kShortMicroseconds ? 0 : kMostRuns * best};
    return !found.empty() && std::chrono::steady_clock::now() - begin > std::min<decltype(worth)>(kMostTime, worth);
  };
  for (const auto mode : {dnn::HeuristicsMode::a, dnn::HeuristicsMode::b, dnn::HeuristicsMode::fallback}) {
    if (is_enough()) break;
    for (const EngineChoice& choice : graph.proposals(mode)) {
      if (is_enough()) break;
      if (std::ranges::find(seen, choice) != seen.end()) continue;
      seen.push_back(choice);
      std::optional<DnnPlan> plan = graph.plan(choice, tf32_);
      if (!plan) continue;
      std::byte* const memory = plan->workspace_bytes == 0 ? nullptr : timer.workspace(plan->workspace_bytes);
      if (memory == nullptr && plan->workspace_bytes != 0) continue;
      const DnnCall call{&*plan, timer.places(), memory};
      std::optional<float> time;
      try {
        time = timer.time_of([&] { return run(call, trials_) == dnn::Status::success; }, best);
      } catch (const Error& error) {
        fail(error.code(), text("measuring engine ", choice.engine, " of cuDNN for ", problem, ": ", error.what()));
      }
      if (!time) continue;
      plan->choice.microseconds = *time;
      best = std::min(best, *time);
      found.push_back(*std::move(plan));
    }
  }
  std::ranges::stable_sort(found, {}, [](const DnnPlan& plan) { return plan.choice.microseconds; });
  return found;
}

std::optional<DnnPlan> DnnLibrary::fastest_that_is_right(const DnnGraph& graph, const DnnOperation& what,
                                                         const Workspace& workspace, const std::string& problem,
                                                         EngineTimer& timer) {
  float best = std::numeric_limits<float>::max();
  const std::optional<float> own = timer.time_of_own(kLongMicroseconds);
  const auto take_own = [&] { choices_.add(problem, {.engine = EngineChoice::kOwn, .microseconds = *own}); };
  // No engine is asked for where little can be gained.
  if (own && *own <= kShortestMicroseconds) return take_own(), std::nullopt;
  if (own) best = *own;
  std::vector<DnnPlan> plans = by_time(graph, problem, timer, best);
  if (own && plans.empty()) return take_own(), std::nullopt;
  for (DnnPlan& plan : plans) {
    if (own && *own < plan.choice.microseconds) return take_own(), std::nullopt;
    if (plan.workspace_bytes != 0 && workspace(plan.workspace_bytes) == nullptr) continue;
    if (!is_right(what.form, plan.choice, workspace)) continue;
    choices_.add(problem, plan.choice);
    return std::move(plan);
  }
  if (own) return take_own(), std::nullopt;
  std::optional<DnnPlan> plan = first_that_is_right(graph, what, workspace);
  if (plan) choices_.add(problem, plan->choice);
  return plan;
}

std::optional<DnnPlan> DnnLibrary::first_that_is_right(const DnnGraph& graph, const DnnOperation& what,
                                                       const Workspace& workspace) {
  for (const auto mode : {dnn::HeuristicsMode::a, dnn::HeuristicsMode::fallback})
    for (const EngineChoice& choice : graph.proposals(mode))
      if (auto plan = try_out(graph, choice, what.places, workspace); plan && is_right(what.form, choice, workspace))
        return plan;
  return std::nullopt;
}

/// Whether an engine computes what kernels of ours do, on a small form, and gives the same bits when it runs again.
/// Where there is no memory to see that, it is not taken.
bool DnnLibrary::is_right(const DnnForm& form, const EngineChoice& choice, const Workspace& workspace) {
  const DnnForm small = form_to_try(form);
  const auto run_small = [&](const DnnForm& one, const DnnPlaces& places) {
    // Another form is that of the pass before, for which there is a choice.
    const EngineChoice* const by = one == small ? &choice : chosen_for(one);
    const auto graph = std::make_shared<const DnnGraph>(library_, handle_, one);
    auto plan = graph->ok() && by != nullptr ? graph->plan(*by, tf32_) : std::nullopt;
    if (!plan) return false;
    std::byte* const memory = plan->workspace_bytes == 0 ? nullptr : workspace(plan->workspace_bytes);
    if (memory == nullptr && plan->workspace_bytes != 0) return false;
    const bool has_run = run({&*plan, places, memory}, trials_) == dnn::Status::success;
    // An engine that uses a wrong address ends all work of this process on the GPU: the error names it.
    TROUPE_CUDA(gpu_->driver(), stream_synchronize(trials_), "trying engine ", by->engine, " of cuDNN for ",
                text_of(one));
    return has_run;
  };
  try {
    DnnTrial trial{gpu_, trials_, run_small};
    const double apart = trial.distance(small);
    const bool is_near = apart <= most_distance(type_of(form), tf32_);
    if (is_near && trial.has_same_bits()) return true;
    if (refused_.empty() && !std::isnan(apart))
      refused_ = text("not engine ", choice.engine, " for ", text_of(form), ": its results ",
                      is_near ? std::string{"have other bits when it runs again"}
                              : text("differ from those of own kernels by ", apart));
  } catch (const Error& error) {
    if (error.code() != Code::out_of_memory) throw;
    if (refused_.empty()) refused_ = text("there is no memory to try it out for ", text_of(form));
  }
  return false;
}

/// For a form of which this one is tried; null: for none.
const EngineChoice* DnnLibrary::chosen_for(const DnnForm& form) const {
  for (const auto& [other, plan] : plans_)
    if (plan && (of_rows(other, rows_of(form)) == form || form_to_try(other) == form)) return &plan->choice;
  return nullptr;
}

/// For the same of other numbers of rows.
std::vector<EngineChoice> DnnLibrary::choices_of_others(const DnnForm& form) const {
  std::vector<EngineChoice> found;
  for (const auto& [other, plan] : plans_) {
    if (plan && of_rows(other, rows_of(form)) == form && std::ranges::find(found, plan->choice) == found.end())
      found.push_back(plan->choice);
  }
  return found;
}

std::optional<DnnPlan> DnnLibrary::try_out(const DnnGraph& graph, const EngineChoice& choice, const DnnPlaces& places,
                                           const Workspace& workspace) {
  std::optional<DnnPlan> plan = graph.plan(choice, tf32_);
  if (!plan) return std::nullopt;
  std::byte* const memory = plan->workspace_bytes == 0 ? nullptr : workspace(plan->workspace_bytes);
  if (memory == nullptr && plan->workspace_bytes != 0) return std::nullopt;
  return can_be_recorded({&*plan, places, memory}) ? std::move(plan) : std::nullopt;
}

bool DnnLibrary::can_be_recorded(const DnnCall& call) {
  const Driver& driver = gpu_->driver();
  TROUPE_CUDA(driver, stream_begin_capture(trials_, CaptureMode::thread_local_), "recording engine ",
              call.plan->choice.engine, " of cuDNN");
  const bool is_taken = run(call, trials_) == dnn::Status::success;
  GraphHandle graph = nullptr;
  const bool is_recorded = driver.stream_end_capture(trials_, &graph) == Result::success && graph != nullptr;
  if (graph != nullptr) (void)driver.graph_destroy(graph);
  return is_taken && is_recorded;
}

void DnnLibrary::save_choices() noexcept {
  const std::lock_guard lock{mutex_};
  choices_.save();
}

dnn::Status DnnLibrary::run(const DnnCall& call, StreamHandle stream) {
  const dnn::Status set = library_.set_stream(handle_, static_cast<dnn::StreamHandle>(stream));
  return set == dnn::Status::success ? execute(library_, handle_, call) : set;
}

void DnnLibrary::enqueue(void* stream, std::span<const std::byte> what) {
  DnnCall call{};
  TROUPE_CHECK(what.size() == sizeof call, Code::invalid, "a call of cuDNN is ", sizeof call, " bytes, not ",
               what.size());
  std::memcpy(&call, what.data(), sizeof call);
  const std::lock_guard lock{mutex_};
  const dnn::Status status = run(call, static_cast<StreamHandle>(stream));
  if (status != dnn::Status::success) fail_dnn(library_, status, "", *gpu_);
}

}  // namespace troupe::cuda
