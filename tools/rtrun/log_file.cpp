#include "tools/rtrun/log_file.hpp"

#include <fcntl.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/error.hpp"
#include "tools/rtrun/fd.hpp"

namespace troupe::rtrun {
namespace {

nlohmann::ordered_json to_json(const EpochReport& report) {
  nlohmann::ordered_json entry;
  entry["main/loss"] = report.loss;
  entry["main/accuracy"] = report.accuracy;
  if (report.test_loss) entry["validation/main/loss"] = *report.test_loss;
  if (report.test_accuracy) entry["validation/main/accuracy"] = *report.test_accuracy;
  entry["epoch"] = report.epoch;
  entry["iteration"] = report.steps;
  entry["elapsed_time"] = report.elapsed_s;
  return entry;
}

}  // namespace

std::string epoch_json(const EpochReport& report) { return to_json(report).dump(); }

std::string log_json(const std::vector<EpochReport>& reports) {
  nlohmann::ordered_json log = nlohmann::ordered_json::array();
  for (const EpochReport& report : reports) log.push_back(to_json(report));
  return log.dump(4) + "\n";
}

void replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  Fd file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  TROUPE_CHECK_ERRNO(file, Code::environment, "cannot write ", temporary,
                     "; set report.dir to a folder that can be written");
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(file.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      ::unlink(temporary.c_str());
      errno = reason;
      fail_errno(Code::environment, troupe::text("cannot write ", temporary));
    }
    written += static_cast<std::size_t>(n);
  }
  file.reset();
  TROUPE_CHECK_ERRNO(std::rename(temporary.c_str(), path.c_str()) == 0, Code::environment, "cannot put ", temporary,
                     " in the place of ", path);
}

}  // namespace troupe::rtrun
