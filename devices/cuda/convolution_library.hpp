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

#include "devices/cuda/convolution_plan.hpp"
#include "devices/cuda/gpu.hpp"
#include "runtime/compute/library_stream.hpp"

namespace troupe::cuda {

/// Which library a device computes convolutions by.
struct ConvolutionOptions {
  std::string choice;  // cudnn: it must be there; own: kernels of ours; empty: what is found
  std::string file;    // of the library; empty: libcudnn.so.9
  bool tf32 = false;   // operands in f32 may be rounded to TF32
};

/// Gives memory of at least so many bytes for plans to work in; null: there is none.
using Workspace = std::function<std::byte*(std::uint64_t size_bytes)>;

/// Convolutions by cuDNN, opened at run time. How a form is computed is chosen once, by the library's model of how fast
/// its engines are, and kept in a file for the next run. Threads: any.
///
/// As with products (product_library.hpp), what it enqueues knows nothing of the stream's flag, so its results may lie
/// only in memory that no other rank reads.
class ConvolutionLibrary final : public LibraryCalls {
 public:
  /// Plans that need more memory are not taken.
  static constexpr std::uint64_t kMostWorkspace = std::uint64_t{256} << 20;

  /// Null: kernels of ours are to be taken, `why` says for which reason. Throws Error{invalid} for another choice than
  /// those above, Error{environment} where the library must be there and is not.
  static std::unique_ptr<ConvolutionLibrary> open(std::shared_ptr<const Gpu> gpu, const ConvolutionOptions& options,
                                                  std::string& why);
  /// Throws Error{unsupported} for a version that is too old or too new, Error{device_fault}, Error{out_of_memory}
  /// where the library does not start.
  ConvolutionLibrary(std::shared_ptr<const Gpu> gpu, const dnn::Library& library, bool tf32);
  ~ConvolutionLibrary();
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;

  /// "cuDNN 9.19.0", and what is to be known of the file of choices.
  std::string name() const;
  /// Null: cuDNN has no plan for it, or none for which there is memory. A plan is recorded once where it is chosen, on
  /// a stream of its own that never runs: so a plan that cannot be recorded is not taken, and whatever the library
  /// loads when a plan is first used is loaded here. `workspace` is asked during the call.
  const ConvolutionPlan* plan(const LibraryConvolution& what, const Workspace& workspace);
  /// The same in a step, which has no time to ask the library for its best engine: one that was chosen for another
  /// number of images is taken, where there is one.
  const ConvolutionPlan* plan_in_step(const LibraryConvolution& what, const Workspace& workspace);
  /// Writes what was chosen to the file: blocks.
  void save_choices() noexcept;
  /// `what` is a ConvolutionCall.
  void enqueue(void* stream, std::span<const std::byte> what) override;

 private:
  const ConvolutionPlan* find(const LibraryConvolution& what, const Workspace& workspace, bool in_step);
  std::optional<ConvolutionPlan> choose(const LibraryConvolution& what, const Workspace& workspace, bool in_step);
  std::vector<EngineChoice> choices_of_others(const ConvolutionForm& form) const;
  std::optional<ConvolutionPlan> try_out(const ConvolutionGraph& graph, const EngineChoice& choice,
                                         const ConvolutionPlaces& places, const Workspace& workspace);
  bool can_be_recorded(const ConvolutionCall& call);
  dnn::Status run(const ConvolutionCall& call, StreamHandle stream);

  const std::shared_ptr<const Gpu> gpu_;
  const dnn::Library library_;
  const bool tf32_;
  dnn::Handle handle_ = nullptr;
  StreamHandle trials_ = nullptr;  // only ever recorded
  std::mutex mutex_;               // guards what follows, and the handle's stream
  EngineChoices choices_;
  std::map<ConvolutionForm, std::optional<ConvolutionPlan>> plans_;  // none: there is no plan
};

}  // namespace troupe::cuda
