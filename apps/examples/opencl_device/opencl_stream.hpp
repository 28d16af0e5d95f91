#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "opencl_context.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"
#include "stream_progress.hpp"
#include "wait_keeper.hpp"
#include "windows.hpp"

namespace opencl {

enum class Kernel : std::uint8_t {
  copy,
  reduce,
  weighted_delta,
  pack_bf16,
  pack_bf16_with_residual,
  unpack_bf16,
  add_bf16,
  clear,
  norm,
  blame,
  sum_up,
  add_update_squares,
  update_blocks,
  update_pass,
  dense,
  product,
  bias_gradient,
  relu,
  relu_gradient,
  loss_rows,
  loss_sums
};
inline constexpr std::size_t kKernels = 21;

/// An in-order command queue. No call waits for the device: points to wait for become user events, and points to reach
/// are signalled by callbacks of markers. The destructor waits until all enqueued work is done.
class OpenClStream final : public Stream {
 public:
  /// All of them outlive the stream.
  OpenClStream(const Context& context, AddressSpace& space, WaitKeeper& waits);
  ~OpenClStream();
  OpenClStream(const OpenClStream&) = delete;
  OpenClStream& operator=(const OpenClStream&) = delete;

  void wait(Point point) override;
  Point mark() override;
  void signal(Point point) override;
  void copy(Memory to, Memory from) override;
  void sum_up(Memory total, std::span<const Memory> parts) override;
  void reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) override;
  void weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) override;
  void convert(const NumberConversion& what) override;
  void clear(Memory memory) override;
  void add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) override;
  void update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
              std::span<const Memory> contributions, Memory total) override;

  /// The buffer and offset for `memory`, for kernels.
  Place use(const Memory& memory) { return windows_.use(memory); }
  /// For kernels that report faults.
  std::uint64_t sequence() const noexcept { return progress_.sequence(); }
  /// Enqueues `kernel` for `items` work items; its arguments are the stream's fault, then `arguments` in their order.
  template <class... Arguments>
  void run(Kernel kernel, std::array<std::size_t, 2> items, const Arguments&... arguments) {
    const cl_kernel made = kernels_[static_cast<std::size_t>(kernel)].get();
    cl_uint index = 0;
    set(made, index, windows_.use(&progress_.fault(), sizeof(Fault)).buffer);
    (set(made, index, arguments), ...);
    launch(made, items);
  }
  /// Calls `enqueue`, unless the stream has failed; an error of OpenCL makes the stream fail.
  template <class Enqueue>
  void unless_ended(Enqueue&& enqueue) {
    if (progress_.ended()) return;
    try {
      enqueue();
    } catch (const Error& error) {
      progress_.end(error.status());
    }
  }

 private:
  template <class T>
  static void set(cl_kernel kernel, cl_uint& index, const T& value) {
    check(clSetKernelArg(kernel, index++, sizeof(T), &value), "clSetKernelArg");
  }
  static void set(cl_kernel kernel, cl_uint& index, const Place& place) {
    set(kernel, index, place.buffer);
    set(kernel, index, place.offset);
  }
  void launch(cl_kernel kernel, std::array<std::size_t, 2> items);
  void report(Memory to, std::span<const Memory> parts, const NormCheck& check);
  void check_parts(std::span<const Memory> parts, std::uint64_t size_bytes) const;
  void check_size(const Memory& memory, std::uint64_t size_bytes) const;
  template <class... More>
  void run_on(const StripeMemory& stripe, Kernel kernel, std::size_t items, const RuleStep& rule, Memory total,
              const std::array<Place, 2>& sums, cl_uint parts, const More&... more);
  void check_stripe(const StripeMemory& stripe, std::size_t slots) const;
  /// Calls `add(to, parts)` with up to four parts at a time; from the second call on the first part is the sum so far.
  template <class Add>
  void in_fours(Place to, std::span<const Memory> parts, std::uint64_t size_bytes, Add&& add);
  Place scratch(std::uint64_t size_bytes);

  const Context& context_;
  AddressSpace& space_;
  WaitKeeper& waits_;
  const PrivateTimeline own_line_;
  Timeline& line_;
  std::uint64_t marks_ = 0;
  OwnedQueue queue_;
  std::array<OwnedKernel, kKernels> kernels_;
  Windows windows_;
  OwnedBuffer scratch_;
  std::uint64_t scratch_bytes_ = 0;
  Progress progress_;
};

/// The number of pieces of `size` that contain `count`.
constexpr std::size_t pieces(std::uint64_t count, std::uint64_t size) noexcept { return (count + size - 1) / size; }
/// The same as in kernels/common.cl.
inline constexpr std::uint64_t kChunkBytes = 65536, kChunkElements = 4096;

}  // namespace opencl
