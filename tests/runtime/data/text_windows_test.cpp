#include "runtime/data/text_windows.hpp"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "runtime/data/find_data.hpp"
#include "runtime/model/dropout.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

using testing::Bytes;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::write_file;

/// What a batch has of these samples: [rows, length] each.
struct FilledText {
  std::vector<std::int32_t> tokens, labels;
};
FilledText filled_text(const Source& source, const std::vector<Sample>& samples, std::uint64_t seed = 1) {
  const BatchLayout batch{static_cast<std::uint32_t>(samples.size()), source.fields()};
  std::vector<std::byte> slot(batch.size_bytes());
  fill_now(source, {samples, seed, &batch, slot.data()});
  const auto values = [&](std::string_view name) {
    const BatchLayout::Entry& entry = batch.entry(name);
    const auto* const first = reinterpret_cast<const std::int32_t*>(slot.data() + entry.offset);
    return std::vector<std::int32_t>{first, first + batch.rows() * entry.row_elements()};
  };
  return {values(kTokens), values(kLabel)};
}

class TextFile : public ::testing::Test {
 protected:
  DataPlace place_of(const Bytes& bytes, std::uint32_t length = 8) {
    const auto file = folder_.path() / "text.txt";
    write_file(file, bytes);
    return find_data({.source = "text", .options = {.length = length}, .path = file.string(), .path_is_set = true});
  }
  TempFolder folder_;
};

TEST_F(TextFile, IsCutIntoWindowsWhoseLabelsAreTheBytesThatFollow) {
  const DataPlace place = place_of(testing::counting(1000));
  EXPECT_THAT(place.description, HasSubstr("111 training, 12 test samples, 8 bytes each, 256 classes"));
  const DataSet set = read_data(place);
  const DataFacts facts = look_at_data(place);
  EXPECT_EQ(set.train->count_samples(), facts.train_samples);
  EXPECT_EQ(set.test->count_samples(), facts.test_samples);
  EXPECT_EQ(set.train->fields(), facts.fields);
  EXPECT_EQ(set.train->size_bytes() + set.test->size_bytes(), facts.size_bytes);
  const FilledText test = filled_text(*set.test, {{.index = 0}, {.index = 11}});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(test.tokens[i], (900 + i) % 251);
    EXPECT_EQ(test.tokens[8 + i], (900 + 11 * 8 + i) % 251);
    EXPECT_EQ(test.labels[i], (901 + i) % 251);
  }
}

TEST_F(TextFile, CutsEachEpochAtOtherPlacesTheSameForEachSeed) {
  const DataSet set = read_data(place_of(testing::counting(5000)));
  std::set<std::int32_t> firsts;
  const std::uint64_t last = set.train->count_samples() - 1;
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    const FilledText one = filled_text(*set.train, {{0, epoch}, {1, epoch}, {last, epoch}});
    firsts.insert(one.tokens[0]);
    EXPECT_LT(one.tokens[0], 8);
    EXPECT_EQ(one.tokens[8], one.tokens[0] + 8) << "windows lie end to end";
    EXPECT_EQ(one.tokens, filled_text(*set.train, {{0, epoch}, {1, epoch}, {last, epoch}}).tokens);
    EXPECT_EQ(filled_text(*set.test, {{2, epoch}}).tokens, filled_text(*set.test, {{2, 0}}).tokens);
  }
  EXPECT_EQ(firsts.size(), 8U);
}

TEST_F(TextFile, LeavesTheKeysOfABatchesSamplesAlone) {
  const DataSet set = read_data(place_of(testing::counting(1000)));
  std::vector<Field> fields = set.test->fields();
  fields.insert(fields.begin(), sample_key_field());
  const BatchLayout batch{2, fields};
  std::vector<std::byte> slot(batch.size_bytes());
  const std::vector<Sample> samples{{.index = 0, .epoch = 3}, {.index = 11, .epoch = 3}};
  fill_now(*set.test, {samples, 5, &batch, slot.data()});
  const auto values = [&](std::string_view name) {
    return reinterpret_cast<const std::int32_t*>(slot.data() + batch.entry(name).offset);
  };
  EXPECT_EQ(joined_key(values(kSampleKey)), sample_key(5, 3, 0));
  EXPECT_EQ(joined_key(values(kSampleKey) + 2), sample_key(5, 3, 11));
  EXPECT_EQ(values(kTokens)[0], 900 % 251);
  EXPECT_EQ(values(kLabel)[0], 901 % 251);
}

TEST_F(TextFile, MustHaveASampleOfBothKinds) {
  EXPECT_THAT(error_of(Code::invalid, [&] { place_of(testing::counting(80)); }),
              HasSubstr("text.txt: has 80 bytes, of which 8 are for validation; training takes 16 at least, and "
                        "validation 9; name a longer text"));
  EXPECT_EQ(look_at_data(place_of(testing::counting(90))).test_samples, 1U);
  EXPECT_THAT(error_of(Code::invalid, [&] { place_of({}); }), HasSubstr("has 0 bytes"));
}

TEST_F(TextFile, MustBeAFileThatIsNotPacked) {
  EXPECT_THAT(error_of(Code::invalid, [&] { place_of(testing::gzip(testing::counting(9000))); }),
              HasSubstr("text.txt: is packed by gzip"));
  DataRequest request{.source = "text", .path = folder_.path().string(), .path_is_set = true};
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request); }), HasSubstr("is not a file; name a text file"));
  request.path += "/none";
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request); }), HasSubstr("no such file; name a text file"));
  request.path_is_set = false;
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request); }),
              HasSubstr("none (data.path) is not there; name a text file"));
  EXPECT_THAT(error_of(Code::invalid, [] { find_data({.source = "text"}); }), HasSubstr("no data.path; name a text"));
}

}  // namespace
}  // namespace troupe
