#include "runtime/onnx/onnx_import.hpp"

#include <filesystem>
#include <fstream>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/onnx/detail/importer.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kMostBytesOfFile = std::uint64_t{1} << 31;
constexpr std::uint64_t kMostComputedNumbers = std::uint64_t{1} << 22;  // beside those of the file

/// Weights that are read twice become two layers' weights; what a file computes of its numbers is not much more.
std::uint64_t most_numbers(const detail::OnnxFile& file) {
  std::uint64_t count = 0;
  for (const auto& [name, numbers] : file.initializers) count += numbers.count();
  for (const detail::OnnxNode& node : file.nodes)
    for (const auto& [name, numbers] : node.tensors) count += numbers.count();
  return 2 * count + kMostComputedNumbers;
}

}  // namespace

OnnxModel read_onnx(std::span<const std::byte> bytes, const std::vector<Field>& fields, const OnnxOptions& options,
                    const std::string& where) {
  detail::ExternalData external{options.folder};
  external.hash().add(bytes);
  try {
    detail::OnnxFile file = detail::parse_onnx(bytes, external);
    const std::uint64_t most = most_numbers(file);
    OnnxModel model = detail::Importer{std::move(file), fields, options, where, most}.finish();
    model.hash = external.hash().value();
    return model;
  } catch (const Error& error) {  // the importer's own errors have the file's name already
    const std::string what = error.what();
    fail(error.code(), what.starts_with(where) ? what : text(where, ": ", what));
  }
}

OnnxModel read_onnx_file(const std::string& path, const std::vector<Field>& fields, const std::string& output) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();  // opening a named pipe would wait for its writer
  TROUPE_CHECK(kind == std::filesystem::file_type::regular || kind == std::filesystem::file_type::not_found,
               Code::invalid, path, ": is not a regular file; name a file of ONNX (model.onnx)");
  std::ifstream file{path, std::ios::binary | std::ios::ate};
  TROUPE_CHECK(file.is_open(), Code::invalid, path, ": cannot be opened");
  const auto size_bytes = static_cast<std::int64_t>(file.tellg());
  TROUPE_CHECK(size_bytes >= 0 && static_cast<std::uint64_t>(size_bytes) < kMostBytesOfFile, Code::unsupported, path,
               ": is no file of less than 2 GiB");
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_bytes));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), size_bytes);
  TROUPE_CHECK(file.gcount() == size_bytes, Code::invalid, path, ": cannot be read");
  const std::string folder = std::filesystem::path{path}.parent_path().string();
  return read_onnx(bytes, fields, {folder.empty() ? "." : folder, output}, path);
}

}  // namespace troupe
