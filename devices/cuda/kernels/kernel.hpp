#pragma once

// How a kernel is written once for a GPU and for a host. A kernel has a name, arguments (plain data, at most 4 KiB,
// whose first member is `const StreamState* stream`), a body over a Block, and a declaration beside it of the memory
// that it touches:
//
//   struct ClearArgs { const StreamState* stream; std::byte* to; std::uint64_t size_bytes; };
//   TROUPE_KERNEL_BODY void clear(const Block& block, const ClearArgs& args) {
//     std::byte* const to = block.at(args.to);
//     block.for_each(args.size_bytes, [&](std::uint64_t i) { to[i] = std::byte{}; });
//   }
//   inline void declare(Accesses& touched, const ClearArgs& args) { touched.writes(args.to, args.size_bytes); }
//
// A function of a class that bodies call is marked TROUPE_KERNEL_MEMBER. list.hpp names all kernels. nvcc makes `extern
// "C" __global__ void troupe_clear(const __grid_constant__ ClearArgs)` of it; another compiler makes an entry of
// host_kernels(), which runs block after block on the thread that calls it. Both compute the same bits: no contraction
// to fused multiply-add, denormals of f32 flushed to zero, sums in one order. Two things differ in the last bits:
// functions such as exp, and products of matrices, which a GPU adds up by fused multiply-add (multiply_add in
// numbers.hpp).

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if !defined(__CUDACC__)
#include <sched.h>
#include <time.h>

#include <span>
#include <vector>
#endif

namespace troupe::cuda {

/// What went wrong on a stream.
enum class StreamFault : std::uint32_t {
  none,
  poisoned,
  overdue,
  ended,
  bad_label,
  bad_target,
  bad_token,
  foreign_journal,
  rank_failed,
  rank_differs
};

/// How many counters a stream has for blocks that arrive: of one kernel, as `arrived` is there for one at a time.
inline constexpr std::uint32_t kMostArrivals = 511;

/// Of one stream, in device memory. A kernel of a stream that has failed does nothing. Kernels of a stream's two lanes
/// run at the same time, so `failed` is set and read by single atomic accesses, and kernels of one lane alone use
/// `arrived` (Block::comes_last), as they alone use the replica's scratch.
struct StreamState {
  std::uint32_t failed = 0;                // a StreamFault
  std::uint32_t arrived[kMostArrivals]{};  // 0 between kernels
};

/// What the host learns about a stream, in pinned memory: written once, by the kernel that ends the stream; `fault`
/// last.
struct StreamReport {
  /// Address of the line's word that the stream waited for; a bad label; a journal's word; the call that a rank made.
  std::uint64_t word = 0;
  std::uint64_t value = 0;  // that it waited for; a bad label's row; the number of the update; a rank of the job
  std::uint64_t fault = 0;  // a StreamFault
  std::uint64_t end = 0;    // written by the host: a wait that is under way ends the stream
};

/// What differs between the times a recorded kernel runs: beside the arguments, or in a step block.
template <class Values>
struct Given {
  Values own{};
  const Values* block = nullptr;  // null: own
};

inline constexpr unsigned kBlockThreads = 256;
inline constexpr unsigned kWarpThreads = 32;

#if defined(__CUDACC__)

#define TROUPE_KERNEL_BODY __device__ inline
#define TROUPE_KERNEL_MEMBER __device__

/// A T of each thread of a block.
template <class T>
class OfEachThread {
 public:
  __device__ T& operator[](unsigned) { return own_; }

