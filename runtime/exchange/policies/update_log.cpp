#include "runtime/exchange/policies/update_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

#include "runtime/base/error.hpp"
#include "runtime/base/new_file.hpp"

namespace troupe {
namespace {

constexpr std::array<char, 8> kLogMagic{'T', 'R', 'P', 'U', 'P', 'D', '0', '1'};
/// Each write is one page.
constexpr std::size_t kKeptRecords = 256;

/// Comes before the records and has their size.
struct Head {
  std::array<char, 8> magic = kLogMagic;
  std::uint64_t elements = 0;
};
static_assert(sizeof(Head) == sizeof(AppliedRecord));

}  // namespace

UpdateLogFile::UpdateLogFile(std::string path, std::uint64_t elements) : path_(std::move(path)) {
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  TROUPE_CHECK(fd_.get() >= 0 || errno != EEXIST, Code::invalid, path_,
               ": there is a log already, and it is not written over: move it, or name another folder in update.log");
  TROUPE_CHECK_ERRNO(fd_.get() >= 0, Code::environment, path_, ": the log of updates cannot be made");
  Head head;
  head.elements = elements;
  kept_.resize(1);
  std::memcpy(static_cast<void*>(kept_.data()), &head, sizeof head);
}

UpdateLogFile::~UpdateLogFile() {
  try {
    flush();
  } catch (const Error&) {  // a caller that needs to know calls flush()
  }
}

void UpdateLogFile::append(std::span<const AppliedRecord> records) {
  kept_.insert(kept_.end(), records.begin(), records.end());
  if (kept_.size() >= kKeptRecords) flush();
}

void UpdateLogFile::flush() {
  auto bytes = std::as_bytes(std::span(kept_));
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    TROUPE_CHECK_ERRNO(written > 0, Code::environment, path_, ": the log of updates cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  kept_.clear();
}

UpdateLog read_update_log(const std::string& path, std::uint64_t elements, std::uint32_t workers) {
  refuse_special_file(path);
  std::ifstream file(path, std::ios::binary);
  TROUPE_CHECK(file, Code::invalid, path, ": cannot be read; update.replay names a folder that update.log was given");
  const auto corrupt = [&](auto&&... what) { fail(Code::corrupt, text(path, ": ", what...)); };
  Head head;
  if (!file.read(reinterpret_cast<char*>(&head), sizeof head) || head.magic != kLogMagic)
    corrupt("is not a log of updates");
  TROUPE_CHECK(head.elements == elements, Code::invalid, path, ": is of a stripe of ", head.elements,
               " elements, this shard's has ", elements, ": replay with the settings of the run that wrote it");
  UpdateLog log;
  AppliedRecord record;
  while (file.read(reinterpret_cast<char*>(&record), sizeof record)) {
    if (record.worker >= workers) corrupt("record ", log.size(), " is of rank ", record.worker, " of ", workers);
    if (record.base >= record.sequence)
      corrupt("record ", log.size(), " is of update ", record.sequence, ", computed from version ", record.base);
    log.push_back(record);
  }
  return log;  // without an incomplete last record, which a kill may leave
}

}  // namespace troupe
