#pragma once

#include "devices/cuda/kernels/kernel.hpp"

// XXH3 (64 bits, no seed) of the xxHash specification, version 0.1.1 of its long form: blocks of 1,024 bytes follow
// each other, so one block of threads computes it. What the 16 stripes of a block contribute does not depend on those
// before, therefore as many blocks as there are threads for are prepared together, and then mixed in their order.
namespace troupe::cuda {

struct DigestPlace {
  std::uint64_t* to = nullptr;
};

struct DigestArgs {
  const StreamState* stream;
  const std::byte* of;
  std::uint64_t size_bytes;
  Given<DigestPlace> given;
};

namespace xxh {

inline constexpr std::uint64_t kPrime32_1 = 0x9E3779B1U, kPrime32_2 = 0x85EBCA77U, kPrime32_3 = 0xC2B2AE3DU;
inline constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87U, kPrime2 = 0xC2B2AE3D27D4EB4FU,
                               kPrime3 = 0x165667B19E3779F9U, kPrime4 = 0x85EBCA77C2B2AE63U,
                               kPrime5 = 0x27D4EB2F165667C5U;
inline constexpr unsigned kSecretBytes = 192, kStripeBytes = 64, kBlockBytes = 1024, kLanes = 8;
inline constexpr unsigned kTogether = kBlockThreads / kLanes;  // blocks that are prepared together

TROUPE_KERNEL_BODY std::uint64_t little_endian(const std::uint8_t* at, unsigned bytes) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < bytes; ++i) value |= std::uint64_t{at[i]} << (8 * i);
  return value;
}
TROUPE_KERNEL_BODY std::uint64_t read64(const std::uint8_t* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % 8 == 0) return *reinterpret_cast<const std::uint64_t*>(at);
  return little_endian(at, 8);
}
TROUPE_KERNEL_BODY std::uint64_t read32(const std::uint8_t* at) { return little_endian(at, 4); }
TROUPE_KERNEL_BODY std::uint64_t rotated(std::uint64_t value, unsigned bits) {
  return value << bits | value >> (64 - bits);
}
TROUPE_KERNEL_BODY std::uint64_t swapped(std::uint64_t value) {
  std::uint64_t result = 0;
  for (unsigned i = 0; i < 8; ++i) result |= (value >> (8 * i) & 0xff) << (56 - 8 * i);
  return result;
}
/// The two halves of the product of 128 bits, by exclusive or.
TROUPE_KERNEL_BODY std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDACC__)
  return (a * b) ^ __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
#endif
}
TROUPE_KERNEL_BODY std::uint64_t avalanche(std::uint64_t hash) {
  hash = (hash ^ hash >> 37) * 0x165667919E3779F9U;
  return hash ^ hash >> 32;
}
TROUPE_KERNEL_BODY std::uint64_t avalanche_of_xxh64(std::uint64_t hash) {
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}
TROUPE_KERNEL_BODY std::uint64_t mix16(const std::uint8_t* in, const std::uint8_t* secret) {
  return folded_product(read64(in) ^ read64(secret), read64(in + 8) ^ read64(secret + 8));
}

TROUPE_KERNEL_BODY void fill_secret(std::uint8_t* secret) {
  const std::uint8_t bytes[kSecretBytes] = {
      0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
      0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
      0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
      0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
      0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
      0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
      0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
      0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
      0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
      0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
      0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};
  for (unsigned i = 0; i < kSecretBytes; ++i) secret[i] = bytes[i];
}

TROUPE_KERNEL_BODY std::uint64_t of_at_most_16(const std::uint8_t* in, std::uint64_t size, const std::uint8_t* secret) {
  if (size > 8) {
    const std::uint64_t low = read64(in) ^ read64(secret + 24) ^ read64(secret + 32);
    const std::uint64_t high = read64(in + size - 8) ^ read64(secret + 40) ^ read64(secret + 48);
    return avalanche(size + swapped(low) + high + folded_product(low, high));
  }
  if (size >= 4) {
    const std::uint64_t both = read32(in + size - 4) + (read32(in) << 32);
    std::uint64_t hash = both ^ read64(secret + 8) ^ read64(secret + 16);
    hash ^= rotated(hash, 49) ^ rotated(hash, 24);
    hash *= 0x9FB21C651E98DF25U;
    hash = (hash ^ ((hash >> 35) + size)) * 0x9FB21C651E98DF25U;
    return hash ^ hash >> 28;
  }
  if (size == 0) return avalanche_of_xxh64(read64(secret + 56) ^ read64(secret + 64));
  const std::uint64_t bytes =
      std::uint64_t{in[0]} << 16 | std::uint64_t{in[size >> 1]} << 24 | in[size - 1] | size << 8;
  return avalanche_of_xxh64(bytes ^ read32(secret) ^ read32(secret + 4));
}

