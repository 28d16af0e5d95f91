#include "runtime/exchange/policies/update_log.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kElements = 77;

UpdateLog log_of(std::size_t records) {
  UpdateLog log;
  for (std::uint32_t i = 0; i < records; ++i)
    log.push_back(
        {.sequence = i + 1, .clock = i / 3, .base = i / 2, .shard = 1, .worker = static_cast<std::uint16_t>(i % 3)});
  return log;
}

class UpdateLogs : public ::testing::Test {
 protected:
  UpdateLogs() {
    std::string pattern = (std::filesystem::temp_directory_path() / "updates.XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
    path = (folder / "a.updates").string();
  }
  ~UpdateLogs() override { std::filesystem::remove_all(folder); }

  void write(const UpdateLog& log) {
    UpdateLogFile file(path, kElements);
    for (const AppliedRecord& record : log) file.append({&record, 1});
  }
  std::string message_of(Code code, std::uint64_t elements = kElements) {
    try {
      read_update_log(path, elements, 3);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "nothing was thrown";
  }

  std::filesystem::path folder;
  std::string path;
};

TEST_F(UpdateLogs, ReadAsTheyWereWritten) {
  const UpdateLog log = log_of(1000);
  write(log);
  EXPECT_EQ(read_update_log(path, kElements, 3), log);
  EXPECT_EQ(std::filesystem::file_size(path), 16 * (1000 + 1));
}

TEST_F(UpdateLogs, AreInTheFileAPageLater) {
  UpdateLogFile file(path, kElements);
  file.append(log_of(300));
  EXPECT_EQ(read_update_log(path, kElements, 3), log_of(300));
}

TEST_F(UpdateLogs, AreNotWrittenOver) {
  write(log_of(2));
  try {
    UpdateLogFile again(path, kElements);
    FAIL() << "it was written over";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_THAT(error.what(), HasSubstr("there is a log already"));
  }
  EXPECT_EQ(read_update_log(path, kElements, 3), log_of(2));
}

TEST_F(UpdateLogs, OfAnotherStripeOrNoneAreRefused) {
  EXPECT_THAT(message_of(Code::invalid), HasSubstr("update.replay names a folder"));
  write(log_of(2));
  EXPECT_THAT(message_of(Code::invalid, 78), HasSubstr("a stripe of 77 elements, this shard's has 78"));
}

TEST_F(UpdateLogs, WithoutTheirEndAreReadUpToTheLastWholeRecord) {
  write(log_of(9));
  std::filesystem::resize_file(path, 16 * 9 + 5);
  EXPECT_EQ(read_update_log(path, kElements, 3), log_of(8));
}

TEST_F(UpdateLogs, OfRecordsThatCannotBeAreRefused) {
  UpdateLog log = log_of(4);
  log[2].worker = 3;
  write(log);
  EXPECT_THAT(message_of(Code::corrupt), HasSubstr("record 2 is of rank 3 of 3"));
  std::filesystem::remove(path);
  log = log_of(4);
  log[3].base = log[3].sequence;
  write(log);
  EXPECT_THAT(message_of(Code::corrupt), HasSubstr("record 3 is of update 4, computed from version 4"));
}

TEST_F(UpdateLogs, OfAnyBytesAreReadOrRefused) {
  std::mt19937 dice(11);
  write(log_of(40));
  std::ifstream whole(path, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(whole), {}};
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good.substr(0, dice() % (good.size() + 1));
    for (std::uint32_t times = dice() % 6; times > 0 && !bytes.empty(); --times)
      bytes[dice() % bytes.size()] = static_cast<char>(dice());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    try {
      const UpdateLog log = read_update_log(path, kElements, 3);
      ASSERT_LE(log.size(), bytes.size() / 16);
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::corrupt || error.code() == Code::invalid) << error.what();
    }
  }
}

}  // namespace
}  // namespace troupe
