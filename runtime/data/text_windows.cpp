#include "runtime/data/text_windows.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/detail/data_format.hpp"
#include "runtime/data/detail/unpacked.hpp"
#include "runtime/model/dropout.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t kByteValues = 256;
constexpr std::uint64_t kShiftKey = 0x74657874;  // keeps these random numbers different from all others of the seed
constexpr const char* kTextCure = "; name a text file (--set data.path=FILE)";

/// How many windows fit. The label of a window's last byte is the byte after it; training windows may begin up to
/// `length` - 1 bytes later.
std::uint64_t count_text_windows(std::uint64_t bytes, std::uint32_t length, bool training) {
  const std::uint64_t spare = training ? length : 1;
  return bytes < spare ? 0 : (bytes - spare) / length;
}

std::vector<Field> text_fields(std::uint32_t length) {
  return {{std::string{kTokens}, {{length}}, DType::i32, kByteValues},
          {std::string{kLabel}, {{length}}, DType::i32, kByteValues}};
}

/// The number of bytes of the training set, in a file of `bytes` bytes.
std::uint64_t count_training_bytes(std::uint64_t bytes, const DataOptions& options) {
  const auto held_back = static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * options.validation));
  return bytes - std::min(held_back, bytes);
}

/// The facts of a file of `bytes` bytes. Throws Error{invalid} if one of the sets has no sample.
DataFacts text_facts(const std::string& file, std::uint64_t bytes, const DataOptions& options) {
  const std::uint64_t training = count_training_bytes(bytes, options);
  const DataFacts facts{.fields = text_fields(options.length),
                        .train_samples = count_text_windows(training, options.length, true),
                        .test_samples = count_text_windows(bytes - training, options.length, false),
                        .size_bytes = bytes};
  TROUPE_CHECK(facts.train_samples > 0 && facts.test_samples > 0, Code::invalid, file, ": has ", bytes,
               " bytes, of which ", bytes - training, " are for validation; training takes ", 2 * options.length,
               " at least, and validation ", options.length + 1,
               "; name a longer text, or set a smaller data.length or another data.validation");
  return facts;
}

/// Throws Error{invalid} for a packed file.
void check_plain(detail::FileInput& input, const std::string& file) {
  std::uint8_t first[2]{};
  const bool packed = input.read(0, first) == 2 && first[0] == 0x1f && first[1] == 0x8b;
  TROUPE_CHECK(!packed, Code::invalid, file, ": is packed by gzip; unpack it (gunzip -k), or name another file");
}

DataFacts look_at_text(const std::string& file, const DataOptions& options) {
  detail::FileInput input{file, kTextCure};
  check_plain(input, file);
  return text_facts(file, input.size_bytes(), options);
}

DataSet read_text(const std::string& file, const DataOptions& options) {
  detail::FileInput input{file, kTextCure};
  check_plain(input, file);
  text_facts(file, input.size_bytes(), options);
  auto bytes = std::make_shared<std::vector<std::uint8_t>>(input.size_bytes());
  TROUPE_CHECK(input.read(0, *bytes) == bytes->size(), Code::invalid, file,
               ": became shorter while it was read; start again when nothing writes to it");
  const std::span<const std::uint8_t> all{*bytes};
  const std::uint64_t training = count_training_bytes(all.size(), options);
  DataSet set;
  set.train = std::make_unique<TextWindows>(bytes, all.first(training), options.length, true);
  set.test = std::make_unique<TextWindows>(bytes, all.subspan(training), options.length, false);
  return set;
}

}  // namespace

TextWindows::TextWindows(std::shared_ptr<const std::vector<std::uint8_t>> text, std::span<const std::uint8_t> part,
                         std::uint32_t length, bool training)
    : text_(std::move(text)),
      part_(part),
      length_(length),
      training_(training),
      count_(count_text_windows(part.size(), length, training)),
      fields_(text_fields(length)) {
  TROUPE_CHECK(count_ > 0, Code::invalid, "a text of ", part.size(), " bytes has no window of ", length);
}

void TextWindows::fill_batch(const FillRequest& request) const {
  check_request(*this, request);
  for (const BatchLayout::Entry& entry : request.batch->entries()) {
    if (entry.field.name == kSampleKey) continue;
    auto* to = reinterpret_cast<std::int32_t*>(request.slot + entry.offset);
    for (const Sample& sample : request.samples) {
      const std::uint64_t key = sub_key(sub_key(request.seed, kShiftKey), sample.epoch);
      const std::uint64_t shift = training_ ? random_below(key, 0, length_) : 0;
      const std::uint64_t first = sample.index * length_ + shift + (entry.field.name == kLabel ? 1 : 0);
      to = std::ranges::copy(part_.subspan(first, length_), to).out;
    }
  }
}

void TextWindows::fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const {
  fill_on(threads, request, std::move(done), [this](const FillRequest& what) { fill_batch(what); });
}

const detail::DataFormat detail::kTextFormat{.word = "text",
                                             .title = "text",
                                             .set = "",
                                             .needs = "a text file",
                                             .cure = "",
                                             .is_file = true,
                                             .is_in = [](const std::string& file) { return is_there(file); },
                                             .look = look_at_text,
                                             .read = read_text};

}  // namespace troupe
