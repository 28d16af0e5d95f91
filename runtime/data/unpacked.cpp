#include "runtime/data/detail/unpacked.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "runtime/base/detail/read_at.hpp"
#include "runtime/base/error.hpp"

namespace troupe::detail {
namespace {

constexpr std::array<std::uint8_t, 2> kGzipMagic{0x1f, 0x8b};

}  // namespace

std::size_t MemoryInput::read(std::uint64_t offset, std::span<std::uint8_t> out) {
  if (offset >= bytes_.size()) return 0;
  const std::size_t count = std::min<std::uint64_t>(out.size(), bytes_.size() - offset);
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), count, out.begin());
  return count;
}

FileInput::FileInput(std::string name, const char* cure) : name_(std::move(name)) {
  // Non-blocking: opening a pipe in the file's place must not wait.
  fd_.reset(::open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd_ && (errno == ENOENT || errno == ENOTDIR)) fail_errno(Code::invalid, text(name_, cure));
  TROUPE_CHECK_ERRNO(static_cast<bool>(fd_), Code::environment, name_, ": cannot be opened; check its permissions");
  struct stat facts {};
  TROUPE_CHECK(::fstat(fd_.get(), &facts) == 0 && S_ISREG(facts.st_mode), Code::invalid, name_,
               ": is not a regular file", cure);
  size_bytes_ = static_cast<std::uint64_t>(facts.st_size);
}

std::size_t FileInput::read(std::uint64_t offset, std::span<std::uint8_t> out) {
  const ssize_t got = read_at(fd_, offset, std::as_writable_bytes(out));
  TROUPE_CHECK_ERRNO(got >= 0, Code::environment, name_, ": cannot be read from byte ", offset, " on");
  return static_cast<std::size_t>(got);
}

std::string read_whole(const std::string& file, std::uint64_t most_bytes, const char* cure) {
  FileInput input{file, cure};
  TROUPE_CHECK(input.size_bytes() <= most_bytes, Code::invalid, file, ": has ", input.size_bytes(),
               " bytes, more than the ", most_bytes, " that are taken", cure);
  std::string content(input.size_bytes(), '\0');
  const std::size_t got = input.read(0, {reinterpret_cast<std::uint8_t*>(content.data()), content.size()});
  content.resize(got);
  return content;
}

Unpacked::Unpacked(Input& input, const std::string& name, const char* cure) : input_(input), name_(name), cure_(cure) {
  std::array<std::uint8_t, 2> first{};
  if (input_.read(0, first) < 2 || first != kGzipMagic) return;
  packed_.emplace();
  TROUPE_CHECK(inflateInit2(&packed_->stream, 16 + MAX_WBITS) == Z_OK, Code::out_of_memory, name,
               ": zlib cannot start");
}

Unpacked::~Unpacked() {
  if (packed_) inflateEnd(&packed_->stream);
}

std::size_t Unpacked::read(std::span<std::uint8_t> out) {
  if (!packed_) {
    const std::size_t count = input_.read(offset_, out);
    offset_ += count;
    return count;
  }
  std::size_t done = 0;
  while (done < out.size() && !packed_->over) done += inflate_some(out.subspan(done));
  return done;
}

std::size_t Unpacked::inflate_some(std::span<std::uint8_t> out) {
  z_stream& stream = packed_->stream;
  refill();
  const auto room = static_cast<uInt>(std::min<std::size_t>(out.size(), std::numeric_limits<uInt>::max()));
  stream.next_out = out.data();
  stream.avail_out = room;
  const int result = ::inflate(&stream, Z_NO_FLUSH);
  TROUPE_CHECK(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, Code::invalid, name_,
               ": damaged gzip data near byte ", offset(), " (", stream.msg ? stream.msg : "zlib gives no reason", ")",
               cure_);
  if (result == Z_STREAM_END) {
    refill();  // another member, or the end
    packed_->over = stream.avail_in == 0;
    if (!packed_->over) inflateReset(&stream);
  } else {
    TROUPE_CHECK(stream.avail_in > 0 || stream.avail_out == 0 || offset_ < input_.size_bytes(), Code::invalid, name_,
                 ": cut short: the gzip data end in the middle, at byte ", offset_, cure_);
  }
  return room - stream.avail_out;
}

void Unpacked::refill() {
  z_stream& stream = packed_->stream;
  if (stream.avail_in > 0) return;
  const std::size_t count = input_.read(offset_, packed_->buffer);
  offset_ += count;
  stream.next_in = packed_->buffer.data();
  stream.avail_in = static_cast<uInt>(count);
}

}  // namespace troupe::detail
