#include "runtime/data/watched_files.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kPatienceAtStop{500};
constexpr std::size_t kMostHanging = 16;  // reads, each of which holds a thread

}  // namespace

/// What outlives the object while reads hang.
struct WatchedFiles::Shared {
  std::unique_ptr<EncodedFiles> files;
  std::mutex mutex;  // guards what follows, and the state of all readers
  std::condition_variable changed;
  std::vector<std::shared_ptr<Reader>> idle;
  std::size_t hanging = 0;
  std::optional<Clock::time_point> stopped;
  bool ending = false;
};

/// A thread that reads what it is told. Its members are guarded by Shared::mutex, but for `bytes` and `fault`, which
/// belong to the thread from `wanted` to `done`.
class WatchedFiles::Reader {
 public:
  std::optional<std::uint64_t> wanted;
  bool done = false;
  bool left_alone = false;  // nobody waits for it any more
  std::vector<std::uint8_t> bytes;
  std::string fault;
  std::thread thread;

  void run(const std::shared_ptr<Shared>& shared) {
    std::unique_lock hold(shared->mutex);
    for (;;) {
      shared->changed.wait(hold, [&] { return wanted.has_value() || shared->ending; });
      if (!wanted) return;
      hold.unlock();
      read(*shared->files, *wanted);
      hold.lock();
      wanted.reset();
      done = true;
      if (left_alone) {
        --shared->hanging;
        return;
      }
      shared->changed.notify_all();
    }
  }

 private:
  void read(const EncodedFiles& files, std::uint64_t image) noexcept {
    try {
      fault = files.read(image, bytes);
    } catch (const std::exception& error) {
      fault = error.what();
    }
  }
};

WatchedFiles::WatchedFiles(std::unique_ptr<EncodedFiles> files, std::chrono::milliseconds patience)
    : shared_(std::make_shared<Shared>()), patience_(patience) {
  shared_->files = std::move(files);
}

WatchedFiles::~WatchedFiles() {
  std::vector<std::shared_ptr<Reader>> idle;
  {
    const std::lock_guard hold(shared_->mutex);
    shared_->ending = true;
    idle.swap(shared_->idle);
  }
  shared_->changed.notify_all();
  for (const auto& reader : idle) reader->thread.join();
}

std::uint64_t WatchedFiles::count() const noexcept { return shared_->files->count(); }
std::string WatchedFiles::name(std::uint64_t image) const { return shared_->files->name(image); }
std::uint64_t WatchedFiles::size_bytes() const noexcept { return shared_->files->size_bytes(); }

void WatchedFiles::stop_waiting() noexcept {
  {
    const std::lock_guard hold(shared_->mutex);
    if (!shared_->stopped) shared_->stopped = Clock::now();
  }
  shared_->changed.notify_all();
}

std::shared_ptr<WatchedFiles::Reader> WatchedFiles::take_reader() const {
  {
    const std::lock_guard hold(shared_->mutex);
    TROUPE_CHECK(shared_->hanging < kMostHanging, Code::environment, shared_->hanging,
                 " reads of files of the data set hang at once, so it is not a single file; is its file system "
                 "reachable (mount, df)?");
    if (!shared_->idle.empty()) {
      const std::shared_ptr<Reader> reader = std::move(shared_->idle.back());
      shared_->idle.pop_back();
      return reader;
    }
  }
  const auto reader = std::make_shared<Reader>();
  reader->thread = start_thread("data read", [reader, shared = shared_] { reader->run(shared); });
  return reader;
}

std::string WatchedFiles::read(std::uint64_t image, std::vector<std::uint8_t>& to) const {
  const std::shared_ptr<Reader> reader = take_reader();
  const Clock::time_point begin = Clock::now();
  std::unique_lock hold(shared_->mutex);
  reader->bytes.swap(to);  // its memory is used again
  reader->done = false;
  reader->wanted = image;
  shared_->changed.notify_all();
  const auto end = [&] {
    Clock::time_point all = begin + patience_;
    if (shared_->stopped) all = std::min(all, std::max(begin, *shared_->stopped) + kPatienceAtStop);
    return all;
  };
  while (!reader->done && Clock::now() < end()) shared_->changed.wait_until(hold, end());
  if (reader->done) {
    reader->bytes.swap(to);
    shared_->idle.push_back(reader);
    return std::move(reader->fault);
  }
  reader->left_alone = true;
  reader->thread.detach();
  ++shared_->hanging;
  const std::chrono::duration<double> waited = Clock::now() - begin;
  if (waited < patience_) return text("was not read yet when the run was asked to stop, after ", waited.count(), " s");
  return text("has not been read within ", std::chrono::duration<double>{patience_}.count(),
              " s (data.read_s); its file system may hang");
}

}  // namespace troupe
