#include "devices/cuda/line_mirror.hpp"

#include <vector>

namespace troupe::cuda {

/// Lives until its line has told it everything that was asked for.
class LineMirrors::Mirror final : public Waker, public std::enable_shared_from_this<Mirror> {
 public:
  explicit Mirror(std::uint64_t* word) noexcept : word_(word) {}

  std::uint64_t* word() const noexcept { return word_; }
  void follow(Timeline& line, std::uint64_t at) {
    {
      const std::lock_guard lock{mutex_};
      if (at <= asked_) return;
      asked_ = at;
      if (expected_++ == 0) self_ = shared_from_this();
    }
    line.wake(at, *this);
  }
  void reached(Point point, Status status) noexcept override {
    std::shared_ptr<Mirror> last;  // ends behind the lock
    const std::lock_guard lock{mutex_};
    if (word_ != nullptr) {
      const std::atomic_ref word{*word_};
      const std::uint64_t seen = word.load(std::memory_order_relaxed);
      if (!status.ok())
        word.store(seen | Timeline::kPoisonedWord, std::memory_order_release);
      else if ((seen & ~Timeline::kPoisonedWord) < point.value)
        word.store(point.value | (seen & Timeline::kPoisonedWord), std::memory_order_release);
    }
    if (--expected_ == 0) last = std::move(self_);
  }
  void end() noexcept {
    const std::lock_guard lock{mutex_};
    word_ = nullptr;
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::uint64_t* word_;
  std::uint64_t asked_ = 0;
  std::uint64_t expected_ = 0;  // calls of reached() to come
  std::shared_ptr<Mirror> self_;
};

LineMirrors::LineMirrors(std::shared_ptr<const Gpu> gpu, AddressSpace& space)
    : space_(space), words_(std::move(gpu), kWords * 64) {}

LineMirrors::~LineMirrors() {
  for (auto& [id, mirror] : mirrors_) mirror->end();
}

/// The caller holds the lock. One a cache line.
std::uint64_t* LineMirrors::take_word() {
  TROUPE_CHECK(used_ < kWords, Code::out_of_memory, "a GPU follows at most ", kWords, " lines of its process");
  return words_.as<std::uint64_t>(64 * used_++);
}

std::uint64_t* LineMirrors::follow(Point point) {
  Timeline& line = space_.timeline(point.line);
  std::shared_ptr<Mirror> mirror;
  {
    const std::lock_guard lock{mutex_};
    std::shared_ptr<Mirror>& known = mirrors_[point.line];
    if (known == nullptr) known = std::make_shared<Mirror>(take_word());
    mirror = known;
  }
  mirror->follow(line, point.value);
  return mirror->word();
}

std::uint64_t* LineMirrors::outbox(TimelineId line) {
  const std::lock_guard lock{mutex_};
  std::uint64_t*& word = outboxes_[line];
  if (word == nullptr) word = take_word();
  return word;
}

}  // namespace troupe::cuda
