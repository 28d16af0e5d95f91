#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "tools/rtrun/abort_guard.hpp"
#include "tools/rtrun/job.hpp"

namespace troupe::rtrun {
namespace {

TEST(AbortGuard, EndsARankThatAbortsOverALostOneAsOneThatLostIt) {
  EXPECT_EXIT(
      {
        guard_against_aborts();
        std::thread news([] { note_lost(3, "its process ended"); });
        std::abort();
      },
      testing::ExitedWithCode(kPeersLost), "rtrun: error: rank 3 was lost: its process ended; UCX aborted over it\n");
}

TEST(AbortGuard, NamesTheFirstRankThatWasLost) {
  EXPECT_EXIT(
      {
        guard_against_aborts();
        note_lost(1, "its process ended");
        note_lost(2, "it left");
        std::abort();
      },
      testing::ExitedWithCode(kPeersLost), "rank 1 was lost");
}

TEST(AbortGuard, LetsOtherAbortsBe) {
  EXPECT_EXIT(
      {
        guard_against_aborts();
        std::abort();
      },
      testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace troupe::rtrun
