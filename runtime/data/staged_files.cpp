#include "runtime/data/staged_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/detail/read_at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/memory/detail/memory_left.hpp"

namespace troupe {
namespace {

constexpr unsigned kCopyThreads = 8;  // it waits for files on other hosts, it does not compute
constexpr std::uint64_t kImagesAtOnce = 64;
constexpr auto kTellEvery = std::chrono::milliseconds{100};
// A fraction of the memory that is left when staging begins: the model and its batches need memory too.
constexpr double kMostOfMemory = 0.8;

constexpr const char* kStageCure =
    "; stage on a disk with room (data.stage = \"disk\", data.stage_path), or not at all (data.stage = \"none\")";

Fd nameless_file(const StageOptions& options) {
  const bool disk = options.stage == Stage::disk;
  Fd file{disk ? ::open(options.folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
               : ::memfd_create("troupe-data", MFD_CLOEXEC)};
  TROUPE_CHECK_ERRNO(file, Code::environment, "cannot make a file without a name ",
                     disk ? text("in ", options.folder, " (data.stage_path)") : std::string{"in memory"}, kStageCure);
  return file;
}

}  // namespace

/// Copies with several threads.
class StagedFiles::Copy {
 public:
  Copy(StagedFiles& staged, const StageOptions& options)
      : staged_(staged), options_(options), left_(options.stage == Stage::memory ? memory_left() : MemoryLeft{}) {}

  void run() {
    std::vector<std::thread> threads;
    const std::uint64_t pieces = (staged_.count() + kImagesAtOnce - 1) / kImagesAtOnce;
    running_ = static_cast<unsigned>(std::min<std::uint64_t>(kCopyThreads, pieces));
    const unsigned count = running_;
    for (unsigned i = 0; i < count; ++i) threads.emplace_back([this] { copy(); });
    try {
      tell_until_done();
    } catch (...) {  // the progress callback may throw
      fail_with(std::current_exception());
    }
    for (std::thread& thread : threads) thread.join();
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  void copy() noexcept {
    try {
      std::vector<std::uint8_t> bytes;
      while (!stopped_.load(std::memory_order_relaxed)) {
        const std::uint64_t first = next_.fetch_add(kImagesAtOnce, std::memory_order_relaxed);
        if (first >= staged_.count()) break;
        for (std::uint64_t i = first; i < std::min(first + kImagesAtOnce, staged_.count()); ++i) {
          if (stopped_.load(std::memory_order_relaxed)) break;
          copy(i, bytes);
        }
      }
    } catch (...) {
      fail_with(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_one();
  }

  void copy(std::uint64_t image, std::vector<std::uint8_t>& bytes) {
    if (std::string fault = staged_.files_->read(image, bytes); !fault.empty()) {
      const std::lock_guard lock(mutex_);
      staged_.faults_.emplace(image, std::move(fault));
      bytes.clear();
    }
    const std::uint64_t offset = size_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
    if (options_.stage == Stage::memory) check_memory(offset + bytes.size());
    staged_.places_[image] = {offset, static_cast<std::uint32_t>(bytes.size())};
    for (std::size_t put = 0; put < bytes.size();) {
      const ssize_t n =
          ::pwrite(staged_.copy_.get(), bytes.data() + put, bytes.size() - put, static_cast<off_t>(offset + put));
      if (n < 0 && errno == EINTR) continue;
      TROUPE_CHECK_ERRNO(n > 0, Code::environment, "the copy of the data set cannot be written after ", offset >> 20,
                         " MiB ", options_.stage == Stage::disk ? "in " + options_.folder : std::string{"in memory"},
                         kStageCure);
      put += static_cast<std::size_t>(n);
    }
    done_.fetch_add(1, std::memory_order_relaxed);
  }

  void check_memory(std::uint64_t size_bytes) const {
    if (left_.limit.empty()) return;
    const auto most = static_cast<std::uint64_t>(kMostOfMemory * static_cast<double>(left_.size_bytes));
    TROUPE_CHECK(size_bytes <= most, Code::environment, "the images take more than ", most >> 20,
                 " MiB, and no more of the ", left_.size_bytes >> 20, " MiB that are left (", left_.limit,
                 ") is given to data.stage = \"memory\"", kStageCure);
  }

  /// Reports progress at intervals, and once more at the end.
  void tell_until_done() {
    for (bool copying = true; copying;) {
      {
        std::unique_lock lock(mutex_);
        copying = !ended_.wait_for(lock, kTellEvery, [this] { return running_ == 0; });
      }
      if (options_.progress)
        options_.progress(done_.load(std::memory_order_relaxed), staged_.count(), "staging images");
    }
  }

  void fail_with(std::exception_ptr error) noexcept {
    stopped_.store(true, std::memory_order_relaxed);
    staged_.files_->stop_waiting();
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = std::move(error);
  }

  StagedFiles& staged_;
  const StageOptions& options_;
  const MemoryLeft left_;
  std::atomic<std::uint64_t> next_{0}, done_{0}, size_bytes_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // guards the members below, and faults_
  std::condition_variable ended_;
  unsigned running_ = 0;
  std::exception_ptr failed_;
};

StagedFiles::StagedFiles(std::unique_ptr<EncodedFiles> files, const StageOptions& options)
    : files_(std::move(files)), copy_(nameless_file(options)), places_(files_->count()) {
  Copy(*this, options).run();
}

std::string StagedFiles::read(std::uint64_t image, std::vector<std::uint8_t>& to) const {
  if (const auto fault = faults_.find(image); fault != faults_.end()) return fault->second;
  const auto [offset, size] = places_.at(image);
  to.resize(size);
  const ssize_t got = read_at(copy_, offset, std::as_writable_bytes(std::span{to}));
  if (got == static_cast<ssize_t>(size)) return {};
  return text("cannot be read from its copy: ", got < 0 ? std::strerror(errno) : "it has become shorter");
}

}  // namespace troupe
