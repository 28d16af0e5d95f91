#include "runtime/base/thread_affinity.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <future>
#include <thread>

#include "runtime/base/thread.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The number of a CPU that no test machine has.
constexpr std::uint32_t kNowhere = 1000;

class Affinity : public ::testing::Test {
 protected:
  void SetUp() override {
    if (before_.size() < 2) GTEST_SKIP() << "this process may use one CPU alone";
  }
  void TearDown() override { keep_process_on(before_); }
  const std::vector<std::uint32_t> before_ = usable_cpus();
  const std::uint32_t last_ = before_.back();
};

/// A thread that runs until it is released.
class Waiting {
 public:
  explicit Waiting(const std::string& name)
      : thread_(start_thread(name, [this] {
          cpus_.set_value(usable_cpus());
          end_.get_future().wait();
        })) {}
  ~Waiting() {
    end_.set_value();
    thread_.join();
  }
  std::vector<std::uint32_t> cpus_at_start() { return cpus_.get_future().get(); }

 private:
  std::promise<std::vector<std::uint32_t>> cpus_;
  std::promise<void> end_;
  std::thread thread_;
};

std::vector<std::uint32_t> cpus_of_thread(const std::string& name) {
  for (const ThreadOnCpus& thread : threads_of_process())
    if (thread.name == name) return thread.cpus;
  return {};
}

TEST_F(Affinity, HoldsForThreadsThatAreStartedMeanwhile) {
  {
    const ThreadAffinity affinity(std::vector{last_});
    EXPECT_THAT(usable_cpus(), ElementsAre(last_));
    EXPECT_THAT(Waiting("inner").cpus_at_start(), ElementsAre(last_));
  }
  EXPECT_EQ(usable_cpus(), before_);
}

TEST_F(Affinity, ChangesNothingWhereTheSystemDoesNotPermitIt) {
  const ThreadAffinity affinity(std::vector{kNowhere});
  EXPECT_EQ(usable_cpus(), before_);
}

TEST_F(Affinity, OnlyCpusThatAreHereArePermitted) {
  EXPECT_THAT(permitted_cpus(std::vector{last_, kNowhere}), ElementsAre(last_));
  EXPECT_THAT(permitted_cpus(std::vector{kNowhere}), IsEmpty());
  EXPECT_EQ(usable_cpus(), before_);
}

TEST_F(Affinity, OfAProcessReachesThreadsThatWereThereBefore) {
  Waiting other("other");
  ASSERT_EQ(other.cpus_at_start(), before_);
  keep_process_on(std::vector{last_});
  EXPECT_THAT(cpus_of_thread("other"), ElementsAre(last_));
  EXPECT_THAT(usable_cpus(), ElementsAre(last_));
}

}  // namespace
}  // namespace troupe
