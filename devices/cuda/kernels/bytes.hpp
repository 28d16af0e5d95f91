#pragma once

#include "devices/cuda/kernels/kernel.hpp"

// Copies and zeros.
namespace troupe::cuda {

struct CopyArgs {
  const StreamState* stream;
  std::byte* to;
  const std::byte* from;
  std::uint64_t size_bytes;
};

/// Of each size, the largest words that all three numbers are multiples of.
template <class Word>
TROUPE_KERNEL_BODY void copy_words(const Block& block, std::byte* to, const std::byte* from, std::uint64_t size_bytes) {
  auto* const target = reinterpret_cast<Word*>(to);
  const auto* const source = reinterpret_cast<const Word*>(from);
  block.for_each(size_bytes / sizeof(Word), [&](std::uint64_t i) { target[i] = source[i]; });
}

struct alignas(16) SixteenBytes {
  std::uint64_t words[2];
};

TROUPE_KERNEL_BODY void copy_all(const Block& block, std::byte* to, const std::byte* from, std::uint64_t size_bytes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | size_bytes;
  if (bits % 16 == 0) return copy_words<SixteenBytes>(block, to, from, size_bytes);
  if (bits % 4 == 0) return copy_words<std::uint32_t>(block, to, from, size_bytes);
  copy_words<std::uint8_t>(block, to, from, size_bytes);
}
TROUPE_KERNEL_BODY void copy(const Block& block, const CopyArgs& args) {
  copy_all(block, block.at(args.to), block.at(args.from), args.size_bytes);
}

struct ClearArgs {
  const StreamState* stream;
  std::byte* to;
  std::uint64_t size_bytes;
};

template <class Word>
TROUPE_KERNEL_BODY void clear_words(const Block& block, std::byte* to, std::uint64_t size_bytes) {
  auto* const words = reinterpret_cast<Word*>(to);
  block.for_each(size_bytes / sizeof(Word), [&](std::uint64_t i) { words[i] = Word{}; });
}
TROUPE_KERNEL_BODY void clear(const Block& block, const ClearArgs& args) {
  std::byte* const to = block.at(args.to);
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | args.size_bytes;
  if (bits % 16 == 0) return clear_words<SixteenBytes>(block, to, args.size_bytes);
  if (bits % 4 == 0) return clear_words<std::uint32_t>(block, to, args.size_bytes);
  clear_words<std::uint8_t>(block, to, args.size_bytes);
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const CopyArgs& args) {
  touched.reads(args.from, args.size_bytes);
  touched.writes(args.to, args.size_bytes);
}
inline void declare(Accesses& touched, const ClearArgs& args) { touched.writes(args.to, args.size_bytes); }
#endif

}  // namespace troupe::cuda
