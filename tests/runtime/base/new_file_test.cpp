#include "runtime/base/new_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/random.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/page_cache.hpp"

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;

/// A folder of its own with one file to write.
class NewFileTest : public ::testing::Test {
 protected:
  NewFileTest() {
    std::string pattern = ::testing::TempDir() + "/new-file-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~NewFileTest() override { fs::remove_all(folder_); }

  std::string target() const { return folder_ / "log"; }
  static void replace(const std::string& target, const std::string& content) {
    NewFile file{target};
    file.write(std::as_bytes(std::span{content}));
    file.publish();
  }
  std::string content() const {
    std::ifstream file{target()};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator{folder_}) found.push_back(entry.path().filename());
    return found;
  }

  fs::path folder_;
};

TEST_F(NewFileTest, AppearsWhenItIsPublished) {
  NewFile file{target()};
  file.write(std::as_bytes(std::span{"abc", 3}));
  EXPECT_EQ(names(), std::vector<std::string>{});
  file.write(std::as_bytes(std::span{"def", 3}));
  file.sync();
  file.publish();
  EXPECT_EQ(names(), std::vector<std::string>{"log"});
  EXPECT_EQ(content(), "abcdef");
}

TEST_F(NewFileTest, TakesThePlaceOfTheOldOne) {
  for (const char* text : {"long content", "short", "last"}) {
    replace(target(), text);
    EXPECT_EQ(content(), text);
    EXPECT_EQ(names(), std::vector<std::string>{"log"});
  }
}

TEST_F(NewFileTest, TakesThePlaceOfTheOldOneWhereTheApplicationWaitsForNoChildren) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "vfork is a fork there";
#endif
  replace(target(), "old");
  ChildProcess child{[&] {
    ::signal(SIGCHLD, SIG_IGN);
    replace(target(), "new");
    return 7;
  }};
  EXPECT_EQ(child.wait(), 7);
  EXPECT_EQ(content(), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"log"});
}

TEST_F(NewFileTest, IsForgottenUnlessPublished) {
  replace(target(), "old");
  {
    NewFile file{target()};
    file.write(std::as_bytes(std::span{"new", 3}));
  }
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"log"});
}

TEST_F(NewFileTest, IsAnErrorOfTheEnvironmentWhereItCannotBe) {
  fs::create_directory(target());  // nothing replaces a folder
  for (const std::string& place : {target(), (folder_ / "nowhere" / "log").string()}) {
    try {
      replace(place, "x");
      ADD_FAILURE() << place << " was written";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::environment);
      EXPECT_NE(std::string{error.what()}.find(place), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(names(), std::vector<std::string>{"log"});
}

TEST_F(NewFileTest, WritesAPipeInPlace) {
  ASSERT_EQ(::mkfifo(target().c_str(), 0600), 0);
  const Fd reader{::open(target().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  replace(target(), "through");
  std::array<char, 16> got{};
  ASSERT_EQ(::read(reader.get(), got.data(), got.size()), 7);
  EXPECT_STREQ(got.data(), "through");
  EXPECT_TRUE(fs::is_fifo(target()));
  EXPECT_EQ(names(), std::vector<std::string>{"log"});
}

TEST_F(NewFileTest, DoesNotWaitForAReaderOfAPipe) {
  ASSERT_EQ(::mkfifo(target().c_str(), 0600), 0);
  try {
    replace(target(), "unread");
    ADD_FAILURE() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::environment);
    EXPECT_NE(std::string{error.what()}.find("nothing reads"), std::string::npos) << error.what();
  }
}

TEST_F(NewFileTest, NeverReplacesASocket) {
  const Fd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(target().size(), sizeof address.sun_path);
  target().copy(address.sun_path, target().size());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THROW(replace(target(), "x"), Error);  // the kernel opens none
  EXPECT_TRUE(fs::is_socket(target()));
}

TEST_F(NewFileTest, AppendsToAnOpenFileNamedByItsNumber) {
  const Fd open{::open(target().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)};
  ASSERT_EQ(::write(open.get(), "before ", 7), 7);
  const fs::path link = folder_ / "link";  // as /dev/stdout is one
  fs::create_symlink(text("/proc/self/fd/", open.get()), link);
  replace(link, "during ");
  ASSERT_EQ(::write(open.get(), "after", 5), 5);
  EXPECT_EQ(content(), "before during after");
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(NewFileTest, ReplacesWhatASymbolicLinkLeadsTo) {
  fs::create_symlink("log", folder_ / "link");
  replace(folder_ / "link", "first");  // nothing is there yet
  EXPECT_EQ(content(), "first");
  replace(folder_ / "link", "second");
  EXPECT_EQ(content(), "second");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
}

TEST_F(NewFileTest, RefusesAFolderByItsName) {
  try {
    replace(folder_, "x");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find(": this is a folder; name a file in it"), std::string::npos);
  }
}

TEST_F(NewFileTest, LeavesTheOldOneWhenTheDiskIsFull) {
  replace(target(), "old");
  ChildProcess child{[&] {
    const rlimit nothing{0, 0};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &nothing);
    try {
      replace(target(), "new");
    } catch (const Error& error) {
      return static_cast<int>(error.code());
    }
    return 0;
  }};
  EXPECT_EQ(child.wait(), static_cast<int>(Code::environment));
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"log"});
}

