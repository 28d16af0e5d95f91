// Missing resources of a machine are reported with limit and cure and exit code 3, and nothing hangs.

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "tests/cluster/job_folder.hpp"
#include "tests/runtime/data/corpus.hpp"
#include "tools/crew/statistics.hpp"

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kLittleMemory = std::uint64_t{1} << 30;  // a sanitizer has memory and work of its own
constexpr auto kAtOnce = 2s;
#else
constexpr std::uint64_t kLittleMemory = std::uint64_t{64} << 20;
constexpr auto kAtOnce = 100ms;
#endif

/// Runs `start` behind the shell's `commands`, in which "$@" is not named.
ProgramStart behind(const std::string& commands, ProgramStart start) {
  start.arguments.insert(start.arguments.begin(), {"sh", "-c", commands + " && exec \"$@\"", "sh"});
  return start;
}

/// The same with mounts that no other process sees, and that disappear when it has ended.
ProgramStart with_mounts(const std::string& mounts, ProgramStart start) {
  start = behind(mounts, std::move(start));
  start.arguments.insert(start.arguments.begin(), {"unshare", "--mount"});
  return start;
}

class Environment : public ClusterTest {
 protected:
  std::vector<std::string> short_run(std::vector<std::string> settings = {}) const {
    std::vector<std::string> arguments = JobFolder::short_run();
    for (std::string& setting : settings) arguments.insert(arguments.end(), {"--set", std::move(setting)});
    return arguments;
  }
  /// Runs it to its end, and returns its output.
  std::string expect_end(const ProgramStart& start, int code) {
    Program program{start};
    EXPECT_EQ(program.wait(60s), code) << program.err();
    return program.err();
  }
  /// The same for a job that must be refused before it begins.
  std::string expect_refusal(const ProgramStart& start) {
    const std::string said = expect_end(start, 3);
    EXPECT_EQ(said.find('\n'), said.size() - 1) << "more than one message: " << said;
    EXPECT_THAT(said, Not(HasSubstr("[rank"))) << "ranks were started";
    return said;
  }
};

class EnvironmentWithMounts : public Environment {
 protected:
  void SetUp() override {
    Environment::SetUp();
    if (IsSkipped()) return;
    ProgramStart trial;
    trial.arguments = {"true"};
    Program program{with_mounts("mount -t tmpfs none /mnt", trial)};
    if (program.wait(20s) != 0) GTEST_SKIP() << "no mounts can be made here (needs root): " << program.err();
  }
  static constexpr const char* kFull =
      "mount -t tmpfs -o size=64k,nr_inodes=8 none tmp && ! cat /dev/zero 2>&- >tmp/all";
  static constexpr const char* kReadOnly = "mount --bind tmp tmp && mount -o remount,bind,ro tmp";
};

TEST_F(Environment, WithSixtyFourFilesSufficesForTwoRanks) {
  const std::string said =
      expect_end(behind("ulimit -n 64", folder_.rtrun(short_run({"checkpoint.every_steps=500"}))), 0);
  EXPECT_THAT(said, Not(HasSubstr("open files")));
}

TEST_F(Environment, WithTooFewFilesIsRefusedByTheLimit) {
  const std::string said = expect_refusal(behind("ulimit -n 40", folder_.rtrun(short_run())));
  EXPECT_THAT(said, HasSubstr("rtrun: error: at most 40 files may be open at once"));
  EXPECT_THAT(said, HasSubstr("ulimit -n 1024"));
}

TEST_F(Environment, WithoutStandardStreamsTrainsAndKeepsItsFilesApartFromWhatItPrints) {
  for (const char* ranks : {"cluster.nodes=\"local:1\"", "cluster.nodes=\"local:2\""}) {
    ProgramStart start = folder_.rtrun(short_run({ranks}));
    start.arguments.insert(start.arguments.begin(), {"sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"});
    expect_end(start, 0);
    std::ifstream lock{folder_.path() / "run/report.lock"};
    const std::string holder{std::istreambuf_iterator<char>{lock}, {}};
    EXPECT_EQ(std::ranges::count(holder, '\n'), 1) << holder;
  }
}

TEST_F(Environment, WithAFullDiskBehindStdoutFailsWhereTheOutputIsTheResult) {
  ProgramStart start = folder_.rtrun();
  start.arguments.insert(start.arguments.begin() + 1, "check");
  start.arguments.insert(start.arguments.begin(), {"sh", "-c", "exec \"$@\" >/dev/full", "sh"});
  EXPECT_THAT(expect_end(start, 3), HasSubstr("stdout could not be written"));
}

