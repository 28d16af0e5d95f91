#include "runtime/data/find_data.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>

#include "runtime/data/digits.hpp"
#include "runtime/data/idx.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Bytes;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::write_file;

/// Four small files under `folder`, of 20 training and 10 test samples.
void write_set(const fs::path& folder) {
  write_file(folder / "train-images-idx3-ubyte", testing::image_file(20));
  write_file(folder / "train-labels-idx1-ubyte", testing::label_file(20));
  write_file(folder / "t10k-images-idx3-ubyte", testing::image_file(10));
  write_file(folder / "t10k-labels-idx1-ubyte", testing::label_file(10));
}

void write_sparse(const fs::path& file, const Bytes& head, std::uint64_t content_bytes) {
  write_file(file, head);
  fs::resize_file(file, head.size() + content_bytes);
}

class FindData : public ::testing::Test {
 protected:
  FindData() {
    request.folder = (folder.path() / "app").string();
    request.path = "data/mnist";
    request.cache = (folder.path() / "cache").string();
    fs::create_directories(request.folder);
  }
  fs::path configured() const { return fs::path{request.folder} / "data/mnist"; }
  fs::path digits() const { return fs::path{request.cache} / text("digits-v", kDigitsVersion, "-seed1"); }
  /// What looks like the whole set of digits without the work of drawing it.
  void write_blank_digits() const {
    write_sparse(digits() / "train-images-idx3-ubyte", testing::idx_bytes({0x803, 60000, 28, 28}, {}), 60000 * 784);
    write_file(digits() / "train-labels-idx1-ubyte", testing::label_file(60000));
    write_sparse(digits() / "t10k-images-idx3-ubyte", testing::idx_bytes({0x803, 10000, 28, 28}, {}), 10000 * 784);
    write_sparse(digits() / "t10k-labels-idx1-ubyte", testing::idx_bytes({0x801, 10000}, {}), 10000);
  }
  std::string refusal(Code code = Code::invalid) const {
    return error_of(code, [this] { find_data(request); });
  }

  testing::TempFolder folder;
  DataRequest request;
};

TEST_F(FindData, TakesTheConfiguredFolderRelativeToTheFile) {
  write_set(configured());
  const DataPlace place = find_data(request);
  EXPECT_EQ(place.folder, configured());
  EXPECT_EQ(place.description,
            "IDX data from " + configured().string() + " (data.path): 20 training, 10 test samples, 4 x 3, 10 classes");
  EXPECT_FALSE(place.generated);
}

TEST_F(FindData, TellsAboutASetWithoutReadingItsImages) {
  write_set(configured());
  const DataPlace place = find_data(request);
  const DataFacts facts = look_at_data(place);
  const DataSet set = read_data(place);
  EXPECT_EQ(facts.fields, set.train->fields());
  EXPECT_EQ(facts.train_samples, 20u);
  EXPECT_EQ(facts.test_samples, 10u);
  EXPECT_EQ(facts.size_bytes, set.train->size_bytes() + set.test->size_bytes());
}

TEST_F(FindData, KnowsTheDigitsThatItIsAskedNotToDraw) {
  request.draw = false;
  const DataPlace place = find_data(request);
  EXPECT_FALSE(place.there);
  EXPECT_THAT(place.description, AllOf(HasSubstr("to be drawn into " + digits().string()), HasSubstr("no IDX data")));
  EXPECT_FALSE(fs::exists(request.cache));
  const DataFacts facts = look_at_data(place);
  write_blank_digits();
  const DataPlace drawn = find_data(request);
  EXPECT_TRUE(drawn.there);
  EXPECT_EQ(facts.fields, look_at_data(drawn).fields);
  EXPECT_EQ(facts.size_bytes, look_at_data(drawn).size_bytes);
  EXPECT_EQ(facts.train_samples + facts.test_samples, 70000u);
}

TEST_F(FindData, LeavesDamagedDigitsAsTheyAreWhenAskedNotToDraw) {
  write_blank_digits();
  fs::resize_file(digits() / "train-images-idx3-ubyte", 1000);
  request.draw = false;
  EXPECT_THAT(find_data(request).description, HasSubstr("to be drawn again into"));
  EXPECT_EQ(fs::file_size(digits() / "train-images-idx3-ubyte"), 1000u);
}

TEST_F(FindData, PrefersAConfiguredFolderThatHoldsDataToTheEnvironment) {
  write_set(configured());
  write_set(folder.path() / "sets/mnist");
  request.environment = folder.file("sets");
  EXPECT_THAT(find_data(request).description, AllOf(HasSubstr(configured().string()), Not(HasSubstr("TROUPE_DATA"))));
}

