#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/data/byte_images.hpp"

namespace troupe {

/// Reads CIFAR-10 in its binary form: records of 3,073 bytes, each with a label from 0 to 9 and the red, green and blue
/// planes of an image of 32 x 32 pixels. `name` stands for the file in messages; plain or gzip. Allocates memory in
/// proportion to the bytes, for up to 200,000 records. Throws Error{invalid} with file, position, cause and cure if a
/// record is cut, a label is not a class, there are no or too many records, or the gzip data are damaged.
/// Source: Krizhevsky 2009 (Learning multiple layers of features from tiny images), the data set's page, "Binary
/// version".
ByteImageSet parse_cifar(std::span<const std::uint8_t> bytes, const std::string& name);
/// The same from files, one after the other. Throws Error{environment} if the system refuses to open or read one.
/// Blocks on the file system.
ByteImageSet read_cifar(std::span<const std::string> files);

}  // namespace troupe
