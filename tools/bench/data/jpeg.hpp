#pragma once

#include <cstdint>
#include <vector>

namespace troupe::bench {

/// A JPEG of `pixels` [height, width, 3].
std::vector<std::uint8_t> encode_jpeg(const std::vector<std::uint8_t>& pixels, std::uint32_t height,
                                      std::uint32_t width, int quality);

}  // namespace troupe::bench
