#include "runtime/data/idx.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iomanip>
#include <limits>
#include <new>
#include <optional>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

constexpr const char* kCure =
    "; fetch the file again, name another folder (--set data.path=FOLDER), or do without files "
    "(--set data.source=generated)";
constexpr std::uint64_t kDeflateGreatestRatio = 1032;  // 258 bytes from two bits

/// Bytes that can be read from anywhere, of a size known from the start.
class Input {
 public:
  virtual ~Input() = default;
  virtual std::uint64_t size_bytes() const noexcept = 0;
  /// Reads out.size() bytes from `offset`; fewer only at the end.
  virtual std::size_t read(std::uint64_t offset, std::span<std::uint8_t> out) = 0;
};

class MemoryInput final : public Input {
 public:
  explicit MemoryInput(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::uint8_t> out) override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t count = std::min<std::uint64_t>(out.size(), bytes_.size() - offset);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), count, out.begin());
    return count;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

class FileInput final : public Input {
 public:
  explicit FileInput(const std::string& name) : name_(name) {
    fd_ = ::open(name.c_str(),
                 O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // non-blocking: a pipe in the file's place must not hang us
    if (fd_ < 0 && (errno == ENOENT || errno == ENOTDIR)) fail_errno(Code::invalid, text(name, kCure));
    TROUPE_CHECK_ERRNO(fd_ >= 0, Code::environment, name, ": cannot be opened; check its permissions");
    struct stat facts {};
    const bool known = ::fstat(fd_, &facts) == 0;
    if (known && S_ISREG(facts.st_mode)) {
      size_bytes_ = static_cast<std::uint64_t>(facts.st_size);
      return;
    }
    ::close(fd_);
    fail(Code::invalid, text(name, ": is not a regular file", kCure));
  }
  FileInput(const FileInput&) = delete;
  FileInput& operator=(const FileInput&) = delete;
  ~FileInput() override { ::close(fd_); }

  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  std::size_t read(std::uint64_t offset, std::span<std::uint8_t> out) override {
    std::size_t got = 0;
    while (got < out.size()) {
      const ssize_t n = ::pread(fd_, out.data() + got, out.size() - got, static_cast<off_t>(offset + got));
      if (n < 0 && errno == EINTR) continue;
      TROUPE_CHECK_ERRNO(n >= 0, Code::environment, name_, ": cannot be read at byte ", offset + got);
      if (n == 0) break;
      got += static_cast<std::size_t>(n);
    }
    return got;
  }

 private:
  const std::string& name_;
  int fd_ = -1;
  std::uint64_t size_bytes_ = 0;
};

/// The unpacked bytes of an input, front to back.
class Unpacked {
 public:
  Unpacked(Input& input, const std::string& name) : input_(input), name_(name) {
    std::array<std::uint8_t, 2> first{};
    if (input_.read(0, first) < 2 || first != kGzipMagic) return;
    packed_.emplace();
    TROUPE_CHECK(inflateInit2(&packed_->stream, 16 + MAX_WBITS) == Z_OK, Code::out_of_memory, name,
                 ": zlib cannot start");
  }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;
  ~Unpacked() {
    if (packed_) inflateEnd(&packed_->stream);
  }

  bool gzip() const noexcept { return packed_.has_value(); }
  /// Of the input.
  std::uint64_t offset() const noexcept { return packed_ ? offset_ - packed_->stream.avail_in : offset_; }

  /// Fills `out`; returns fewer only at the end. The end of gzip data is accepted only with checksums that agree.
  std::size_t read(std::span<std::uint8_t> out) {
    if (!packed_) {
      const std::size_t count = input_.read(offset_, out);
      offset_ += count;
      return count;
    }
    std::size_t done = 0;
    while (done < out.size() && !packed_->over) done += inflate_some(out.subspan(done));
    return done;
  }

 private:
  static constexpr std::array<std::uint8_t, 2> kGzipMagic{0x1f, 0x8b};
  struct Packed {
    z_stream stream{};
    bool over = false;
    std::vector<std::uint8_t> buffer = std::vector<std::uint8_t>(1 << 16);
  };