TROUPE_KERNEL_BODY std::uint64_t of_at_most_240(const std::uint8_t* in, std::uint64_t size,
                                                const std::uint8_t* secret) {
  if (size <= 16) return of_at_most_16(in, size, secret);
  std::uint64_t sum = size * kPrime1;
  if (size <= 128) {
    for (unsigned i = 0; i <= (size - 1) / 32; ++i)
      sum += mix16(in + 16 * i, secret + 32 * i) + mix16(in + size - 16 * (i + 1), secret + 32 * i + 16);
    return avalanche(sum);
  }
  for (unsigned i = 0; i < 8; ++i) sum += mix16(in + 16 * i, secret + 16 * i);
  sum = avalanche(sum);
  for (unsigned i = 8; i < size / 16; ++i) sum += mix16(in + 16 * i, secret + 16 * (i - 8) + 3);
  return avalanche(sum + mix16(in + size - 16, secret + 136 - 17));
}

/// What a stripe adds to one lane.
TROUPE_KERNEL_BODY std::uint64_t contribution(const std::uint8_t* stripe, const std::uint8_t* secret, unsigned lane) {
  const std::uint64_t keyed = read64(stripe + 8 * lane) ^ read64(secret + 8 * lane);
  return read64(stripe + 8 * (lane ^ 1U)) + (keyed & 0xffffffffU) * (keyed >> 32);
}

}  // namespace xxh

/// One block.
TROUPE_KERNEL_BODY void digest(const Block& block, const DigestArgs& args) {
  using namespace xxh;
  const auto* const in = reinterpret_cast<const std::uint8_t*>(block.at(args.of));
  const std::uint64_t size = args.size_bytes;
  auto* const secret = block.shared<std::uint8_t, kSecretBytes>();
  auto* const sums = block.shared<std::uint64_t, kBlockThreads + kLanes>();
  std::uint64_t* const lanes = sums + kBlockThreads;
  std::uint64_t* const to = block.at(block.values(args.given).to);
  block.once([&] {
    fill_secret(secret);
    const std::uint64_t start[kLanes] = {kPrime32_3, kPrime1,    kPrime2, kPrime3,
                                         kPrime4,    kPrime32_2, kPrime5, kPrime32_1};
    for (unsigned lane = 0; lane < kLanes; ++lane) lanes[lane] = start[lane];
    if (size <= 240) *to = of_at_most_240(in, size, secret);
  });
  block.barrier();
  if (size <= 240) return;
  const std::uint64_t blocks = (size - 1) / kBlockBytes;
  for (std::uint64_t first = 0; first < blocks; first += kTogether) {
    const std::uint64_t now = blocks - first < kTogether ? blocks - first : kTogether;
    block.for_each_here(now * kLanes, [&](std::uint64_t i) {
      const std::uint8_t* const from = in + (first + i / kLanes) * kBlockBytes;
      std::uint64_t sum = 0;
      for (unsigned stripe = 0; stripe < kBlockBytes / kStripeBytes; ++stripe)
        sum += contribution(from + stripe * kStripeBytes, secret + 8 * stripe, static_cast<unsigned>(i % kLanes));
      sums[i] = sum;
    });
    block.barrier();
    block.for_each_here(kLanes, [&](std::uint64_t lane) {
      for (std::uint64_t b = 0; b < now; ++b) {
        const std::uint64_t sum = lanes[lane] + sums[b * kLanes + lane];
        lanes[lane] = (sum ^ sum >> 47 ^ read64(secret + kSecretBytes - kStripeBytes + 8 * lane)) * kPrime32_1;
      }
    });
    block.barrier();
  }
  block.for_each_here(kLanes, [&](std::uint64_t lane) {
    const auto own = static_cast<unsigned>(lane);
    const std::uint64_t stripes = (size - 1 - blocks * kBlockBytes) / kStripeBytes;
    for (std::uint64_t stripe = 0; stripe < stripes; ++stripe)
      lanes[lane] += contribution(in + blocks * kBlockBytes + stripe * kStripeBytes, secret + 8 * stripe, own);
    lanes[lane] += contribution(in + size - kStripeBytes, secret + kSecretBytes - kStripeBytes - 7, own);
  });
  block.barrier();
  block.once([&] {
    std::uint64_t sum = size * kPrime1;
    for (unsigned i = 0; i < 4; ++i)
      sum +=
          folded_product(lanes[2 * i] ^ read64(secret + 11 + 16 * i), lanes[2 * i + 1] ^ read64(secret + 19 + 16 * i));
    *to = avalanche(sum);
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const DigestArgs& args) {
  touched.reads(args.of, args.size_bytes);
  touched.writes(touched.values(args.given).to, sizeof(std::uint64_t));
}
#endif

}  // namespace troupe::cuda