TEST_F(FindData, SaysThatItTookTheEnvironmentWhenTheConfiguredFolderHoldsNoData) {
  write_file(configured() / "README", {'x'});
  write_set(folder.path() / "sets/mnist");
  request.environment = folder.file("sets");
  EXPECT_THAT(find_data(request).description,
              AllOf(HasSubstr("sets/mnist (TROUPE_DATA; "), HasSubstr(configured().string() + " holds no data set")));
  request.path.clear();
  EXPECT_THAT(find_data(request).description, HasSubstr("sets/mnist (TROUPE_DATA): 20 training"));
}

TEST_F(FindData, TellsSamplesSizeAndClassesOfASetOfOnesOwn) {
  write_sparse(configured() / "train-images-idx3-ubyte", testing::idx_bytes({0x803, 5000, 16, 16}, {}), 5000 * 256);
  Bytes labels(5000);
  labels.back() = 2;
  write_file(configured() / "train-labels-idx1-ubyte", testing::idx_bytes({0x801, 5000}, labels));
  write_sparse(configured() / "t10k-images-idx3-ubyte", testing::idx_bytes({0x803, 999, 16, 16}, {}), 999 * 256);
  write_sparse(configured() / "t10k-labels-idx1-ubyte", testing::idx_bytes({0x801, 999}, {}), 999);
  EXPECT_THAT(find_data(request).description, HasSubstr(": 5,000 training, 999 test samples, 16 x 16, 3 classes"));
}

TEST_F(FindData, PrefersTheCommandLineToTheEnvironment) {
  write_set(configured());
  write_set(folder.path() / "sets/mnist");
  request.environment = folder.file("sets");
  request.path_is_set = true;
  EXPECT_THAT(find_data(request).description, AllOf(HasSubstr(configured().string()), HasSubstr("--set")));
}

TEST_F(FindData, LooksForATypedFolderFirstWhereItWasTyped) {
  write_set(folder.path() / "here/data/mnist");
  write_set(configured());
  const fs::path before = fs::current_path();
  fs::current_path(folder.path() / "here");
  request.path_is_set = true;
  const DataPlace place = find_data(request);
  fs::current_path(before);
  EXPECT_EQ(place.folder, fs::canonical(folder.path()) / "here/data/mnist");
}

TEST_F(FindData, KnowsPackedFilesAndTheDottedNames) {
  write_file(configured() / "train-images.idx3-ubyte", testing::image_file(20));
  write_file(configured() / "train-labels.idx1-ubyte.gz", testing::gzip(testing::label_file(20)));
  write_file(configured() / "t10k-images-idx3-ubyte.gz", testing::gzip(testing::image_file(10)));
  write_file(configured() / "t10k-labels-idx1-ubyte", testing::label_file(10));
  const DataSet set = read_data(find_data(request));
  EXPECT_EQ(set.train->count_samples(), 20U);
  EXPECT_EQ(set.test->count_samples(), 10U);
  EXPECT_EQ(list_fields(set.train->fields()), "image [4, 3, 1] f32, label [] i32");
  EXPECT_EQ(set.test->fields().back().classes, 10U);
  EXPECT_THAT(set.origin, HasSubstr(configured().string()));
}

TEST_F(FindData, RefusesATypedFolderThatIsNotThere) {
  request.path_is_set = true;
  EXPECT_THAT(refusal(), AllOf(HasSubstr(configured().string()), HasSubstr("--set"), HasSubstr("no such folder")));
}

TEST_F(FindData, RefusesATypedFolderWithoutData) {
  fs::create_directories(configured());
  request.path_is_set = true;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("holds none of"), HasSubstr("t10k-labels-idx1-ubyte")));
}

TEST_F(FindData, RefusesATypedFolderThatIsAFile) {
  write_file(configured(), {1});
  request.path_is_set = true;
  EXPECT_THAT(refusal(), HasSubstr("is not a folder"));
}

TEST_F(FindData, RefusesAnEnvironmentThatHoldsNoMnist) {
  request.environment = folder.file("sets");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("sets/mnist"), HasSubstr("TROUPE_DATA")));
}

TEST_F(FindData, NamesTheMissingOfFourFiles) {
  write_set(configured());
  fs::remove(configured() / "t10k-images-idx3-ubyte");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lacks t10k-images-idx3-ubyte"), Not(HasSubstr("train"))));
}