  std::size_t inflate_some(std::span<std::uint8_t> out) {
    z_stream& stream = packed_->stream;
    refill();
    const auto room = static_cast<uInt>(std::min<std::size_t>(out.size(), std::numeric_limits<uInt>::max()));
    stream.next_out = out.data();
    stream.avail_out = room;
    const int result = ::inflate(&stream, Z_NO_FLUSH);
    TROUPE_CHECK(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, Code::invalid, name_,
                 ": damaged gzip data near byte ", offset(), " (", stream.msg ? stream.msg : "zlib gives no reason",
                 ")", kCure);
    if (result == Z_STREAM_END) {
      refill();  // another member, or the end
      packed_->over = stream.avail_in == 0;
      if (!packed_->over) inflateReset(&stream);
    } else {
      TROUPE_CHECK(stream.avail_in > 0 || stream.avail_out == 0 || offset_ < input_.size_bytes(), Code::invalid, name_,
                   ": cut short: the gzip data end in the middle, at byte ", offset_, kCure);
    }
    return room - stream.avail_out;
  }

  void refill() {
    z_stream& stream = packed_->stream;
    if (stream.avail_in > 0) return;
    const std::size_t count = input_.read(offset_, packed_->buffer);
    offset_ += count;
    stream.next_in = packed_->buffer.data();
    stream.avail_in = static_cast<uInt>(count);
  }

