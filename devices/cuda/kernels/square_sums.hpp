#pragma once

#include "devices/cuda/kernels/numbers.hpp"
#include "runtime/compute/rules/square_sums.hpp"

// Squares in the order of runtime/compute/rules/square_sums.hpp. A group of 16 threads has a lane each and adds up the
// pieces of one strand. Strand s is that of group s / blocks in block s mod blocks, so that the strands of a block are
// folded first. The last block folds what all blocks have found.
namespace troupe::cuda {

inline constexpr unsigned kSquareGroups = kBlockThreads / kSquareLanes;  // of a block

/// What blocks leave for the last one; of one lane of a stream, in device memory.
struct SquareScratch {
  static constexpr std::uint32_t kMostSums = 2048, kMostArrivals = 128;
  double sums[kMostSums];
  std::uint32_t arrived[kMostArrivals];  // 0 between kernels
};

/// The sums of up to two squares of each element.
template <unsigned kCount>
struct SquareSums {
  double of[kCount];
  TROUPE_KERNEL_MEMBER void add(const SquareSums& other) {
    for (unsigned k = 0; k < kCount; ++k) of[k] += other.of[k];
  }
};

/// Folds `numbers`, [kCount] in memory of this block. Every thread comes here.
template <unsigned kCount, class Sum>
TROUPE_KERNEL_BODY void fold_here(const Block& block, Sum* numbers) {
  for (unsigned half = kCount / 2; half > 0; half /= 2) {
    block.for_each_here(half, [&](std::uint64_t i) { numbers[i].add(numbers[half + i]); });
    block.barrier();
  }
}

/// Of this block's threads, the sums of their strands. `block_of_range`: which of the kBlocks blocks of a range this
/// is.
template <unsigned kCount, unsigned kBlocks>
class SquareStrandsHere {
 public:
  using Sums = SquareSums<kCount>;

  TROUPE_KERNEL_MEMBER SquareStrandsHere(const Block& block, unsigned block_of_range)
      : block_(block), block_of_range_(block_of_range) {
    block_.for_each_thread([&](unsigned t) { strands_[t] = {}; });
  }

  /// `square(sums, i)` adds the squares of element i of a range of `count`.
  template <class Square>
  TROUPE_KERNEL_MEMBER void add(std::uint64_t count, Square&& square) {
    const std::uint64_t pieces = count_square_pieces(count);
    for (std::uint64_t first = block_of_range_; first < pieces; first += kSquareGroups * kBlocks) {
      OfEachThread<Sums> lanes;
      block_.for_each_thread([&](unsigned t) {
        Sums sums{};
        const std::uint64_t begin = (first + std::uint64_t{t / kSquareLanes} * kBlocks) * kSquarePiece;
        if (begin + kSquarePiece <= count) {
#if defined(__CUDACC__)
#pragma unroll 16  // so many loads are under way
#endif
          for (unsigned i = 0; i < kSquarePiece; i += kSquareLanes) square(sums, begin + i + t % kSquareLanes);
        } else {
          for (std::uint64_t i = begin + t % kSquareLanes; i < count; i += kSquareLanes) square(sums, i);
        }
        lanes[t] = sums;
      });
      block_.add_up_warps(lanes, 1, kSquareLanes);
      block_.for_each_thread([&](unsigned t) { strands_[t].add(lanes[t]); });
    }
  }

  /// Calls act(i) for this thread's elements of a range of `count` whose squares were added, in ascending order, until
  /// it is true; only in threads whose strands have a sum that is not finite.
  template <class Act>
  TROUPE_KERNEL_MEMBER void search_not_finite(std::uint64_t count, Act&& act) {
    block_.for_each_thread([&](unsigned t) {
      if (is_finite(strands_[t].of[0])) return;
      for (std::uint64_t begin = (block_of_range_ + std::uint64_t{t / kSquareLanes} * kBlocks) * kSquarePiece;
           begin < count; begin += kSquareGroups * kBlocks * kSquarePiece) {
        const std::uint64_t end = begin + kSquarePiece < count ? begin + kSquarePiece : count;
        for (std::uint64_t i = begin + t % kSquareLanes; i < end; i += kSquareLanes)
          if (act(i)) return;
      }
    });
  }

  /// What the blocks of the range have found all together, in the last block of `blocks` that comes here, by one
  /// thread. `scratch`: of the range; `arrived`: likewise.
  template <class Act>
  TROUPE_KERNEL_MEMBER void finish(double* scratch, std::uint32_t* arrived, std::uint32_t blocks, Act&& act) {
    Sums* const groups = block_.template shared<Sums, kSquareGroups>();
    block_.for_each_thread([&](unsigned t) {
      if (t % kSquareLanes == 0) groups[t / kSquareLanes] = strands_[t];
    });
    block_.barrier();
    fold_here<kSquareGroups>(block_, groups);
    auto* const found = reinterpret_cast<Sums*>(scratch);
    block_.once([&] { found[block_of_range_] = groups[0]; });
    if (!block_.comes_last(arrived, blocks)) return;
    struct OfBlocks {  // other memory of the block than that of the groups
      Sums sums[kBlocks];
    };
    Sums* const all = block_.template shared<OfBlocks, 1>()->sums;
    block_.for_each_here(kBlocks, [&](std::uint64_t b) { all[b] = b < blocks ? found[b] : Sums{}; });
    block_.barrier();
    fold_here<kBlocks>(block_, all);
    block_.once([&] { act(all[0]); });
  }

 private:
  const Block& block_;
  const unsigned block_of_range_;
  OfEachThread<Sums> strands_;
};

}  // namespace troupe::cuda
