#include "runtime/data/watched_files.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>
#include <latch>

#include "runtime/base/fd.hpp"
#include "runtime/data/encoded_images.hpp"
#include "tests/runtime/data/encoded.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::Bytes;
using testing::error_of;
using ::testing::HasSubstr;

constexpr std::uint64_t kCount = 40;

/// A named pipe to which nobody writes until the test ends.
class Pipe {
 public:
  Pipe() : path_((folder_.path() / "stalled.jpg").string()) {
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    end_.reset(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  }
  /// Every read that hangs, and those to come, get a byte.
  void let_go() {
    const Bytes bytes(4 * kCount);
    EXPECT_EQ(::write(end_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  const std::string& path() const { return path_; }
  int fd() const { return end_.get(); }

 private:
  testing::TempFolder folder_;
  std::string path_;
  Fd end_;
};

/// Images, of which those from `first_stalled` on are read from the pipe.
class StallingFiles final : public EncodedFiles {
 public:
  StallingFiles(std::shared_ptr<Pipe> pipe, std::uint64_t first_stalled)
      : pipe_(std::move(pipe)), first_stalled_(first_stalled) {}
  std::uint64_t count() const noexcept override { return kCount; }
  std::string name(std::uint64_t image) const override {
    return image < first_stalled_ ? "whole " + std::to_string(image) : pipe_->path();
  }
  std::string read(std::uint64_t image, Bytes& to) const override {
    if (image >= first_stalled_) {
      to.resize(1);
      return ::read(pipe_->fd(), to.data(), 1) == 1 ? "" : "cannot be read";
    }
    to = testing::png_of(Bytes(48, static_cast<std::uint8_t>(image)), 4, 4, 3);
    return {};
  }
  std::uint64_t size_bytes() const noexcept override { return 0; }

 private:
  std::shared_ptr<Pipe> pipe_;  // the threads that hang in it keep the files
  std::uint64_t first_stalled_;
};

/// Lets what hangs go at the test's end.
class Stalling : public ::testing::Test {
 protected:
  std::unique_ptr<StallingFiles> files(std::uint64_t first_stalled) const {
    return std::make_unique<StallingFiles>(pipe_, first_stalled);
  }
  void TearDown() override { pipe_->let_go(); }
  std::shared_ptr<Pipe> pipe_ = std::make_shared<Pipe>();
};

EncodedImages images(std::unique_ptr<EncodedFiles> files, EncodedImageOptions options) {
  return EncodedImages{{.files = std::move(files), .labels = std::vector<std::int32_t>(kCount), .classes = 1},
                       std::move(options)};
}

TEST_F(Stalling, FileIsReportedWhenItsTimeIsOver) {
  const WatchedFiles watched{files(1), milliseconds{50}};
  Bytes bytes;
  EXPECT_EQ(watched.read(0, bytes), "");
  EXPECT_THAT(watched.read(1, bytes), HasSubstr("has not been read within 0.05 s (data.read_s)"));
  EXPECT_EQ(watched.read(0, bytes), "");
  EXPECT_EQ(bytes, testing::png_of(Bytes(48), 4, 4, 3));
}

TEST_F(Stalling, ManyFilesAtOnceEndTheReading) {
  const WatchedFiles watched{files(0), milliseconds{5}};
  Bytes bytes;
  for (int i = 0; i < 16; ++i) EXPECT_NE(watched.read(0, bytes), "");
  EXPECT_THAT(error_of(Code::environment, [&] { (void)watched.read(0, bytes); }),
              HasSubstr("16 reads of files of the data set hang at once"));
}

TEST_F(Stalling, FileIsNoLongerWaitedForWhenTheRunEnds) {
  WatchedFiles watched{files(0), seconds{3600}};
  std::latch begun{1};
  auto fault = std::async(std::launch::async, [&] {
    Bytes bytes;
    begun.count_down();
    return watched.read(0, bytes);
  });
  begun.wait();
  watched.stop_waiting();
  ASSERT_EQ(fault.wait_for(seconds{10}), std::future_status::ready);
  EXPECT_THAT(fault.get(), HasSubstr("was not read yet when the run was asked to stop"));
}

TEST_F(Stalling, FileEndsABatchThatNamesIt) {
  const EncodedImages source = images(files(2), {.patience = milliseconds{50}});
  const BatchLayout layout{3, source.fields()};
  std::vector<std::byte> slot(layout.size_bytes());
  const std::vector<Sample> samples{{0, 0}, {1, 0}, {2, 0}};
  EXPECT_THAT(error_of(Code::invalid,
                       [&] {
                         fill_now(source, {samples, 7, &layout, slot.data()});
                       }),
              AllOf(HasSubstr(pipe_->path()), HasSubstr("has not been read within"), HasSubstr("data.broken")));
}

TEST_F(Stalling, FileIsSkippedOnRequestAndNamed) {
  std::string note;
  const EncodedImages source = images(
      files(2),
      {.broken = Broken::skip, .note = [&](const std::string& what) { note = what; }, .patience = milliseconds{50}});
  const BatchLayout layout{3, source.fields()};
  std::vector<std::byte> slot(layout.size_bytes());
  const std::vector<Sample> samples{{0, 0}, {2, 0}, {1, 0}};
  fill_now(source, {samples, 7, &layout, slot.data()});
  const auto* labels = reinterpret_cast<const std::int32_t*>(slot.data() + layout.entry(kLabel).offset);
  EXPECT_EQ((std::vector<std::int32_t>{labels, labels + 3}), (std::vector<std::int32_t>{0, -1, 0}));
  EXPECT_THAT(note, AllOf(HasSubstr(pipe_->path()), HasSubstr("has not been read within"), HasSubstr("skipped")));
}

}  // namespace
}  // namespace troupe
