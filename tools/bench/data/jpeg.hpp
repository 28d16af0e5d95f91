#pragma once

#include <cstdint>
#include <vector>

namespace troupe::bench {

/// Encodes `pixels` [height, width, 3] as JPEG.
std::vector<std::uint8_t> encode_jpeg(const std::vector<std::uint8_t>& pixels, std::uint32_t height,
                                      std::uint32_t width, int quality);

}  // namespace troupe::bench