TEST_F(FindData, NamesABrokenFileInTheConfiguredFolder) {
  write_set(configured());
  write_file(configured() / "t10k-labels-idx1-ubyte", testing::cut(testing::label_file(10), 12));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("t10k-labels-idx1-ubyte"), HasSubstr("cut short")));
}

TEST_F(FindData, RefusesImagesAndLabelsOfDifferentCount) {
  write_set(configured());
  write_file(configured() / "train-labels-idx1-ubyte", testing::label_file(19));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("20 images"), HasSubstr("19 labels")));
}

TEST_F(FindData, RefusesTestImagesOfAnotherSize) {
  write_set(configured());
  write_file(configured() / "t10k-images-idx3-ubyte", testing::image_file(10, 3, 4));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("3 x 4"), HasSubstr("4 x 3")));
}

TEST_F(FindData, TakesCachedDigitsWhenTheConfiguredFolderIsNotThere) {
  write_blank_digits();
  request.progress = [](auto, auto, const auto&) { FAIL() << "nothing is to be drawn"; };
  const DataPlace place = find_data(request);
  EXPECT_TRUE(place.generated);
  EXPECT_EQ(place.folder, digits());
  EXPECT_THAT(place.description,
              AllOf(HasSubstr("generated digits"), HasSubstr("no IDX data found in " + configured().string())));
}

TEST_F(FindData, PassesOverAConfiguredFolderThatHoldsOtherThings) {
  write_blank_digits();
  write_file(configured() / "README", {'x'});
  EXPECT_TRUE(find_data(request).generated);
}

TEST_F(FindData, TakesDigitsAtOnceWhenAskedFor) {
  write_blank_digits();
  write_set(configured());
  request.source = "generated";
  EXPECT_TRUE(find_data(request).generated);
}

TEST_F(FindData, RefusesASourceThisBuildHasNot) {
  request.source = "lmdb";
  EXPECT_THAT(refusal(Code::unsupported), HasSubstr("lmdb"));
}

TEST_F(FindData, KeepsDigitsWhereTheSystemSaysCachesBelong) {
  write_blank_digits();
  fs::rename(request.cache, folder.path() / "troupe");
  request.cache.clear();
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const DataPlace place = find_data(request);
  before == nullptr ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", kept.c_str(), 1);
  EXPECT_THAT(place.folder, HasSubstr((folder.path() / "troupe/digits-v").string()));
}

TEST_F(FindData, SaysHowToMoveACacheThatCannotBeMade) {
  write_file(request.cache, {1});
  EXPECT_THAT(refusal(Code::environment), AllOf(HasSubstr("XDG_CACHE_HOME"), HasSubstr(request.cache)));
}

TEST_F(FindData, SaysHowToMoveACacheThatCannotBeWritten) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::create_directories(request.cache);
  fs::permissions(request.cache, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(refusal(Code::environment), HasSubstr("XDG_CACHE_HOME"));
  fs::permissions(request.cache, fs::perms::owner_all);
}

TEST_F(FindData, DrawsDigitsIntoTheCacheAndReadsThem) {
  std::uint64_t told = 0;
  request.progress = [&](std::uint64_t done, std::uint64_t total, const std::string&) {
    EXPECT_EQ(total, 70000U);
    told = done;
  };
  const DataPlace place = find_data(request);
  EXPECT_GT(told, 0U);
  EXPECT_THAT(place.description, HasSubstr("drawn now"));
  const DataSet set = read_data(place);
  EXPECT_EQ(set.train->count_samples(), 60000U);
  EXPECT_EQ(set.test->count_samples(), 10000U);
  EXPECT_EQ(list_fields(set.train->fields()), "image [28, 28, 1] f32, label [] i32");
  EXPECT_EQ(set.train->fields().back().classes, 10U);
  EXPECT_THAT(find_data(request).description, Not(HasSubstr("drawn")));
}

TEST_F(FindData, DrawsDigitsAgainWhenTheCacheIsDamaged) {
  write_blank_digits();
  fs::resize_file(digits() / "t10k-images-idx3-ubyte", 1000);
  EXPECT_THAT(find_data(request).description, HasSubstr("drawn again"));
  EXPECT_EQ(check_idx((digits() / "t10k-images-idx3-ubyte").string(), IdxKind::images).count, 10000U);
}

TEST_F(FindData, ReadingSaysWhenTheDataHaveGone) {
  write_set(configured());
  const DataPlace place = find_data(request);
  fs::remove_all(configured());
  EXPECT_THAT(error_of(Code::invalid, [&] { read_data(place); }), HasSubstr("are gone"));
}

}  // namespace
}  // namespace troupe
