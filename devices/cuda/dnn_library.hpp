#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "devices/cuda/dnn_plan.hpp"
#include "devices/cuda/gpu.hpp"
#include "runtime/compute/library_stream.hpp"

namespace troupe::cuda {

class EngineTimer;

/// Which library a device computes convolutions and attention by.
struct DnnOptions {
  std::string choice;  // cudnn: it must be there; own: kernels of ours; empty: what is found
  std::string file;    // of the library; empty: libcudnn.so.9
  bool tf32 = false;   // operands in f32 may be rounded to TF32
};

/// Gives memory of at least so many bytes for plans to work in; null: there is none.
using Workspace = std::function<std::byte*(std::uint64_t size_bytes)>;

/// Convolutions and attention by cuDNN, opened at run time. How a form is computed is chosen once and kept in a file
/// for the next run: of convolutions by the time that each engine and kernels of ours take on this GPU; of attention,
/// and where the driver has no clock, by the library's model of how fast its engines are. An engine that was never
/// chosen before runs once beside kernels of ours, and is taken only where both give the same. Threads: any.
///
/// As with products (product_library.hpp), what it enqueues does not check the stream's flag, so its results may be
/// only in memory that no other rank reads.
class DnnLibrary final : public LibraryCalls {
 public:
  /// The most that a replica takes for plans.
  static constexpr std::uint64_t kMostWorkspace = std::uint64_t{256} << 20;

  /// Null if kernels of ours are to be used; `why` then is the reason. Throws Error{invalid} for another choice than
  /// those above, Error{environment} where the library must be there and is not.
  static std::unique_ptr<DnnLibrary> open(std::shared_ptr<const Gpu> gpu, const DnnOptions& options, std::string& why);
  /// Throws Error{unsupported} for a version that is too old or too new, Error{device_fault}, Error{out_of_memory}
  /// where the library does not start.
  DnnLibrary(std::shared_ptr<const Gpu> gpu, const dnn::Library& library, bool tf32);
  ~DnnLibrary();
  DnnLibrary(const DnnLibrary&) = delete;
  DnnLibrary& operator=(const DnnLibrary&) = delete;

  /// "cuDNN 9.19.0", and notes about the file of choices and about engines that were refused.
  std::string name() const;
  /// Null: cuDNN has no plan for the form, no plan for which there is memory, none with the results of kernels of ours,
  /// or these are faster. A plan is recorded once when it is chosen, on a stream of its own on which it never runs: so
  /// a plan that cannot be recorded is not chosen, and whatever the library loads when a plan is first used is loaded
  /// here. `workspace` is called during the call.
  const DnnPlan* plan(const DnnOperation& what, const Workspace& workspace);
  /// The same in a step, in which there is no time to ask the library for an engine and to try it: returns a plan with
  /// an engine that was chosen in an earlier run, or for another number of rows, if there is one. For attention, whose
  /// plans have to be compiled, only what plan() has chosen.
  const DnnPlan* plan_in_step(const DnnOperation& what, const Workspace& workspace);
  /// Writes what was chosen to the file: blocks.
  void save_choices() noexcept;
  /// `what` is a DnnCall.
  void enqueue(void* stream, std::span<const std::byte> what) override;

 private:
  const DnnPlan* find(const DnnOperation& what, const Workspace& workspace, bool in_step);
  std::optional<DnnPlan> choose(const DnnOperation& what, const Workspace& workspace, bool in_step);
  std::optional<DnnPlan> choose_anew(const DnnGraph& graph, const DnnOperation& what, const Workspace& workspace,
                                     const std::string& problem);
  std::vector<EngineChoice> choices_of_others(const DnnForm& form) const;
  std::optional<DnnPlan> try_out(const DnnGraph& graph, const EngineChoice& choice, const DnnPlaces& places,
                                 const Workspace& workspace);
  bool can_be_recorded(const DnnCall& call);
  std::optional<DnnPlan> first_that_is_right(const DnnGraph& graph, const DnnOperation& what,
                                             const Workspace& workspace);
  std::vector<DnnPlan> by_time(const DnnGraph& graph, const std::string& problem, EngineTimer& timer, float& best);
  std::optional<DnnPlan> fastest_that_is_right(const DnnGraph& graph, const DnnOperation& what,
                                               const Workspace& workspace, const std::string& problem,
                                               EngineTimer& timer);
  bool is_right(const DnnForm& form, const EngineChoice& choice, const Workspace& workspace);
  const EngineChoice* chosen_for(const DnnForm& form) const;
  dnn::Status run(const DnnCall& call, StreamHandle stream);

  const std::shared_ptr<const Gpu> gpu_;
  const dnn::Library library_;
  const bool tf32_;
  dnn::Handle handle_ = nullptr;
  StreamHandle trials_ = nullptr;
  bool has_clock_ = false;    // the driver measures how long engines take
  mutable std::mutex mutex_;  // guards what follows, and the handle's stream
  EngineChoices choices_;
  std::map<DnnForm, std::optional<DnnPlan>> plans_;  // none: there is no plan
  std::string refused_;                              // an engine that gave other results, and how far they were off
};

}  // namespace troupe::cuda
