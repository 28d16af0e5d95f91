#include "runtime/onnx/detail/external_data.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.hpp"

namespace troupe::detail {

namespace fs = std::filesystem;

/// Links are followed before the folder is compared: a link must not lead outside either.
std::string ExternalData::path_of(std::string_view tensor, std::string_view location) const {
  const auto refuse = [&](std::string_view why) {
    std::string shown{location};
    std::ranges::replace_if(
        shown, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '_');
    fail(Code::invalid, text("tensor \"", tensor, "\" lies in the file \"", shown, "\", ", why));
  };
  if (folder_.empty()) refuse("but this model has no folder; write model and weights into one file");
  const fs::path given{std::string{location}};
  if (location.empty() || location.find('\0') != std::string_view::npos || given.is_absolute())
    refuse("which is no path from the model's folder; write such a path");
  std::error_code error;
  const fs::path folder = fs::canonical(folder_, error);
  if (error) refuse("but the model's folder cannot be read");
  const fs::path path = fs::canonical(folder / given, error);
  if (error) refuse("which is not there; put it beside the model");
  const fs::path from_folder = path.lexically_relative(folder);
  if (from_folder.empty() || *from_folder.begin() == "..")
    refuse("which is outside of the model's folder; put it into the folder");
  if (!fs::is_regular_file(path, error)) refuse("which is no regular file");
  return path.string();
}

std::vector<std::byte> ExternalData::read(std::string_view tensor, std::string_view location, std::uint64_t offset,
                                          std::uint64_t size_bytes) {
  const std::string path = path_of(tensor, location);
  std::ifstream file{path, std::ios::binary | std::ios::ate};
  TROUPE_CHECK(file.is_open(), Code::invalid, path, ": cannot be opened");
  const auto file_bytes = static_cast<std::uint64_t>(file.tellg());
  TROUPE_CHECK(size_bytes <= file_bytes && offset <= file_bytes - size_bytes, Code::invalid, "tensor \"", tensor,
               "\" has ", size_bytes, " bytes at ", offset, " of ", path, ", which has ", file_bytes);
  std::uint64_t& taken = taken_bytes_[path];
  TROUPE_CHECK(size_bytes <= file_bytes - taken, Code::invalid, "tensor \"", tensor, "\" shares numbers in ", path,
               " with other tensors; write them apart");
  taken += size_bytes;
  std::vector<std::byte> bytes(size_bytes);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size_bytes));
  TROUPE_CHECK(static_cast<std::uint64_t>(file.gcount()) == size_bytes, Code::invalid, path, ": cannot be read");
  hash_.add(bytes);
  return bytes;
}

}  // namespace troupe::detail
