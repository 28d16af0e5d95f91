#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "apps/session/session.hpp"
#include "runtime/base/thread.hpp"

namespace troupe {
namespace {

/// A file or folder, and what named it.
struct Asked {
  std::string setting;
  std::string path;
  bool answered = false;
};

/// Shared with the threads that ask, which may hang for longer than their caller waits.
struct Asking {
  std::mutex mutex;  // guards Asked::answered
  std::condition_variable changed;
  std::vector<Asked> all;
};

std::vector<Asked> paths_of(const Configuration& configuration) {
  const Settings& settings = configuration.settings;
  const std::string& resume = settings.checkpoint.resume;
  std::vector<Asked> all{{"report.dir", settings.report.dir},
                         {"checkpoint.dir", checkpoint_folder(settings)},
                         {"data.path", settings.data.path},
                         {"model.onnx", settings.model.onnx_file},
                         {"checkpoint.resume", resume == "auto" || resume == "never" ? "" : resume}};
  if (!settings.data.path.empty() && !configuration.folder.empty() && settings.data.path.front() != '/')
    all.push_back({"data.path", configuration.folder + '/' + settings.data.path});
  if (const char* const data = std::getenv("TROUPE_DATA")) all.push_back({"TROUPE_DATA", data});
  std::erase_if(all, [](const Asked& one) { return one.path.empty(); });
  return all;
}

}  // namespace

void check_folders(Blocking&, const Configuration& configuration) {
  const auto asking = std::make_shared<Asking>();
  asking->all = paths_of(configuration);
  for (Asked& one : asking->all) {
    start_thread("look", [asking, &one] {
      struct stat about {};
      [[maybe_unused]] const int found = ::stat(one.path.c_str(), &about);  // that there is an answer is enough
      const std::lock_guard lock(asking->mutex);
      one.answered = true;
      asking->changed.notify_all();
    }).detach();
  }
  const auto patience = configuration.settings.faults.start;
  const auto answered = [](const Asked& one) { return one.answered; };
  std::unique_lock lock(asking->mutex);
  asking->changed.wait_for(lock, patience, [&] { return std::ranges::all_of(asking->all, answered); });
  const auto silent = std::ranges::find_if_not(asking->all, answered);
  TROUPE_CHECK(silent == asking->all.end(), Code::environment, silent->path, " (", silent->setting,
               "): its file system has not answered for ", patience.count(),
               " ms (faults.start_s); is the server of that mount reachable? Name another folder, or unmount it");
}

}  // namespace troupe
