#include "devices/cuda/convolution_library.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "devices/cuda/library_choice.hpp"
#include "runtime/base/user_cache.hpp"

namespace troupe::cuda {
namespace {

constexpr LibraryChoice kChoice{"TROUPE_CUDA_CONVOLUTIONS", "cudnn", "convolutions"};
constexpr const char* kFile = "libcudnn.so.9";
constexpr std::size_t kMajorVersion = 9;

std::string text_of_version(std::size_t version) {
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

[[noreturn]] void fail_convolution(const dnn::Library& library, dnn::Status status, const char* what, const Gpu& gpu) {
  const bool lacks_memory =
      status == dnn::Status::host_allocation_failed || status == dnn::Status::device_allocation_failed;
  fail(lacks_memory ? Code::out_of_memory : Code::device_fault,
       text("cuDNN, ", what, " on ", gpu.name(), ": ", library.get_error_string(status)));
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

std::unique_ptr<ConvolutionLibrary> ConvolutionLibrary::open(std::shared_ptr<const Gpu> gpu,
                                                             const ConvolutionOptions& options, std::string& why) {
  const std::string choice = read_choice(kChoice, options.choice);
  why = "as TROUPE_CUDA_CONVOLUTIONS or the device's options ask";
  if (choice == "own") return nullptr;
  std::unique_ptr<ConvolutionLibrary> opened;
  if (const auto found = dnn::Library::load(why, options.file.empty() ? kFile : options.file.c_str())) {
    try {
      opened = std::make_unique<ConvolutionLibrary>(std::move(gpu), *found, options.tf32);
    } catch (const Error& error) {
      why = error.what();
    }
  }
  TROUPE_CHECK(opened != nullptr || choice.empty(), Code::environment, "there is no usable cuDNN (", why,
               "): add the folder of libcudnn.so.9 to LD_LIBRARY_PATH, or leave TROUPE_CUDA_CONVOLUTIONS out");
  return opened;
}

ConvolutionLibrary::ConvolutionLibrary(std::shared_ptr<const Gpu> gpu, const dnn::Library& library, bool tf32)
    : gpu_(std::move(gpu)), library_(library), tf32_(tf32) {
  const std::size_t version = library_.get_version();
  TROUPE_CHECK(version / 10000 == kMajorVersion, Code::unsupported, "cuDNN ", text_of_version(version),
               " is not one of version ", kMajorVersion);
  gpu_->use();
  TROUPE_CUDA(gpu_->driver(), stream_create_with_priority(&trials_, kStreamNonBlocking, 0), "a stream to record on");
  if (const dnn::Status made = library_.create(&handle_); made != dnn::Status::success) {
    (void)gpu_->driver().stream_destroy(trials_);
    fail_convolution(library_, made, "a handle", *gpu_);
  }
  choices_ = choices_for(*gpu_, version);
}

// Streams have ended: nobody uses the handle, or a plan of it.
ConvolutionLibrary::~ConvolutionLibrary() {
  choices_.save();
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  plans_.clear();
  (void)library_.destroy(handle_);
  (void)gpu_->driver().stream_destroy(trials_);
}

std::string ConvolutionLibrary::name() const {
  const std::string note = choices_.note().empty() ? "" : text(" (", choices_.note(), ")");
  return text("cuDNN ", text_of_version(library_.get_version()), tf32_ ? " in TF32" : "", note);
}

const ConvolutionPlan* ConvolutionLibrary::plan(const LibraryConvolution& what, const Workspace& workspace) {
  return find(what, workspace, /*in_step=*/false);
}

const ConvolutionPlan* ConvolutionLibrary::plan_in_step(const LibraryConvolution& what, const Workspace& workspace) {
  return find(what, workspace, /*in_step=*/true);
}

const ConvolutionPlan* ConvolutionLibrary::find(const LibraryConvolution& what, const Workspace& workspace,
                                                bool in_step) {
  const std::lock_guard lock{mutex_};
  auto found = plans_.find(what.form);
  if (found == plans_.end()) found = plans_.emplace(what.form, choose(what, workspace, in_step)).first;
  const std::optional<ConvolutionPlan>& plan = found->second;
  // Chosen for another replica, perhaps, with more memory.
  return plan && (plan->workspace_bytes == 0 || workspace(plan->workspace_bytes) != nullptr) ? &*plan : nullptr;
}

std::optional<ConvolutionPlan> ConvolutionLibrary::choose(const LibraryConvolution& what, const Workspace& workspace,
                                                          bool in_step) {
  gpu_->use();
  const auto graph = std::make_shared<const ConvolutionGraph>(library_, handle_, what.form);
  if (!graph->ok()) return std::nullopt;
  const std::string problem = text(text_of(what.form), tf32_ ? " tf32" : "");
  if (const EngineChoice* const known = choices_.find(problem))
    if (auto plan = try_out(*graph, *known, what.places, workspace)) return plan;
  const auto first_of = [&](const std::vector<EngineChoice>& proposed) -> std::optional<ConvolutionPlan> {
    for (const EngineChoice& choice : proposed)
      if (auto plan = try_out(*graph, choice, what.places, workspace)) return plan;
    return std::nullopt;
  };
  std::optional<ConvolutionPlan> plan;
  if (in_step) plan = first_of(choices_of_others(what.form));
  for (const auto mode : {dnn::HeuristicsMode::a, dnn::HeuristicsMode::fallback})
    if (!plan) plan = first_of(graph->proposals(mode));
  if (plan) choices_.add(problem, plan->choice);
  return plan;
}

/// For the same convolution of other numbers of images.
std::vector<EngineChoice> ConvolutionLibrary::choices_of_others(const ConvolutionForm& form) const {
  std::vector<EngineChoice> found;
  for (const auto& [other, plan] : plans_) {
    ConvolutionForm same = other;
    same.images = form.images;
    if (plan && same == form && std::ranges::find(found, plan->choice) == found.end()) found.push_back(plan->choice);
  }
  return found;
}

std::optional<ConvolutionPlan> ConvolutionLibrary::try_out(const ConvolutionGraph& graph, const EngineChoice& choice,
                                                           const ConvolutionPlaces& places,
                                                           const Workspace& workspace) {
  std::optional<ConvolutionPlan> plan = graph.plan(choice, tf32_);
  if (!plan || plan->workspace_bytes > kMostWorkspace) return std::nullopt;
  std::byte* const memory = plan->workspace_bytes == 0 ? nullptr : workspace(plan->workspace_bytes);
  if (memory == nullptr && plan->workspace_bytes != 0) return std::nullopt;
  return can_be_recorded({&*plan, places, memory}) ? std::move(plan) : std::nullopt;
}

bool ConvolutionLibrary::can_be_recorded(const ConvolutionCall& call) {
  const Driver& driver = gpu_->driver();
  TROUPE_CUDA(driver, stream_begin_capture(trials_, CaptureMode::thread_local_), "recording a convolution");
  const bool is_taken = run(call, trials_) == dnn::Status::success;
  GraphHandle graph = nullptr;
  const bool is_recorded = driver.stream_end_capture(trials_, &graph) == Result::success && graph != nullptr;
  if (graph != nullptr) (void)driver.graph_destroy(graph);
  return is_taken && is_recorded;
}

void ConvolutionLibrary::save_choices() noexcept {
  const std::lock_guard lock{mutex_};
  choices_.save();
}

dnn::Status ConvolutionLibrary::run(const ConvolutionCall& call, StreamHandle stream) {
  const dnn::Status set = library_.set_stream(handle_, static_cast<dnn::StreamHandle>(stream));
  return set == dnn::Status::success ? execute(library_, handle_, call) : set;
}

void ConvolutionLibrary::enqueue(void* stream, std::span<const std::byte> what) {
  ConvolutionCall call{};
  TROUPE_CHECK(what.size() == sizeof call, Code::invalid, "a convolution is ", sizeof call, " bytes, not ",
               what.size());
  std::memcpy(&call, what.data(), sizeof call);
  const std::lock_guard lock{mutex_};
  const dnn::Status status = run(call, static_cast<StreamHandle>(stream));
  if (status != dnn::Status::success) fail_convolution(library_, status, "a convolution", *gpu_);
}

}  // namespace troupe::cuda
