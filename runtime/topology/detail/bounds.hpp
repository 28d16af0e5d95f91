#pragma once

#include <cstddef>

// Limits of a machine's description, so that foreign bytes cannot take unlimited memory or time.
namespace troupe::topology::detail {

inline constexpr std::size_t kMostBytes = std::size_t{32} << 20;         // of a file; 4,096 processors take about 3 MiB
inline constexpr std::size_t kMostClusterBytes = std::size_t{64} << 20;  // of the machines of a run
inline constexpr std::size_t kMostParts = 200'000;
inline constexpr std::size_t kMostDepth = 64;
inline constexpr std::size_t kMostMatrixParts = 2048;
inline constexpr std::size_t kMostInfos = 1'000'000;  // infos, faces and the like, together

}  // namespace troupe::topology::detail
