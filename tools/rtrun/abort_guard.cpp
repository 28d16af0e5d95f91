#include "tools/rtrun/abort_guard.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#include "tools/rtrun/job.hpp"

namespace troupe::rtrun {
namespace {

constexpr int kLooks = 1000;
constexpr timespec kBetweenLooks{0, 1'000'000};

/// The message before the end, written before `said_bytes` is.
std::array<char, 512> last_words;
std::atomic<std::size_t> said_bytes{0};
std::atomic<bool> taken{false};

/// Runs on the aborting thread; other threads continue.
void on_abort(int) noexcept {
  for (int look = 0; look < kLooks; ++look) {
    if (const std::size_t bytes = said_bytes.load(std::memory_order_acquire); bytes > 0) {
      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, last_words.data(), bytes);
      ::_exit(kPeersLost);
    }
    ::nanosleep(&kBetweenLooks, nullptr);
  }
  // When this returns, abort() ends the process.
}

}  // namespace

void guard_against_aborts() {
  struct sigaction action {};
  action.sa_handler = on_abort;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGABRT, &action, nullptr);
}

void note_lost(std::uint32_t rank, const std::string& why) {
  if (taken.exchange(true)) return;  // the first loss is the reason
  const std::string text = fmt::format("rtrun: error: rank {} was lost: {}; UCX aborted over it\n", rank, why);
  const std::size_t bytes = std::min(text.size(), last_words.size());
  std::copy_n(text.begin(), bytes, last_words.begin());
  said_bytes.store(bytes, std::memory_order_release);
}

}  // namespace troupe::rtrun
