#include "actors/exchange/update_log_writer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <thread>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"

namespace troupe::test {
namespace {

AppliedRecord record(std::uint32_t number) { return {.sequence = number}; }

TEST(UpdateLogWriter, DoesNotMakeItsCallerWaitForTheDisk) {
  constexpr std::uint32_t kRecords = 10 * UpdateLogWriter::kPageRecords + 3;
  std::vector<AppliedRecord> written;
  std::promise<void> disk;
  {
    UpdateLogWriter writer([&, ready = disk.get_future().share()](std::span<const AppliedRecord> records) {
      ready.wait();
      written.insert(written.end(), records.begin(), records.end());
    });
    for (std::uint32_t i = 0; i < kRecords; ++i) writer.append(std::array{record(i)});
    EXPECT_TRUE(written.empty());
    disk.set_value();
  }
  ASSERT_EQ(written.size(), kRecords);
  for (std::uint32_t i = 0; i < kRecords; ++i) EXPECT_EQ(written[i].sequence, i);
}

TEST(UpdateLogWriter, ThrowsLaterWhatCouldNotBeWritten) {
  UpdateLogWriter writer([](std::span<const AppliedRecord>) { fail(Code::environment, "the disk is full"); });
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  Status told;
  while (told.ok() && !deadline.passed()) {
    try {
      writer.append(std::array{record(1)});
    } catch (const Error& error) {
      told = error.status();
    }
  }
  EXPECT_EQ(told.code(), Code::environment);
  EXPECT_EQ(told.text(), "the disk is full");
}

TEST(UpdateLogWriter, SaysSoWhenTheDiskDoesNotKeepUp) {
  std::promise<void> disk;
  UpdateLogWriter writer([ready = disk.get_future().share()](std::span<const AppliedRecord>) { ready.wait(); });
  const std::vector<AppliedRecord> page(UpdateLogWriter::kPageRecords);
  for (std::size_t i = 0; i < UpdateLogWriter::kMostPages; ++i) writer.append(page);
  EXPECT_THROW(writer.append(page), Error);
  disk.set_value();
}

}  // namespace
}  // namespace troupe::test
