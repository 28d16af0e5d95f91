#include "runtime/data/shards.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "runtime/base/detail/read_at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/data/detail/data_format.hpp"
#include "runtime/data/detail/encoded_format.hpp"
#include "runtime/data/detail/unpacked.hpp"

// data.source = "shards".
namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShardCure =
    "; make the index again (tools/make-shards --index SHARD...), or fetch the files again";
constexpr std::string_view kShardMagic = "TRSHARD1";
constexpr std::uint64_t kTarBlock = 512;
constexpr std::uint32_t kMostImageBytes = std::uint32_t{256} << 20;
constexpr std::int32_t kMostShardLabel = 1'000'000;

template <class Number>
Number little_endian(std::span<const std::uint8_t> bytes, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = sizeof(Number); i > 0; --i) number = number << 8 | bytes[at + i - 1];
  return static_cast<Number>(number);
}

/// What is wrong with the tar header of a member of `size` bytes; empty: nothing.
/// Source: Seventh Edition Unix, tar(5), and POSIX.1-1988: size at 124, checksum at 148, both octal, perhaps behind
/// spaces. "ustar" is not asked for: tar --format=v7 does not write it, and a checksum says as much.
std::string tar_fault(std::span<const std::uint8_t, kTarBlock> head, std::uint32_t size) {
  const auto octal = [&](std::size_t at, std::size_t count) {
    std::uint64_t number = 0;
    std::size_t i = at;
    while (i < at + count && head[i] == ' ') ++i;
    for (; i < at + count && head[i] >= '0' && head[i] <= '7'; ++i) number = number * 8 + (head[i] - '0');
    return number;
  };
  std::uint64_t sum = 0;  // the checksum itself counts as spaces
  for (std::size_t i = 0; i < kTarBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : head[i];
  if (octal(148, 8) != sum) return "the index is wrong: no member of the archive begins there";
  if (octal(124, 12) != size)
    return text("the index is wrong: the archive's member has ", octal(124, 12), " bytes, not ", size);
  return {};
}

/// The shards "train-000000.tar", ... in `folder` that begin with `stem`, sorted.
std::vector<std::string> shards_in(const std::string& folder, std::string_view stem) {
  std::vector<std::string> paths;
  std::error_code reason;
  for (fs::directory_iterator at{folder, reason}, end; !reason && at != end; at.increment(reason)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(stem) && name.ends_with(".tar")) paths.push_back(at->path().string());
  }
  TROUPE_CHECK(!reason, Code::environment, folder, ": cannot be read: ", reason.message());
  std::ranges::sort(paths);
  return paths;
}

EncodedImageSet images_in_shards(const std::vector<std::string>& paths) {
  auto files = std::make_unique<ShardFiles>();
  for (const std::string& path : paths) files->add(path);
  EncodedImageSet set;
  for (std::uint64_t i = 0; i < files->count(); ++i) set.labels.push_back(files->label(i));
  set.files = std::move(files);
  return set;
}

DataSet read_shards(const std::string& folder, const DataOptions& options) {
  std::vector<std::string> tests = shards_in(folder, "test-");
  if (tests.empty()) tests = shards_in(folder, "val-");
  TROUPE_CHECK(!tests.empty(), Code::invalid, folder, ": has neither test-*.tar nor val-*.tar beside train-*.tar",
               kShardCure);
  EncodedImageSet train = images_in_shards(shards_in(folder, "train-")), test = images_in_shards(tests);
  train.classes = detail::count_label_classes(train.labels, folder + "/train-*.tar");
  test.classes = train.classes;
  return detail::encoded_set(std::move(train), std::move(test), options);
}

}  // namespace