 private:
  T own_;
};

/// The threads of one block on a GPU: of all blocks, each runs the body with all its threads.
class Block {
 public:
  __device__ std::uint32_t index() const { return blockIdx.x; }
  __device__ std::uint32_t count() const { return gridDim.x; }
  template <class T>
  __device__ T* at(T* address) const {
    return address;
  }
  template <class V>
  __device__ V values(const Given<V>& given) const {
    return given.block == nullptr ? given.own : *given.block;
  }
  template <class Act>
  __device__ void for_each(std::uint64_t count_elements, Act&& act) const {
    const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count_elements; i += stride)
      act(i);
  }
  template <class Act>
  __device__ void for_each_here(std::uint64_t count_elements, Act&& act) const {
    for (std::uint64_t i = threadIdx.x; i < count_elements; i += blockDim.x) act(i);
  }
  template <class Act>
  __device__ void for_each_thread(Act&& act) const {
    act(threadIdx.x);
  }
  template <class Act>
  __device__ void once(Act&& act) const {
    if (threadIdx.x == 0) act();
  }
  __device__ void barrier() const { __syncthreads(); }
  template <class Sum>
  __device__ void add_up_warps(OfEachThread<Sum>& sums, unsigned across = 1, unsigned within = kWarpThreads) const {
    static_assert(sizeof(Sum) % sizeof(std::uint32_t) == 0);
    constexpr unsigned kWords = sizeof(Sum) / sizeof(std::uint32_t);
    Sum& own = sums[threadIdx.x];
    for (unsigned apart = within / 2; apart >= across; apart /= 2) {
      std::uint32_t words[kWords];
      memcpy(words, &own, sizeof(Sum));
      for (unsigned w = 0; w < kWords; ++w) words[w] = __shfl_xor_sync(0xffffffffU, words[w], apart);
      Sum other;
      memcpy(&other, words, sizeof(Sum));
      if ((threadIdx.x & apart) == 0) {
        own.add(other);
      } else {  // in the same order: sums of floats have the same bits in both threads
        other.add(own);
        own = other;
      }
    }
  }
  __device__ bool comes_last(std::uint32_t* arrived, std::uint32_t count) const {
    __syncthreads();
    bool is_last = false;
    if (threadIdx.x == 0) {
      __threadfence();
      is_last = atomicInc(arrived, count - 1) == count - 1;
      __threadfence();
    }
    return __syncthreads_or(is_last) != 0;
  }
  template <class T, unsigned kCount>
  __device__ T* shared() const {
    __shared__ T scratch[kCount];
    return scratch;
  }
  __device__ static void pause() { __nanosleep(200); }
  __device__ static std::uint64_t now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  __device__ static std::uint64_t acquire(const std::uint64_t* word) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  /// The store orders all that this thread has written, and seen of others, before it: it needs no fence of its own.
  __device__ static void release(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  /// Reads a word that others write meanwhile, in no order with other reads: what follows need not wait for it.
  __device__ static std::uint64_t peek(const std::uint64_t* word) {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  /// Writes a word that others read meanwhile, in no order with other writes.
  __device__ static void post(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ static std::uint32_t glance(const std::uint32_t* word) {
    return *static_cast<const volatile std::uint32_t*>(word);
  }
  /// Sets a word that is 0; whether it was this thread, of all that try.
  __device__ static bool claim(std::uint32_t* word, std::uint32_t value) { return atomicCAS(word, 0U, value) == 0U; }
  /// Makes a word, which 0 leaves open, the smallest of what threads give it. None gives 0.
  __device__ static void lower(std::uint64_t* word, std::uint64_t value) {
    auto* const at = reinterpret_cast<unsigned long long*>(word);
    unsigned long long seen = *at, found = seen;
    do {
      seen = found;
      if (seen != 0 && seen <= value) return;
      found = atomicCAS(at, seen, value);
    } while (found != seen);
  }
};

#else

#define TROUPE_KERNEL_BODY inline
#define TROUPE_KERNEL_MEMBER

/// Where kernels find memory on the host: device memory has addresses at which nobody else may look.
class KernelMemory {
 public:
  /// Where a kernel finds what has `address` for everybody else; the same for memory of the host.
  virtual void* at(const void* address) const noexcept = 0;

 protected:
  ~KernelMemory() = default;
};

/// For blocks on the host: words that other processors write and read meanwhile.
struct HostWords {
  static std::uint64_t acquire(const std::uint64_t* word) noexcept { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
  static void release(std::uint64_t* word, std::uint64_t value) noexcept {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
  static std::uint64_t peek(const std::uint64_t* word) noexcept { return __atomic_load_n(word, __ATOMIC_RELAXED); }
  static void post(std::uint64_t* word, std::uint64_t value) noexcept {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
  }
  static std::uint32_t glance(const std::uint32_t* word) noexcept { return __atomic_load_n(word, __ATOMIC_RELAXED); }
  static bool claim(std::uint32_t* word, std::uint32_t value) noexcept {
    std::uint32_t none = 0;
    return __atomic_compare_exchange_n(word, &none, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  /// Whether `count` have come with this one. Then the counter is 0 again.
  static bool arrives_last(std::uint32_t* arrived, std::uint32_t count) noexcept {
    if (__atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL) != count) return false;
    __atomic_store_n(arrived, 0, __ATOMIC_RELAXED);
    return true;
  }
  static void lower(std::uint64_t* word, std::uint64_t value) noexcept {
    std::uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    while ((seen == 0 || seen > value) &&
           !__atomic_compare_exchange_n(word, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
};

#if defined(TROUPE_KERNEL_BLOCK)
}  // namespace troupe::cuda
#include TROUPE_KERNEL_BLOCK  // another Block, and its OfEachThread
namespace troupe::cuda {
#else

/// A T of each thread of a block, by the thread's number, which it keeps over barriers: in registers on a GPU. Not
/// initialized.
template <class T>
class OfEachThread {
 public:
  T& operator[](unsigned thread) noexcept { return all_[thread]; }

 private:
  T all_[kBlockThreads];
};

/// One block on the host: its threads follow each other, from one barrier to the next.
class Block : public HostWords {
 public:
  Block(const KernelMemory& memory, std::uint32_t index, std::uint32_t count) noexcept
      : memory_(memory), index_(index), count_(count) {}

  std::uint32_t index() const noexcept { return index_; }
  std::uint32_t count() const noexcept { return count_; }
  /// Where `address`, which stands in the arguments, is.
  template <class T>
  T* at(T* address) const noexcept {
    return address == nullptr ? nullptr : static_cast<T*>(memory_.at(const_cast<std::remove_const_t<T>*>(address)));
  }
  template <class V>
  V values(const Given<V>& given) const noexcept {
    return given.block == nullptr ? given.own : *at(given.block);
  }
  /// Calls act(i) for each i below `count_elements` in one of all blocks.
  template <class Act>
  void for_each(std::uint64_t count_elements, Act&& act) const {
    const std::uint64_t stride = std::uint64_t{count_} * kBlockThreads;
    for (std::uint64_t first = std::uint64_t{index_} * kBlockThreads; first < count_elements; first += stride) {
      const std::uint64_t end = first + kBlockThreads < count_elements ? first + kBlockThreads : count_elements;
      for (std::uint64_t i = first; i < end; ++i) act(i);
    }
  }
  /// Calls act(i) for each i below `count_elements` in this block.
  template <class Act>
  void for_each_here(std::uint64_t count_elements, Act&& act) const {
    for (std::uint64_t i = 0; i < count_elements; ++i) act(i);
  }
  /// Calls act(t) in each thread of this block with its number.
  template <class Act>
  void for_each_thread(Act&& act) const {
    for (unsigned t = 0; t < kBlockThreads; ++t) act(t);
  }
  /// Calls act() in one thread of this block.
  template <class Act>
  void once(Act&& act) const {
    act();
  }
  /// What threads of this block have written before, all its threads see behind it. Every thread comes here.
  void barrier() const noexcept {}
  /// Divides each warp into groups of `within` threads. Makes each thread's sum that of all threads of its group whose
  /// number is the same modulo `across`, by Sum::add in the order of a fixed tree: the upper half is added to the lower
  /// half, until `across` are left. Both are powers of two. Every thread comes here. Not for threads that act() runs
  /// in.
  template <class Sum>
  void add_up_warps(OfEachThread<Sum>& sums, unsigned across = 1, unsigned within = kWarpThreads) const noexcept {
    for (unsigned apart = within / 2; apart >= across; apart /= 2) {
      for (unsigned t = 0; t < kBlockThreads; ++t) {
        if ((t & apart) != 0) continue;
        sums[t].add(sums[t + apart]);
        sums[t + apart] = sums[t];
      }
    }
  }
  /// Whether `count` blocks have come here with this one, the last of them, which then sees what the others have
  /// written before. Each block comes once, with all its threads, and one of them is the last.
  bool comes_last(std::uint32_t* arrived, std::uint32_t count) const noexcept { return arrives_last(arrived, count); }
  /// Memory of this block, not initialized: the same in all calls with one T and kCount.
  template <class T, unsigned kCount>
  T* shared() const noexcept {
    static thread_local T scratch[kCount];
    return scratch;
  }
  static void pause() noexcept { sched_yield(); }
  static std::uint64_t now_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000U + static_cast<std::uint64_t>(now.tv_nsec);
  }

 private:
  const KernelMemory& memory_;
  const std::uint32_t index_;
  const std::uint32_t count_;
};

#endif

/// What a kernel does with a range of memory. `acquires`: it ends when the word there says so, and what was done before
/// that was written is done before what follows the kernel. `releases`: it writes the word, behind everything before
/// it. `shares`: it reads and changes words of it by single atomic accesses, as others do at the same time, which
/// orders nothing.
enum class Access : std::uint8_t { reads, writes, acquires, releases, shares };

/// The memory that one launch touches, by the addresses that everybody else knows.
class Accesses {
 public:
  struct Range {
    const void* at = nullptr;
    std::uint64_t size_bytes = 0;
    Access access = Access::reads;
  };

  explicit Accesses(const KernelMemory& memory) noexcept : memory_(memory) {}

  void reads(const void* at, std::uint64_t size_bytes) { add(at, size_bytes, Access::reads); }
  void writes(const void* at, std::uint64_t size_bytes) { add(at, size_bytes, Access::writes); }
  void acquires(const std::uint64_t* word) { add(word, sizeof *word, Access::acquires); }
  void releases(const std::uint64_t* word) { add(word, sizeof *word, Access::releases); }
  void shares(const void* at, std::uint64_t size_bytes) { add(at, size_bytes, Access::shares); }
  /// The values of this time, which are read as the kernel reads them.
  template <class V>
  V values(const Given<V>& given) {
    if (given.block == nullptr) return given.own;
    reads(given.block, sizeof(V));
    return *static_cast<const V*>(memory_.at(given.block));
  }
  /// Where a kernel finds it, for declarations that follow from what stands there.
  template <class T>
  const T* at(const T* address) const {
    return static_cast<const T*>(memory_.at(address));
  }
  const std::vector<Range>& ranges() const noexcept { return ranges_; }

 private:
  void add(const void* at, std::uint64_t size_bytes, Access access) {
    if (at != nullptr && size_bytes != 0) ranges_.push_back({at, size_bytes, access});
  }

  const KernelMemory& memory_;
  std::vector<Range> ranges_;
};

/// A kernel as the host runs it.
struct HostKernel {
  const char* name;  // "troupe_clear", as in the image for GPUs
  std::uint32_t args_bytes;
  /// Runs one block. Call it for every block of the grid, in any order, one after the other.
  void (*run)(const Block& block, const void* args);
  /// What the kernel will touch now: right before its first block, in its stream's order.
  void (*declare)(Accesses& touched, const void* args);
  /// The stream that a launch with these arguments belongs to; null: such kernels belong to none.
  const StreamState* (*stream)(const void* args) = nullptr;
};

/// All kernels of list.hpp.
std::span<const HostKernel> host_kernels() noexcept;

#endif

}  // namespace troupe::cuda
