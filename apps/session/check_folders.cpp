#include <sys/stat.h>

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
};

/// Shared with the thread that asks, which may hang for longer than its caller waits.
struct Asking {
  std::mutex mutex;  // guards answered
  std::condition_variable changed;
  std::size_t answered = 0;  // the first ones of `all`
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
  start_thread("look", [asking] {
    for (const Asked& one : asking->all) {
      struct stat about {};
      [[maybe_unused]] const int found = ::stat(one.path.c_str(), &about);  // that there is an answer is enough
      const std::lock_guard lock(asking->mutex);
      ++asking->answered;
      asking->changed.notify_all();
    }
  }).detach();
  const auto patience = configuration.settings.faults.start;
  std::unique_lock lock(asking->mutex);
  for (std::size_t i = 0; i < asking->all.size(); ++i) {
    const bool answered = asking->changed.wait_for(lock, patience, [&] { return asking->answered > i; });
    const Asked& one = asking->all[i];
    TROUPE_CHECK(answered, Code::environment, one.path, " (", one.setting, "): its file system has not answered for ",
                 patience.count(),
                 " ms (faults.start_s); is the server of that mount reachable? Name another folder, or unmount it");
  }
}

}  // namespace troupe
