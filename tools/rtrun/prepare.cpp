#include "tools/rtrun/prepare.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "runtime/error.hpp"
#include "runtime/fd.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/table.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {
namespace {

DataRequest request_of(const Configuration& configuration) {
  const char* environment = std::getenv("TROUPE_DATA");
  DataRequest request;
  request.source = configuration.settings.data.source;
  request.path = configuration.settings.data.path;
  request.path_is_set = configuration.origin_of("data.path").starts_with("--set");
  request.folder = configuration.folder;
  request.environment = environment != nullptr ? environment : "";
  return request;
}

}  // namespace

DataPlace locate_data(const Configuration& configuration, bool quiet) {
  terminal::ProgressBar bar{std::cerr, !quiet && terminal::draws_bars(STDERR_FILENO),
                            terminal::columns_of(STDERR_FILENO)};
  DataRequest request = request_of(configuration);
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
  DataRequest request = request_of(configuration);
  request.draw = false;
  return find_data(request);
}

void prepare_folder(const std::string& dir) {
  constexpr const char* kCure = "; set report.dir to a folder that can be written";
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  TROUPE_CHECK(!error, Code::environment, "cannot make the folder ", dir, ": ", error.message(), kCure);
  const Fd probe{::open(dir.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)};
  if (probe) return;
  // A file system without nameless files: ask for the permission instead.
  const bool nameless = errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL;
  TROUPE_CHECK_ERRNO(!nameless && ::access(dir.c_str(), W_OK | X_OK) == 0, Code::environment,
                     "cannot write into the folder ", dir, kCure);
}

}  // namespace troupe::rtrun