TEST_F(Environment, WithAFullDiskBehindStdoutTrainsAndFailsAtTheEnd) {
  for (const char* ranks : {"cluster.nodes=\"local:1\"", "cluster.nodes=\"local:2\""}) {
    ProgramStart start = folder_.rtrun(short_run({ranks}));
    start.arguments.emplace_back("--json");
    start.run_by({"sh", "-c", "exec \"$@\" >/dev/full", "sh"});
    const std::string said = expect_end(start, 3);
    EXPECT_THAT(said, HasSubstr("stdout cannot be written; training continues"));
    EXPECT_THAT(said, HasSubstr("stdout could not be written"));
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / "run/log"));
  }
}

TEST_F(Environment, WithALowSoftLimitOfFilesRaisesIt) {
  expect_end(behind("ulimit -S -n 30", folder_.rtrun(short_run())), 0);
}

TEST_F(EnvironmentWithMounts, WithATinyDevShmTellsItsSizeAndTheCure) {
  const auto start = folder_.rtrun(short_run({"cluster.transport=shm"}));
  const std::string said = expect_end(with_mounts("mount -t tmpfs -o size=1m none /dev/shm", start), 3);
  EXPECT_THAT(said,
              HasSubstr("rtrun: error: UCX cannot make the control lane's worker: /dev/shm has 1048576 bytes left"));
  EXPECT_THAT(said, HasSubstr("set cluster.transport = \"tcp\""));
}

TEST_F(EnvironmentWithMounts, WithAReadOnlyDevShmSaysSo) {
  const auto start = folder_.rtrun(short_run({"cluster.transport=shm"}));
  EXPECT_THAT(expect_end(with_mounts("mount -t tmpfs -o ro none /dev/shm", start), 3),
              HasSubstr("/dev/shm is read-only"));
}

TEST_F(EnvironmentWithMounts, WithATinyDevShmTrainsByDefault) {
  expect_end(with_mounts("mount -t tmpfs -o size=1m none /dev/shm", folder_.rtrun(short_run())), 0);
}

/// Runs a program where `folder` is a mount of FUSE that nobody serves: whoever looks into it waits.
ProgramStart with_hanging_mount(const std::string& folder, ProgramStart start) {
  static constexpr const char* kMount =
      "import ctypes, os, sys\n"
      "libc = ctypes.CDLL(None, use_errno=True)\n"
      "server = os.open('/dev/fuse', os.O_RDWR)\n"
      "options = b'fd=%d,rootmode=40000,user_id=0,group_id=0' % server\n"
      "if libc.mount(b'nobody', sys.argv[1].encode(), b'fuse', ctypes.c_ulong(0), options) != 0:\n"
      "    sys.exit('cannot mount: ' + os.strerror(ctypes.get_errno()))\n"
      "os.set_inheritable(server, True)\n"
      "os.execvp(sys.argv[2], sys.argv[2:])\n";
  start.arguments.insert(start.arguments.begin(), {"unshare", "--mount", "python3", "-c", kMount, folder});
  return start;
}

TEST_F(EnvironmentWithMounts, WithAMountThatHangsIsRefusedByItsName) {
  ProgramStart trial;
  trial.arguments = {"true"};
  trial.folder = folder_.path();
  Program mounted{with_hanging_mount("tmp", trial)};
  if (mounted.wait(20s) != 0) GTEST_SKIP() << "no FUSE here: " << mounted.err();
  for (const std::string setting : {"report.dir", "checkpoint.dir", "data.path"}) {
    const auto start = folder_.rtrun(short_run({setting + "=tmp/x", "faults.start_s=1"}));
    const std::string said = expect_refusal(with_hanging_mount("tmp", start));
    EXPECT_THAT(said, HasSubstr("tmp/x (" + setting + "): its file system has not answered for 1000 ms"));
  }
}

TEST_F(EnvironmentWithMounts, WithAFullDiskForReportsIsRefused) {
  const auto start = folder_.rtrun(short_run({"report.dir=tmp/run"}));
  const std::string said = expect_refusal(with_mounts("mount -t tmpfs -o nr_inodes=1 none tmp", start));
  EXPECT_THAT(said, HasSubstr("tmp/run: No space left on device; set report.dir to a folder that can be written"));
}

TEST_F(EnvironmentWithMounts, WithADiskThatIsFullAtTheEndTrainsAndWarns) {
  const auto start = folder_.rtrun(short_run({"report.dir=tmp"}));
  const std::string said = expect_end(with_mounts(kFull, start), 0);
  EXPECT_THAT(said, HasSubstr("tmp/log: cannot be written (is the disk full?)"));
}

