#include "runtime/memory/end_mark.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/text.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/memory/detail/futex.hpp"

namespace troupe {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr const char* kName = "troupe-end";
constexpr std::string_view kShownName = "/memfd:troupe-end (deleted)";

bool is_named_mark(const std::string& link) noexcept {
  std::array<char, 64> name;
  const ssize_t length = ::readlink(link.c_str(), name.data(), name.size());
  return length > 0 && std::string_view{name.data(), static_cast<std::size_t>(length)} == kShownName;
}

/// The number in a hello may meanwhile stand for another file: only a mark may be opened and written to.
Fd open_mark(const EndMark::Place& place) {
  const std::string link = text("/proc/", place.pid, "/fd/", place.fd);
  if (place.pid <= 0 || place.fd < 0 || !is_named_mark(link)) return {};
  Fd file{::open(link.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  struct stat about {};
  if (file && (!is_named_mark(text("/proc/self/fd/", file.get())) || ::fstat(file.get(), &about) != 0 ||
               about.st_size != kPageBytes))
    file.reset();
  return file;
}

/// Empty if the system refuses, or there is no file.
SharedWord map_word(int fd) noexcept {
  void* const page = fd < 0 ? MAP_FAILED : ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return SharedWord{page == MAP_FAILED ? nullptr : static_cast<std::atomic<std::uint32_t>*>(page)};
}

}  // namespace

void UnmapPage::operator()(std::atomic<std::uint32_t>* word) const noexcept { ::munmap(word, kPageBytes); }

EndMark::EndMark() noexcept : file_(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  // Sealed: if a file shrinks under a mapping, a process that touches it ends by SIGBUS.
  if (file_ && ::ftruncate(file_.get(), kPageBytes) == 0 &&
      ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    word_ = map_word(file_.get());
  if (word_ == nullptr) file_.reset();
}

EndMark::Place EndMark::place() const noexcept { return {::getpid(), file_.get()}; }

/// The entry is in memory of this process alone, which the kernel reads; the offset leads to the word.
EndMark::Hold::Hold(const EndMark& mark) noexcept : mark_(mark) {
  if (!mark_.word_) return;
  std::size_t size = 0;
  if (::syscall(SYS_get_robust_list, 0, &before_, &size) != 0) return;
  std::atomic<std::uint32_t>& word = *mark_.word_;
  entry_.next = &list_.list;
  list_.list.next = &entry_;
  list_.futex_offset = reinterpret_cast<char*>(&word) - reinterpret_cast<char*>(&entry_);
  // The kernel changes only words with the number of the thread that ends.
  word.store(static_cast<std::uint32_t>(::gettid()), std::memory_order_relaxed);
  ::syscall(SYS_set_robust_list, &list_, sizeof list_);
  futex::wake_all(word);
}

EndMark::Hold::~Hold() {
  if (list_.list.next == nullptr) return;
  ::syscall(SYS_set_robust_list, before_, sizeof list_);
  (*mark_.word_).store(0, std::memory_order_relaxed);  // nobody holds it
}

EndMarkWatch::EndMarkWatch(const std::vector<EndMark::Place>& places, Ended ended) : ended_(std::move(ended)) {
  for (std::size_t index = 0; index < places.size() && others_.size() < kMost; ++index)
    if (SharedWord word = map_word(open_mark(places[index]).get())) others_.push_back({index, std::move(word)});
  if (!others_.empty()) thread_ = start_thread("troupe-marks", [this] { run(); });
}

EndMarkWatch::~EndMarkWatch() {
  if (!thread_.joinable()) return;
  stop_.store(1);
  futex::wake_all(stop_);
  thread_.join();
}

void EndMarkWatch::run() {
  std::array<futex::Watched, futex::kMaxWatched> words;
  while (stop_.load() == 0) {
    std::size_t count = 0;
    words[count++] = futex::watched(stop_, 0);
    std::erase_if(others_, [&](const Other& other) {
      std::atomic<std::uint32_t>& word = *other.word;
      std::uint32_t seen = word.load();
      // Without this bit the kernel wakes nobody. 0: the other process does not hold its mark yet, or no longer.
      if (seen != 0) seen = word.fetch_or(FUTEX_WAITERS) | FUTEX_WAITERS;
      if ((seen & FUTEX_OWNER_DIED) == 0) {
        words[count++] = futex::watched(word, seen);
        return false;
      }
      futex::wake_all(word);  // the kernel has woken one of those who wait
      ended_(other.index);
      return true;
    });
    if (futex::wait_any({words.data(), count}) == -1 && errno != EAGAIN && errno != EINTR) return;
  }
  // The kernel may have woken this thread alone.
  for (const Other& other : others_) futex::wake_all(*other.word);
}

}  // namespace troupe
