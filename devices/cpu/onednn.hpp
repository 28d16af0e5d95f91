#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "devices/cpu/onednn_api.hpp"
#include "runtime/base/error.hpp"

namespace troupe::cpu {

/// Throws Error{device_fault} with oneDNN's status if it is not success.
void check_onednn(dnnl_status_t status, std::string_view what);

/// Limits oneDNN to the instruction sets that max_cpu_isa() allows. Call it before any other use of oneDNN; only the
/// first call has an effect. Throws Error{invalid} for a TROUPE_MAX_CPU_ISA that is not an instruction set.
void limit_onednn();

/// Whether oneDNN multiplies bf16 matrices here, with bf16 instructions or by converting (AVX-512). Like the questions
/// below it limits oneDNN first, as a first use must.
bool onednn_has_bf16();

/// Whether the processor, as far as oneDNN may use it, has instructions for bf16.
bool has_bf16_instructions();

/// The same for AMX, whose products of bf16 matrices are several times faster than those of vectors.
bool has_amx_instructions();

/// Whether oneDNN convolves f32 images by Winograd's algorithm here (AVX-512; not every version does).
bool onednn_has_winograd();

/// Whether an implementation may run here. Not brgemm with AMX if CPUID leaf 0x1D reports no tile palette: it would
/// load an empty one and end with SIGILL at its first tile instruction. The gemm kernels bring their own palette.
bool implementation_usable(std::string_view name);

/// The first element.
template <class T>
T* data_of(const dnnl::memory& of) {
  return static_cast<T*>(of.get_data_handle());
}

inline bool is_f32(const dnnl::memory& of) { return type_of(of) == dnnl::memory::data_type::f32; }

/// Whether this is oneDNN's reference code, which is slower by orders of magnitude.
inline bool is_reference_code(std::string_view name) { return name.starts_with("ref"); }

/// Whether a primitive would write past its scratchpad. In oneDNN 2.6, `jit_1x1:avx2` copies the pixels that a stride
/// above 1 selects into it, in blocks of 8 channels, but counts only the existing channels.
template <class Descriptor>
bool overruns_scratchpad(const Descriptor& descriptor) {
  if constexpr (std::is_base_of_v<dnnl::convolution_backward_weights::primitive_desc, Descriptor>) {
    const auto weights = dims_of(descriptor.diff_weights_desc());
    const auto from = dims_of(descriptor.src_desc()), to = dims_of(descriptor.diff_dst_desc());
    const bool strided = from.at(2) != to.at(2) || from.at(3) != to.at(3);
    return strided && weights.at(weights.size() - 3) % 8 != 0 &&
           std::string_view{descriptor.impl_info_str()}.starts_with("jit_1x1:avx2");
  }
  return false;
}

/// Whether the present implementation of `descriptor` may run here.
template <class Descriptor>
bool may_run(const Descriptor& descriptor) {
  return implementation_usable(descriptor.impl_info_str()) && !overruns_scratchpad(descriptor);
}

/// Advances `descriptor` to the first implementation that may run here; oneDNN lists the fastest first, and its
/// reference code, slower by orders of magnitude, last. Throws Error{unsupported} naming `what` if there is none.
template <class Descriptor>
void choose_implementation(Descriptor& descriptor, std::string_view what) {
  while (!may_run(descriptor)) {
    TROUPE_CHECK(descriptor.next_impl(), Code::unsupported, what,
                 ": oneDNN has no implementation that runs on this machine");
  }
}

/// oneDNN plans for, and runs on, the calling thread's number of threads; this sets that number for a scope.
class ThreadsInScope {
 public:
  explicit ThreadsInScope(std::uint32_t threads) noexcept;
  ~ThreadsInScope();
  ThreadsInScope(const ThreadsInScope&) = delete;
  ThreadsInScope& operator=(const ThreadsInScope&) = delete;

 private:
  int before_;
};

/// The memories that a primitive works on, by DNNL_ARG.
using BoundArguments = std::vector<std::pair<int, dnnl::memory>>;

/// One execution with all arguments bound: repeating it allocates nothing in our code.
class BoundPrimitive {
 public:
  BoundPrimitive(dnnl::primitive primitive, const BoundArguments& arguments);
  void execute(const dnnl::stream& stream) const;
  const std::vector<dnnl::memory>& memories() const noexcept { return memories_; }
  /// Whether it only reads memories()[index].
  bool only_reads(std::size_t index) const noexcept {
    const int argument = arguments_[index].arg;
    return argument == DNNL_ARG_SRC_0 || argument == DNNL_ARG_SRC_1 || argument == DNNL_ARG_WEIGHTS ||
           argument == DNNL_ARG_BIAS;
  }

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;  // own the handles that the arguments point to
  std::vector<dnnl_exec_arg_t> arguments_;
};

/// Whether the calling thread is inside an execution of oneDNN, which allocates by itself: for tests that count.
bool executing_primitive() noexcept;

/// The version of oneDNN and the instruction set that it chose.
std::string onednn_description();

}  // namespace troupe::cpu