TEST_F(EnvironmentWithMounts, WithoutRoomForDrawnDigitsNamesTheirFolder) {
  const auto start = folder_.rtrun(short_run({"data.source=generated", "report.dir=."}));
  const std::string said = expect_end(with_mounts(kFull, start), 3);
  EXPECT_THAT(said, HasSubstr("tmp/troupe/digits-v"));
  EXPECT_THAT(said, HasSubstr("No space left on device; set XDG_CACHE_HOME to a folder that can be written"));
}

TEST_F(Environment, WithTooFewAddressesIsRefusedBeforeItBegins) {
  for (const std::string kib : {"80000", "150000", "300000", "400000", "700000"}) {
    const std::string said = expect_refusal(behind("ulimit -v " + kib, folder_.rtrun(short_run())));
    EXPECT_THAT(said, HasSubstr("a process may have " + kib + " KiB of addresses here (ulimit -v)"));
    EXPECT_THAT(said, HasSubstr("`ulimit -v unlimited`"));
  }
}

TEST_F(Environment, WithTooFewThreadsIsToldWhichLimitToRaise) {
  for (const std::string kib : {"20000", "30000", "40000", "50000"}) {  // each thread has a stack of 8 MiB
    const auto start = behind("ulimit -s 8192 && ulimit -d " + kib, folder_.rtrun(short_run()));
    EXPECT_THAT(expect_end(start, 3), AllOf(HasSubstr("cannot start thread"), HasSubstr("ulimit -d"))) << kib;
  }
}

TEST_F(EnvironmentWithMounts, WithAHostNameTooLongForUcxIsRefusedBeforeItBegins) {
  ProgramStart start = behind("hostname " + std::string(64, 'h'), folder_.rtrun(short_run()));
  start.arguments.insert(start.arguments.begin(), {"unshare", "--uts"});
  EXPECT_THAT(expect_refusal(start), HasSubstr("this machine's host name has 64 characters"));
}

TEST_F(Environment, WithFilesThatMayBeSmallerThanAnArenaIsToldWhichLimitToRaise) {
  const auto start = folder_.rtrun(short_run({"model.units=[1000]"}));
  EXPECT_THAT(expect_end(behind("ulimit -f 4096", start), 3), HasSubstr("set `ulimit -f unlimited`"));
}

TEST_F(Environment, WithStacksThatAreTooSmallIsRefusedBeforeItBegins) {
  const std::string said = expect_refusal(behind("ulimit -s 64", folder_.rtrun(short_run())));
  EXPECT_THAT(said, HasSubstr("a thread's stack may have 64 KiB here (ulimit -s)"));
  EXPECT_THAT(said, HasSubstr("`ulimit -s 8192`"));
}

TEST_F(Environment, WithSmallStacksStillTellsThePlanAndTrains) {
  if (kLittleMemory > (64U << 20)) GTEST_SKIP() << "a sanitizer needs larger stacks";
  ProgramStart plan = folder_.rtrun();
  plan.arguments.insert(plan.arguments.begin() + 1, "plan");
  expect_end(behind("ulimit -s 64", plan), 0);
  expect_end(behind("ulimit -s 128", folder_.rtrun(short_run({"checkpoint.every_steps=500"}))), 0);
}

TEST_F(Environment, WithFilesThatMayBeTooSmallIsRefusedBeforeItBegins) {
  const std::string said = expect_refusal(behind("ulimit -f 2048", folder_.rtrun(short_run())));  // of 512 bytes each
  EXPECT_THAT(said, HasSubstr("a file may have 1024 KiB here (ulimit -f)"));
  EXPECT_THAT(said, HasSubstr("`ulimit -f unlimited`"));
}

TEST_F(Environment, WithAFileOverItsLimitNamesItAndEndsWell) {
  const auto start = folder_.rtrun(short_run({"report.trace=run/trace.json"}));
  const std::string said = expect_end(behind("ulimit -f 4096", start), 0);  // 2 MiB; the trace has more
  EXPECT_THAT(said, AllOf(HasSubstr("the trace could not be written"), HasSubstr("run/trace.json")));
  for (const char* end : {"", ".rank-0", ".rank-1"}) fs::remove(folder_.path() / "run" / text("trace.json", end));
}

TEST_F(Environment, InWhichEndsOfChildrenAreIgnoredLetsTheJobEnd) {
  EXPECT_THAT(expect_end(behind("trap '' CHLD", folder_.rtrun(short_run())), 0), Not(HasSubstr("error")));
}