std::vector<ShardEntry> parse_shard_index(std::span<const std::uint8_t> bytes, std::uint64_t shard_bytes,
                                          const std::string& name) {
  TROUPE_CHECK(
      bytes.size() >= kShardHeadBytes && std::memcmp(bytes.data(), kShardMagic.data(), kShardMagic.size()) == 0,
      Code::invalid, name, ": is not the index of a shard", kShardCure);
  const auto count = little_endian<std::uint64_t>(bytes, 8);
  const auto announced = little_endian<std::uint64_t>(bytes, 16);
  const std::span<const std::uint8_t> rest = bytes.subspan(kShardHeadBytes);
  TROUPE_CHECK(count == rest.size() / kShardEntryBytes && rest.size() % kShardEntryBytes == 0, Code::invalid, name,
               ": announces ", count, " entries, but ", rest.size(), " bytes follow, of which each takes ",
               kShardEntryBytes, kShardCure);
  TROUPE_CHECK(announced == shard_bytes, Code::invalid, name, ": belongs to a shard of ", announced,
               " bytes, this one has ", shard_bytes, kShardCure);
  const uLong sum = ::crc32_z(::crc32_z(0, nullptr, 0), rest.data(), rest.size());
  TROUPE_CHECK(sum == little_endian<std::uint32_t>(bytes, 24), Code::invalid, name,
               ": is damaged: its checksum does not agree", kShardCure);
  std::vector<ShardEntry> entries(count);
  std::uint64_t end = 0;  // of the previous entry
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t at = i * kShardEntryBytes;
    const ShardEntry entry{little_endian<std::uint64_t>(rest, at), little_endian<std::uint32_t>(rest, at + 8),
                           little_endian<std::int32_t>(rest, at + 12)};
    const bool lies_inside = entry.offset >= end && entry.offset - end >= kTarBlock && entry.offset <= shard_bytes &&
                             entry.size_bytes <= shard_bytes - entry.offset && entry.size_bytes <= kMostImageBytes;
    TROUPE_CHECK(lies_inside, Code::invalid, name, ": entry ", i, ": bytes ", entry.offset, " to ",
                 entry.offset + entry.size_bytes, " do not lie in the shard behind the entry before", kShardCure);
    TROUPE_CHECK(entry.label >= 0 && entry.label <= kMostShardLabel, Code::invalid, name, ": entry ", i, ": label ",
                 entry.label, " is not from 0 to ", kMostShardLabel, kShardCure);
    end = entry.offset + entry.size_bytes;
    entries[i] = entry;
  }
  return entries;
}

void ShardFiles::add(const std::string& path) {
  const std::string index_path = path + ".index";
  detail::FileInput shard{path, kShardCure}, index{index_path, kShardCure};
  // Each member takes a block for its header at least.
  const std::uint64_t most = kShardHeadBytes + shard.size_bytes() / kTarBlock * kShardEntryBytes;
  TROUPE_CHECK(index.size_bytes() <= most, Code::invalid, index_path, ": has ", index.size_bytes(),
               " bytes, but a shard of ", shard.size_bytes(), " bytes has no more than ", most, kShardCure);
  std::vector<std::uint8_t> bytes(index.size_bytes());
  bytes.resize(index.read(0, bytes));
  const std::vector<ShardEntry> entries = parse_shard_index(bytes, shard.size_bytes(), index_path);
  if (entries.empty()) return;
  shards_.push_back({path, entries_.size()});
  entries_.insert(entries_.end(), entries.begin(), entries.end());
}

const ShardFiles::Shard& ShardFiles::shard_of(std::uint64_t image) const {
  return *std::prev(std::ranges::upper_bound(shards_, image, {}, &Shard::first));
}

std::string ShardFiles::name(std::uint64_t image) const {
  return text(shard_of(image).path, ": byte ", entries_.at(image).offset);
}

/// A shard is opened for each image: a set may have more shards than a process may have open files, and opening one
/// costs a hundredth of decoding a photograph.
std::string ShardFiles::read(std::uint64_t image, std::vector<std::uint8_t>& to) const {
  const ShardEntry& entry = entries_.at(image);
  const Fd fd{::open(shard_of(image).path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!fd) return text("cannot be opened: ", std::strerror(errno));
  const std::uint64_t first = entry.offset - kTarBlock, size = kTarBlock + entry.size_bytes;
  to.resize(size);
  const ssize_t got = read_at(fd, first, std::as_writable_bytes(std::span{to}));
  if (got < 0) return text("cannot be read: ", std::strerror(errno));
  if (static_cast<std::uint64_t>(got) < size) return "the shard has become shorter";
  std::string fault = tar_fault(std::span<const std::uint8_t, kTarBlock>{to.data(), kTarBlock}, entry.size_bytes);
  to.erase(to.begin(), to.begin() + kTarBlock);
  return fault;
}

const detail::DataFormat detail::kShardsFormat{
    .word = "shards",
    .title = "shards",
    .set = {},
    .needs = "train-*.tar and test-*.tar or val-*.tar, each with its .index",
    .cure = "; tools/make-shards makes them from a folder of images",
    .is_in = [](const std::string& folder) { return !shards_in(folder, "train-").empty(); },
    .read = read_shards};

}  // namespace troupe