  Input& input_;
  const std::string& name_;
  std::uint64_t offset_ = 0;
  std::optional<Packed> packed_;
};

const char* word_for(IdxKind kind) { return kind == IdxKind::images ? "images" : "labels"; }

std::string hex(std::uint32_t number) {
  std::ostringstream out;
  out << "0x" << std::hex << std::setw(8) << std::setfill('0') << number;
  return std::move(out).str();
}

/// What stands in the place of an IDX file more often than chance has it.
std::string_view looks_like(std::uint32_t magic) {
  struct Known {
    std::uint32_t mask, magic;
    std::string_view words;
  };
  static constexpr std::array kKnown{
      Known{0xffff0000, 0x1f8b0000, " (a gzip file, packed twice: unpack it once)"},
      Known{0xffff0000, 0x504b0000, " (a zip archive: unpack it)"},
      Known{0xffffff00, 0x425a6800, " (a bzip2 file: unpack it)"},
      Known{0xffffffff, 0xfd377a58, " (an xz file: unpack it)"},
      Known{0xffffffff, 0x28b52ffd, " (a zstd file: unpack it)"},
      Known{0xff000000, 0x3c000000, " (a web page, as servers send it in the place of a file)"},
      Known{0xffffffff, 0x76657273, " (a pointer of Git LFS: `git lfs pull` brings the file)"},
      Known{0xffff0000, 0x00000000,
            " (an IDX file of other numbers or dimensions; images have three of bytes, labels one)"},
  };
  for (const Known& known : kKnown)
    if ((magic & known.mask) == known.magic) return known.words;
  return {};
}

std::string extents_of(const IdxHeader& header) {
  return header.kind == IdxKind::images
             ? text(header.count, " x ", header.height, " x ", header.width, " = ", header.content_bytes())
             : text(header.count);
}

std::uint32_t big_endian(std::span<const std::uint8_t> bytes, std::size_t at) {
  return std::uint32_t{bytes[at]} << 24 | std::uint32_t{bytes[at + 1]} << 16 | std::uint32_t{bytes[at + 2]} << 8 |
         bytes[at + 3];
}

IdxHeader read_header(Unpacked& bytes, const std::string& name, IdxKind kind) {
  IdxHeader header{kind};
  std::array<std::uint8_t, 16> head{};
  const std::size_t wanted = header.header_bytes();
  const std::size_t got = bytes.read(std::span{head}.first(wanted));
  TROUPE_CHECK(got > 0, Code::invalid, name, ": is empty", kCure);
  if (got >= 4) {
    const std::uint32_t magic = big_endian(head, 0);
    const IdxKind other = kind == IdxKind::images ? IdxKind::labels : IdxKind::images;
    TROUPE_CHECK(magic != static_cast<std::uint32_t>(other), Code::invalid, name, ": byte 0: holds ", word_for(other),
                 ", not ", word_for(kind), " (magic ", hex(magic), "); the files' names may be swapped");
    TROUPE_CHECK(magic == static_cast<std::uint32_t>(kind), Code::invalid, name, ": byte 0: is not an IDX file of ",
                 word_for(kind), ": magic ", hex(magic), " instead of ", hex(static_cast<std::uint32_t>(kind)),
                 looks_like(magic), kCure);
  }
  TROUPE_CHECK(got == wanted, Code::invalid, name, ": cut short: the header needs ", wanted, " bytes, ", got,
               " are there", kCure);
  header.count = big_endian(head, 4);
  if (kind == IdxKind::images) {
    header.height = big_endian(head, 8);
    header.width = big_endian(head, 12);
  }
  // Divisions, because the product of three 32-bit numbers may pass 64 bits.
  TROUPE_CHECK(header.count > 0 && header.height > 0 && header.width > 0, Code::invalid, name,
               ": byte 4: the header announces ", header.count, " ", word_for(kind), " of ", header.height, " x ",
               header.width, "; all must be above 0", kCure);
  TROUPE_CHECK(
      header.sample_bytes() <= kIdxMaxContentBytes && header.count <= kIdxMaxContentBytes / header.sample_bytes(),
      Code::invalid, name, ": byte 4: the header announces ", header.count, " x ", header.height, " x ", header.width,
      " bytes, more than the ", kIdxMaxContentBytes, " that are taken", kCure);
  return header;
}

/// Compares what the header announces with the size of the file, before anything is allocated.
void check_size(const IdxHeader& header, const Input& input, bool gzip, const std::string& name) {
  const std::uint64_t present = input.size_bytes();
  if (gzip) {
    TROUPE_CHECK(header.content_bytes() / kDeflateGreatestRatio <= present, Code::invalid, name,
                 ": byte 4: the header announces ", extents_of(header), " bytes, which ", present,
                 " bytes of gzip data cannot hold", kCure);
    return;
  }
  const std::uint64_t wanted = header.header_bytes() + header.content_bytes();
  TROUPE_CHECK(present >= wanted, Code::invalid, name, ": cut short: the header announces ", extents_of(header),
               " bytes after byte ", header.header_bytes(), ", ", present - header.header_bytes(), " are there", kCure);
  TROUPE_CHECK(present == wanted, Code::invalid, name, ": byte ", wanted, ": ", present - wanted,
               " bytes more than the header announces (", extents_of(header), ")", kCure);
}

void check_count(std::uint64_t got, const IdxHeader& header, const std::string& name) {
  TROUPE_CHECK(got == header.content_bytes(), Code::invalid, name, ": cut short: the header announces ",
               extents_of(header), " bytes, ", got, " are there", kCure);
}

void check_end(Unpacked& bytes, const IdxHeader& header, const std::string& name) {
  std::array<std::uint8_t, 1> more{};
  TROUPE_CHECK(bytes.read(more) == 0, Code::invalid, name, ": holds more bytes than the header announces (",
               extents_of(header), ")", kCure);
}

IdxFile parse(Input& input, const std::string& name, IdxKind kind) {
  Unpacked bytes{input, name};
  IdxFile file{name, read_header(bytes, name, kind), {}};
  check_size(file.header, input, bytes.gzip(), name);
  try {
    file.content.resize(file.header.content_bytes());
  } catch (const std::bad_alloc&) {
    fail(Code::out_of_memory, text(name, ": no memory for its ", file.header.content_bytes(), " bytes"));
  }
  check_count(bytes.read(file.content), file.header, name);
  check_end(bytes, file.header, name);
  return file;
}

/// The length modulo 2^32 that the last member of a gzip file claims to have.
std::uint32_t claimed_length(Input& input) {
  std::array<std::uint8_t, 4> tail{};
  if (input.size_bytes() < tail.size()) return 0;
  input.read(input.size_bytes() - tail.size(), tail);
  std::reverse(tail.begin(), tail.end());
  return big_endian(tail, 0);
}

}  // namespace

IdxFile read_idx(const std::string& file, IdxKind kind) {
  FileInput input{file};
  return parse(input, file, kind);
}

IdxFile parse_idx(std::span<const std::uint8_t> bytes, const std::string& name, IdxKind kind) {
  MemoryInput input{bytes};
  return parse(input, name, kind);
}

IdxHeader check_idx(const std::string& file, IdxKind kind) {
  FileInput input{file};
  Unpacked bytes{input, file};
  const IdxHeader header = read_header(bytes, file, kind);
  check_size(header, input, bytes.gzip(), file);
  const std::uint64_t length = header.header_bytes() + header.content_bytes();
  if (!bytes.gzip() || claimed_length(input) == static_cast<std::uint32_t>(length)) return header;
  std::vector<std::uint8_t> scratch(1 << 16);
  std::uint64_t got = 0;
  while (got < header.content_bytes()) {
    const auto wanted = std::min<std::uint64_t>(scratch.size(), header.content_bytes() - got);
    const std::size_t count = bytes.read(std::span{scratch}.first(wanted));
    if (count == 0) break;
    got += count;
  }
  check_count(got, header, file);
  check_end(bytes, header, file);
  return header;
}

}  // namespace troupe