TEST_F(EnvironmentWithMounts, WithoutALoopbackInterfaceSaysSoAtOnce) {
  ProgramStart start = folder_.rtrun(short_run());
  start.arguments.insert(start.arguments.begin(), {"unshare", "--net"});
  EXPECT_THAT(expect_end(start, 3), HasSubstr("the loopback interface of this network namespace is down"));
}

TEST_F(EnvironmentWithMounts, WithAReadOnlyReportFolderIsRefused) {
  const auto start = folder_.rtrun(short_run({"report.dir=tmp"}));
  const std::string said = expect_refusal(with_mounts(kReadOnly, start));
  EXPECT_THAT(said, HasSubstr("cannot write into the folder tmp; set report.dir"));
  EXPECT_THAT(said, HasSubstr("Read-only file system"));
}

TEST_F(EnvironmentWithMounts, WithAReadOnlyCheckpointFolderIsRefused) {
  const auto start = folder_.rtrun(short_run({"checkpoint.dir=tmp/saved", "checkpoint.every_steps=100"}));
  const std::string said = expect_refusal(with_mounts(kReadOnly, start));
  EXPECT_THAT(said, HasSubstr("tmp/saved: Read-only file system; set checkpoint.dir"));
}

TEST_F(EnvironmentWithMounts, WithAFullDiskForCheckpointsTellsTheCure) {
  const auto start = folder_.rtrun(short_run({"checkpoint.dir=tmp", "checkpoint.every_steps=500"}));
  const std::string said = expect_end(with_mounts(kFull, start), 3);  // its last state is not saved
  EXPECT_THAT(said, HasSubstr("the checkpoint of step 500 was not saved: rank"));
  EXPECT_THAT(
      said, HasSubstr("No space left on device; training continues, and later saves are tried, too: free some space"));
}

TEST_F(Environment, OfAHugeHostFileReadsNoneOfIt) {
  std::ofstream hosts{folder_.path() / "tmp/hosts"};
  for (int i = 0; i < 550'000; ++i) hosts << "node" << 100'000 + i << " slots=4\n";
  hosts.close();
  const auto size = fs::file_size(folder_.path() / "tmp/hosts");
  ASSERT_GT(size, 10'000'000u);
  Program program{folder_.rtrun({"--set", "cluster.nodes=tmp/hosts"})};
  EXPECT_EQ(program.wait(20s), 2);
  EXPECT_THAT(program.err(),
              HasSubstr("--set cluster.nodes: cluster.nodes = \"tmp/hosts\", from the folder of app.toml: "
                        "tmp/hosts: has " +
                        std::to_string(size) + " bytes; a host file has at most 1048576"));
  EXPECT_LT(program.peak_bytes(), kLittleMemory);
  fs::remove(folder_.path() / "tmp/hosts");
}

TEST_F(Environment, OfAGzipBombUnpacksNoMoreThanItsHeaderSays) {
  // Given back before the fork, whose pages count as the program's.
  write_file(folder_.path() / "data/train-images-idx3-ubyte.gz",
             gzip(idx_bytes({0x803, 2000, 28, 28}, Bytes(256 << 20)), 9));
  fs::remove(folder_.path() / "data/train-images-idx3-ubyte");
  Program program{folder_.rtrun()};
  EXPECT_EQ(program.wait(20s), 2);
  EXPECT_THAT(program.err(), HasSubstr("data/train-images-idx3-ubyte.gz: holds more bytes than the header announces"));
  EXPECT_THAT(program.err(), HasSubstr("fetch the file again"));
  EXPECT_LT(program.peak_bytes(), kLittleMemory);
}

TEST_F(Environment, OfAHugeConfigurationReadsNoneOfIt) {
  fs::resize_file(folder_.path() / "app.toml", 10'000'000);
  Program program{folder_.rtrun()};
  EXPECT_EQ(program.wait(20s), 2);
  EXPECT_THAT(program.err(), HasSubstr("app.toml: has 10000000 bytes; a configuration has at most 1048576"));
  EXPECT_LT(program.peak_bytes(), kLittleMemory);
}

TEST_F(Environment, OfAWrongConfigurationIsToldWithinATenthOfASecond) {
  std::ofstream{folder_.path() / "app.toml", std::ios::app} << "bach = 3\n";
  crew::Spread took_ms;
  for (int turn = 0; turn < 20; ++turn) {
    const auto start = Clock::now();
    Program program{folder_.rtrun()};
    EXPECT_EQ(program.wait(20s), 2);
    took_ms.add(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  RecordProperty("median_ms", static_cast<int>(took_ms.median()));
  EXPECT_LT(took_ms.median(), kAtOnce / 1ms);
}

}  // namespace
}  // namespace troupe::testing