/// Bytes that begin at a multiple of NewFile::kBlockBytes in memory.
class Blocks {
 public:
  explicit Blocks(std::size_t size_bytes) : memory_(size_bytes + NewFile::kBlockBytes) {
    const auto begin = std::bit_cast<std::uintptr_t>(memory_.data());
    bytes_ = std::span(memory_).subspan((NewFile::kBlockBytes - begin % NewFile::kBlockBytes) % NewFile::kBlockBytes,
                                        size_bytes);
    for (std::size_t i = 0; i < size_bytes; ++i) bytes_[i] = static_cast<std::byte>(random_below(3, i, 256));
  }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> memory_;
  std::span<std::byte> bytes_;
};

TEST_F(NewFileTest, HoldsWhatWasWrittenInAnyPiecesFromAnyPlace) {
  const Blocks blocks(3'000'000);
  const auto bytes = blocks.bytes();
  const auto written = [&](std::span<const std::size_t> pieces) {
    std::string all;
    NewFile file{target()};
    std::size_t at = 0;
    for (const std::size_t size : pieces) {
      file.write(bytes.subspan(at, size));
      all.append(reinterpret_cast<const char*>(bytes.data()) + at, size);
      at += size;
    }
    file.sync();
    file.publish();
    return all;
  };
  for (const auto& pieces : std::vector<std::vector<std::size_t>>{
           {3'000'000},                     // whole blocks and a rest
           {4096, 2'000'000, 995'904},      // the second is at a block, the third is not
           {100, 1'000'000, 4096, 900'000}  // at none
       }) {
    const std::string all = written(pieces);
    EXPECT_TRUE(content() == all) << pieces.size() << " pieces";
  }
}

TEST_F(NewFileTest, LeavesThePageCacheAloneWhenItIsGivenWholeBlocks) {
  if (!has_direct_writes(folder_)) GTEST_SKIP() << "the file system of " << folder_ << " has no O_DIRECT";
  const Blocks blocks(1'000'000);
  NewFile file{target()};
  file.write(blocks.bytes());
  file.sync();
  file.publish();
  const long cached = cached_pages(target());
  EXPECT_GE(cached, 0);
  EXPECT_LE(cached, 1) << "all but the rest of a block";
}

TEST_F(NewFileTest, IsRefusedWithTheReasonWhenTheDiskFillsUpAmongWholeBlocks) {
  replace(target(), "old");
  const Blocks blocks(1'000'000);
  ChildProcess child{[&] {
    const rlimit little{500'000, 500'000};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &little);
    try {
      NewFile file{target()};
      file.write(blocks.bytes());
    } catch (const Error& error) {
      return std::string{error.what()}.find("File too large") != std::string::npos ? 7 : 8;
    }
    return 0;
  }};
  EXPECT_EQ(child.wait(), 7);
  EXPECT_EQ(content(), "old");
}

TEST_F(NewFileTest, LeavesNothingWhenItsWriterIsKilled) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ChildProcess child{[&] {
    NewFile file{target()};
    file.write(std::as_bytes(std::span{"abc", 3}));
    const bool told = ::write(pipe[1], "x", 1) == 1;
    ::pause();
    return told ? 1 : 2;
  }};
  char told = 0;
  ASSERT_EQ(::read(pipe[0], &told, 1), 1);
  EXPECT_EQ(names(), std::vector<std::string>{});
  child.kill_hard();
  EXPECT_EQ(child.wait(), 128 + SIGKILL);
  EXPECT_EQ(names(), std::vector<std::string>{});
  for (const int fd : pipe) ::close(fd);
}

TEST_F(NewFileTest, IsWholeAndAloneWheneverItsWriterIsKilled) {
  const char* chosen = std::getenv("TROUPE_TEST_SEED");
  const std::uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : std::random_device{}();
  std::cout << "seed " << seed << " (TROUPE_TEST_SEED sets it)\n";
  const std::string even(3000, 'a'), odd(9000, 'b');
  replace(target(), even);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // the child that renames for a killed writer becomes one of this process
  for (std::uint64_t round = 0; round < 100 && !HasFailure(); ++round) {
    ChildProcess child{[&] {
      for (std::uint64_t i = 0;; ++i) replace(target(), i % 2 == 0 ? even : odd);
      return 0;
    }};
    ::usleep(static_cast<useconds_t>(random_below(seed, round, 2000)));
    child.kill_hard();
    ASSERT_EQ(child.wait(), 128 + SIGKILL);
    ASSERT_TRUE(eventually([] { return ::waitpid(-1, nullptr, WNOHANG) < 0; })) << "the child that renames goes on";
    EXPECT_EQ(names().size(), 1U) << "round " << round << ", seed " << seed;
    const std::string found = content();
    EXPECT_TRUE(found == even || found == odd) << found.size() << " bytes";
  }
}

}  // namespace
}  // namespace troupe::testing
