#include "runtime/data/idx.hpp"

#include <algorithm>
#include <array>
#include <iomanip>
#include <new>

#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"
#include "runtime/data/detail/unpacked.hpp"

namespace troupe {
namespace {

using detail::FileInput;
using detail::Input;
using detail::MemoryInput;
using detail::Unpacked;

constexpr const char* kCure =
    "; fetch the file again, name another folder (--set data.path=FOLDER), or do without files "
    "(--set data.source=generated)";
using detail::kDeflateGreatestRatio;

const char* word_for(IdxKind kind) { return kind == IdxKind::images ? "images" : "labels"; }

std::string hex(std::uint32_t number) {
  TextStream out;
  out << "0x" << std::hex << std::setw(8) << std::setfill('0') << number;
  return std::move(out).str();
}

/// What is often found instead of an IDX file.
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
  // Divisions, because the product of three 32-bit numbers can overflow 64 bits.
  TROUPE_CHECK(header.count > 0 && header.height > 0 && header.width > 0, Code::invalid, name,
               ": byte 4: the header announces ", header.count, " ", word_for(kind), " of ", header.height, " x ",
               header.width, "; all must be above 0", kCure);
  TROUPE_CHECK(
      header.sample_bytes() <= kIdxMaxContentBytes && header.count <= kIdxMaxContentBytes / header.sample_bytes(),
      Code::invalid, name, ": byte 4: the header announces ", header.count, " x ", header.height, " x ", header.width,
      " bytes, more than the ", kIdxMaxContentBytes, " that are taken", kCure);
  return header;
}

/// Compares the size that the header announces with that of the file, before memory is allocated.
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
  Unpacked bytes{input, name, kCure};
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

/// The length modulo 2^32 in the trailer of the last member of a gzip file.
std::uint32_t claimed_length(Input& input) {
  std::array<std::uint8_t, 4> tail{};
  if (input.size_bytes() < tail.size()) return 0;
  input.read(input.size_bytes() - tail.size(), tail);
  std::reverse(tail.begin(), tail.end());
  return big_endian(tail, 0);
}

}  // namespace

IdxFile read_idx(const std::string& file, IdxKind kind) {
  FileInput input{file, kCure};
  return parse(input, file, kind);
}

IdxFile parse_idx(std::span<const std::uint8_t> bytes, const std::string& name, IdxKind kind) {
  MemoryInput input{bytes};
  return parse(input, name, kind);
}

IdxHeader check_idx(const std::string& file, IdxKind kind) {
  FileInput input{file, kCure};
  Unpacked bytes{input, file, kCure};
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
