#include "runtime/data/cifar.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/data/detail/data_format.hpp"
#include "runtime/data/detail/unpacked.hpp"

namespace troupe {
namespace {

using detail::FileInput;
using detail::MemoryInput;
using detail::Unpacked;

constexpr const char* kCifarCure =
    "; fetch the file again (tools/get-data cifar10), or name another folder (--set data.path=FOLDER)";
constexpr std::uint32_t kCifarSide = 32;
constexpr std::uint32_t kCifarClasses = 10;
constexpr std::size_t kPlaneBytes = std::size_t{kCifarSide} * kCifarSide;
constexpr std::size_t kRecordBytes = 1 + 3 * kPlaneBytes;
constexpr std::size_t kMostRecords = 200'000;
constexpr std::size_t kMostBatches = 5;
constexpr const char* kBatchesFolder = "cifar-10-batches-bin";  // in the published archive

/// How many records a plain file has by its size.
std::uint64_t count_plain_records(const FileInput& input, const std::string& name) {
  const std::uint64_t count = input.size_bytes() / kRecordBytes;
  TROUPE_CHECK(count <= kMostRecords, Code::invalid, name, ": has ", count, " images, more than the ", kMostRecords,
               " that are taken", kCifarCure);
  return count;
}

/// Appends the records of one file, and converts planes to pixels.
void append_records(Unpacked& bytes, const std::string& name, ByteImageSet& set) {
  std::array<std::uint8_t, kRecordBytes> record{};
  for (std::uint64_t count = 0;; ++count) {
    const std::size_t got = bytes.read(record);
    TROUPE_CHECK(got > 0 || count > 0, Code::invalid, name, ": is empty", kCifarCure);
    if (got == 0) return;
    TROUPE_CHECK(got == kRecordBytes, Code::invalid, name, ": byte ", count * kRecordBytes, ": ", got,
                 " bytes are left, a record has ", kRecordBytes, ": cut short, or not the binary version of CIFAR-10",
                 kCifarCure);
    TROUPE_CHECK(record[0] < kCifarClasses, Code::invalid, name, ": byte ", count * kRecordBytes, ": label ",
                 int{record[0]}, ", but labels are 0 to 9: damaged, or not the binary version of CIFAR-10", kCifarCure);
    TROUPE_CHECK(set.labels.size() < kMostRecords, Code::invalid, name, ": record ", count, ": more than ",
                 kMostRecords, " images are not taken", kCifarCure);
    set.labels.push_back(record[0]);
    const std::size_t first = set.pixels.size();
    set.pixels.resize(first + 3 * kPlaneBytes);
    std::uint8_t* to = set.pixels.data() + first;
    const std::uint8_t* const planes = record.data() + 1;
    for (std::size_t i = 0; i < kPlaneBytes; ++i)
      for (std::size_t c = 0; c < 3; ++c) *to++ = planes[c * kPlaneBytes + i];
  }
}

ByteImageSet empty_cifar() {
  return {.height = kCifarSide, .width = kCifarSide, .channels = 3, .classes = kCifarClasses};
}

/// The training batches in order, and the test batch.
struct CifarPaths {
  std::vector<std::string> train;
  std::string test;
};

std::optional<std::string> batch_in(const std::filesystem::path& folder, const std::string& stem) {
  for (const char* packing : {".bin", ".bin.gz"})
    if (const auto path = folder / (stem + packing); detail::is_there(path.string())) return path.string();
  return std::nullopt;
}

/// Empty if none of the files exists. Throws Error{invalid} if some are missing.
std::optional<CifarPaths> cifar_paths_in(const std::string& named) {
  std::filesystem::path folder{named};
  if (const auto inner = folder / kBatchesFolder; detail::is_there(inner.string())) folder = inner;
  CifarPaths paths;
  std::string missing;
  for (std::size_t i = 1; i <= kMostBatches; ++i) {
    const std::string stem = text("data_batch_", i);
    if (auto path = batch_in(folder, stem))
      paths.train.push_back(std::move(*path));
    else
      missing += text(missing.empty() ? "" : ", ", stem, ".bin");
  }
  const auto test = batch_in(folder, "test_batch");
  if (paths.train.empty() && !test) return std::nullopt;
  if (!test) missing += text(missing.empty() ? "" : ", ", "test_batch.bin");
  TROUPE_CHECK(missing.empty(), Code::invalid, folder.string(), ": lacks ", missing, " (plain or .gz)", kCifarCure);
  paths.test = *test;
  return paths;
}

CifarPaths cifar_paths_still_in(const std::string& folder) {
  auto paths = cifar_paths_in(folder);
  TROUPE_CHECK(paths, Code::invalid, folder, ": the data files are gone; start again to search for them");
  return std::move(*paths);
}

/// Plain files are counted by their sizes; packed ones are unpacked, and those that are damaged are read for the error.
std::uint64_t count_records(std::span<const std::string> files) {
  std::uint64_t count = 0;
  for (const std::string& file : files) {
    FileInput input{file, kCifarCure};
    const bool plain =
        !Unpacked{input, file, kCifarCure}.gzip() && input.size_bytes() > 0 && input.size_bytes() % kRecordBytes == 0;
    count += plain ? count_plain_records(input, file) : read_cifar({&file, 1}).labels.size();
  }
  return count;
}

DataFacts look_at_cifar(const std::string& folder, const DataOptions& options) {
  const CifarPaths paths = cifar_paths_still_in(folder);
  DataFacts facts{.fields = image_fields({{kCifarSide, kCifarSide, 3}}, kCifarClasses, options.augmentation),
                  .train_samples = count_records(paths.train),
                  .test_samples = count_records({&paths.test, 1})};
  facts.size_bytes = (facts.train_samples + facts.test_samples) * kRecordBytes;
  return facts;
}

DataSet read_cifar_set(const std::string& folder, const DataOptions& options) {
  const CifarPaths paths = cifar_paths_still_in(folder);
  DataSet set;
  set.train = std::make_unique<ByteImages>(read_cifar(paths.train), options.augmentation, true);
  set.test = std::make_unique<ByteImages>(read_cifar({&paths.test, 1}), options.augmentation, false);
  return set;
}

}  // namespace

ByteImageSet parse_cifar(std::span<const std::uint8_t> bytes, const std::string& name) {
  ByteImageSet set = empty_cifar();
  MemoryInput input{bytes};
  Unpacked unpacked{input, name, kCifarCure};
  append_records(unpacked, name, set);
  return set;
}

ByteImageSet read_cifar(std::span<const std::string> files) {
  ByteImageSet set = empty_cifar();
  for (const std::string& file : files) {
    FileInput input{file, kCifarCure};
    Unpacked unpacked{input, file, kCifarCure};
    if (!unpacked.gzip()) {
      const std::size_t records = count_plain_records(input, file);
      set.labels.reserve(set.labels.size() + records);
      set.pixels.reserve(set.pixels.size() + records * 3 * kPlaneBytes);
    }
    append_records(unpacked, file, set);
  }
  return set;
}

const detail::DataFormat detail::kCifarFormat{
    .word = "cifar10",
    .title = "CIFAR-10",
    .set = "cifar10",
    .needs = "data_batch_1.bin to data_batch_5.bin and test_batch.bin, the binary version of CIFAR-10 (plain or .gz)",
    .cure = ", or fetch them: tools/get-data cifar10",
    .is_in = [](const std::string& folder) { return cifar_paths_in(folder).has_value(); },
    .look = look_at_cifar,
    .read = read_cifar_set};

}  // namespace troupe
