#include "tools/rtrun/prepare.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "apps/session/run_log.hpp"
#include "apps/session/session.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/host_identity.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/base/words.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/planning/planner.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {
DataPlace locate_data(const Configuration& configuration, bool quiet) {
  terminal::ProgressBar bar{std::cerr, !quiet && terminal::draws_bars(STDERR_FILENO),
                            terminal::columns_of(STDERR_FILENO)};
  DataRequest request = data_request(configuration);
  bool said = false;
  request.progress = [&](std::uint64_t done, std::uint64_t total, const std::string& what) {
    if (!quiet && !std::exchange(said, true)) say(what);
    bar.draw("preparing data", total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0,
             fmt::format("{}/{}", grouped(done), grouped(total)));
  };
  DataPlace place = find_data(request);
  bar.clear();
  return place;
}

DataPlace look_for_data(const Configuration& configuration) {
  DataRequest request = data_request(configuration);
  request.draw = false;
  return find_data(request);
}

void prepare_folder(const std::string& dir, const std::string& setting) {
  const std::string cure = text("; set ", setting, " to a folder that can be written and has room");
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  TROUPE_CHECK(!error, Code::environment, "cannot make the folder ", dir, ": ", error.message(), cure);
  const Fd probe{::open(dir.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)};
  if (probe) return;
  // If the file system has no nameless files, the permission is checked instead.
  const bool nameless = errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL;
  TROUPE_CHECK_ERRNO(!nameless && ::access(dir.c_str(), W_OK | X_OK) == 0, Code::environment,
                     "cannot write into the folder ", dir, cure);
}

void prepare_report(const std::string& dir, std::uint32_t ranks) {
  prepare_folder(dir);
  for (const char* name : {"log", "log.csv", "report.html", "report.json"}) refuse_special_file(dir + '/' + name);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) refuse_special_file(fmt::format("{}/rank-{}.log", dir, rank));
}

FolderLock lock_report(Blocking& blocking, const std::string& dir, const std::string& file) {
  return troupe::lock_report(blocking, dir, "job " + std::filesystem::absolute(file).lexically_normal().string(),
                             [](const std::string& said) { say(said); });
}

void prepare_file_limit(std::uint32_t ranks) {
  // Measured with two network interfaces: 11 descriptors alone; with other ranks 32, and 4 more for each rank of the
  // job. The rest is for machines with more devices, and for the files of a checkpoint.
  constexpr rlim_t kAlone = 24, kAmongOthers = 48, kForEachRank = 4;
  const rlim_t needed = ranks <= 1 ? kAlone : kAmongOthers + kForEachRank * ranks;
  rlimit files{};
  TROUPE_CHECK_ERRNO(::getrlimit(RLIMIT_NOFILE, &files) == 0, Code::environment, "cannot read the limit of open files");
  if (files.rlim_cur >= needed) return;
  TROUPE_CHECK(files.rlim_max >= needed, Code::environment, "at most ", files.rlim_max,
               " files may be open at once here, and a rank of a job of ", ranks, " needs up to ", needed,
               "; raise the limit before you start rtrun (`ulimit -n ", std::max<rlim_t>(1024, needed),
               "`, LimitNOFILE= of a systemd unit, nofile in /etc/security/limits.conf)");
  files.rlim_cur = needed;
  TROUPE_CHECK_ERRNO(::setrlimit(RLIMIT_NOFILE, &files) == 0, Code::environment,
                     "cannot raise the limit of open files to ", needed);
}

void check_host_name() {
  if (std::string_view{TROUPE_UCX_VERSION}.empty()) return;  // a build without it
  constexpr std::size_t kMost = 63;                          // Linux has one more
  TROUPE_CHECK(host_name().size() <= kMost, Code::environment, "this machine's host name has ", host_name().size(),
               " characters, and UCX's library can be loaded only where it has at most ", kMost,
               ": give the machine a shorter name (`hostname NAME`), or the container (--hostname NAME)");
}

void check_file_size() {
  // Measured: memory that UCX shares, which is a file; with 600 KiB it failed. Arenas check their own size.
  constexpr std::uint64_t kLeast = std::uint64_t{2} << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  TROUPE_CHECK(limit.rlim_cur >= kLeast, Code::environment, "a file may have ", limit.rlim_cur >> 10,
               " KiB here (ulimit -f), and the memory that ranks share, a file without a name, needs at least ",
               kLeast >> 10, " in addition to the model; set `ulimit -f unlimited`");
}

void check_address_space() {
  // Measured: libraries, stacks and the allocator's arenas of a rank. With 20 units and few images it failed with less
  // than 400 MiB; with MNIST and checkpoints two ranks failed with 680 MiB, sometimes only when they saved.
  constexpr std::uint64_t kLeast = std::uint64_t{720} << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  TROUPE_CHECK(limit.rlim_cur >= kLeast, Code::environment, "a process may have ", limit.rlim_cur >> 10,
               " KiB of addresses here (ulimit -v), and a rank needs at least ", kLeast >> 10,
               " in addition to its model and data; set `ulimit -v unlimited`, and limit memory by a control group");
}

void check_stack() {
  // Measured: threads get as much as main. With 40 KiB ranks ended by SIGSEGV, with 64 they trained and saved.
  constexpr std::uint64_t kLeast = std::uint64_t{128} << 10;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  TROUPE_CHECK(limit.rlim_cur >= kLeast, Code::environment, "a thread's stack may have ", limit.rlim_cur >> 10,
               " KiB here (ulimit -s), and a rank's threads need at least ", kLeast >> 10, "; set `ulimit -s 8192`");
}

void check_resume(const std::string& resume) {
  if (resume == "never" || resume == "auto") return;
  try {
    check_holds_checkpoint(resume);
  } catch (const Error& error) {
    fail(error.code() == Code::corrupt ? Code::invalid : error.code(),
         text("--resume (checkpoint.resume): ", error.what(),
              error.code() == Code::corrupt ? "; --resume auto resumes from the newest complete checkpoint" : ""));
  }
}

std::string report_file(const Settings& settings) { return settings.report.dir + "/report.html"; }

bool tells_the_end() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    const char* const rank = std::getenv(name);
    if (rank != nullptr && std::string_view{rank} != "0") return false;
  }
  return std::getenv("TROUPE_LISTEN_FD") == nullptr && std::getenv("TROUPE_SECRET_STDIN") == nullptr;
}

void prepare_folders(const Settings& settings, std::uint32_t ranks, bool with_rank_zero) {
  prepare_report(settings.report.dir, ranks);
  if (with_rank_zero && settings.checkpoint.every_steps != 0)
    prepare_folder(checkpoint_folder(settings), "checkpoint.dir");
  if (!with_rank_zero || settings.report.trace.empty()) return;
  refuse_special_file(settings.report.trace);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::string part = trace_part(settings.report.trace, rank);
    refuse_special_file(part);
    std::remove(part.c_str());  // of a killed run: the parts that are there at the end are joined
  }
  const std::filesystem::path folder = std::filesystem::path{settings.report.trace}.parent_path();
  prepare_folder(folder.empty() ? "." : folder.string(), "the folder of report.trace");
}

Configuration read_job(Blocking& blocking, const CommandLine& line) {
  Configuration configuration = read_configuration(line.file, line.overrides);
  if (line.verb == Verb::train && line.program.empty()) {
    check_address_space();
    check_file_size();
    check_stack();
  }
  check_folders(blocking, configuration);
  return configuration;
}

}  // namespace troupe::rtrun
