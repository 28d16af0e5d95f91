#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace troupe::testing {

using Bytes = std::vector<std::uint8_t>;

/// A folder of its own, gone with everything in it when the test ends.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-data-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& file, const Bytes& bytes) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline Bytes read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void put_number(Bytes& bytes, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(number >> shift));
}

/// An IDX file of numbers (magic first), followed by `content`.
inline Bytes idx_bytes(const std::vector<std::uint32_t>& head, const Bytes& content) {
  Bytes bytes;
  for (const std::uint32_t number : head) put_number(bytes, number);
  bytes.insert(bytes.end(), content.begin(), content.end());
  return bytes;
}

/// 0, 1, 2, ... modulo `modulus`.
inline Bytes counting(std::size_t count, unsigned modulus = 251) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i % modulus);
  return bytes;
}

inline Bytes image_file(std::uint32_t count, std::uint32_t height = 4, std::uint32_t width = 3) {
  return idx_bytes({0x803, count, height, width}, counting(std::size_t{count} * height * width));
}
inline Bytes label_file(std::uint32_t count) { return idx_bytes({0x801, count}, counting(count, 10)); }

/// One gzip member.
inline Bytes gzip(const Bytes& bytes, int level = 6) {
  z_stream stream{};
  deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&stream, bytes.size()) + 32);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline Bytes joined(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

inline Bytes cut(Bytes bytes, std::size_t size) {
  bytes.resize(size);
  return bytes;
}

/// The text of the Error{code} that `call` throws; a failure of the test when it throws none, or another code.
inline std::string error_of(Code code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace troupe::testing
