#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.hpp"

namespace troupe::testing {

using namespace std::chrono_literals;

/// A folder with a small job in it: app.toml and IDX files of 2,000 and 200 random images; and the real rtrun to run
/// it.
class JobFolder {
 public:
  JobFolder();
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  /// rtrun in this folder on its app.toml, with more arguments behind.
  ProgramStart rtrun(std::vector<std::string> more = {}) const;
  /// The same as rank `rank` of `world`, as a foreign launcher would start it.
  ProgramStart rank(std::uint32_t rank, std::uint32_t world, const std::string& address, std::uint16_t port) const;
  /// Arguments that make it train until it is ended.
  static std::vector<std::string> endless();
  /// Arguments that make it train for some ten milliseconds.
  static std::vector<std::string> short_run();
  /// Writes a secret only this user can read, returns its path.
  std::string write_secret(const std::string& name, const std::string& secret) const;

  /// What runs of this folder have left behind: processes, listening sockets, entries of /dev/shm, System V segments,
  /// files; empty: nothing. What living processes of others hold is not counted, so tests may run beside each other.
  std::string leftovers() const;

 private:
  std::string mark() const { return "TROUPE_TEST_FOLDER=" + path_.string(); }
  std::filesystem::path path_;
  std::vector<std::string> shared_memory_;  // what was there before
  std::vector<std::string> sockets_;
};

/// A port that was free a moment ago and that no other caller gets while this process lives.
std::uint16_t free_port();
/// Training goes on: the table has a row. For wait_until().
bool trains(const Program& program);

/// A test with a folder of its own that must be as clean afterwards as before. Skipped where ranks cannot talk.
class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  /// Two ranks of an endless run, without a launcher.
  std::vector<std::unique_ptr<Program>> start_two_ranks(
      const std::vector<std::string>& arguments = JobFolder::endless()) const;
  JobFolder folder_;
};

}  // namespace troupe::testing
