// Events on the way to a listener that takes its time.

#include "apps/session/listener_thread.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

namespace troupe {
namespace {

using ::testing::ElementsAre;

/// Notes what it receives; the first note waits until let_go() is called.
class SlowListener final : public SessionListener {
 public:
  void note(const std::string& text) override {
    if (received.empty()) {
      EXPECT_EQ(may_go_.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    }
    received.push_back(text);
  }
  void progress(const RunProgress& progress) override {
    received.push_back("progress " + std::to_string(progress.samples));
  }
  void let_go() { go_.set_value(); }

  std::vector<std::string> received;  // to be read after ListenerThread::finish()

 private:
  std::promise<void> go_;
  const std::shared_future<void> may_go_ = go_.get_future().share();
};

RunProgress after(std::uint64_t samples) {
  RunProgress progress;
  progress.samples = samples;
  return progress;
}

TEST(ListenerThread, ReplacesProgressThatWasNotReceivedByNewerProgress) {
  SlowListener listener;
  ListenerThread thread{listener};
  thread.note("first");
  thread.progress(after(100));
  thread.note("second");
  thread.progress(after(200));
  listener.let_go();
  thread.finish();
  EXPECT_THAT(listener.received, ElementsAre("first", "progress 200", "second"));
}

TEST(ListenerThread, KeepsProgressBehindWorkThatChangesWhatItIsCountedFrom) {
  SlowListener listener;
  ListenerThread thread{listener};
  thread.note("first");
  thread.progress(after(100));
  thread.later([](SessionListener& to) { to.note("work"); });
  thread.progress(after(1));
  thread.progress(after(2));
  listener.let_go();
  thread.finish();
  EXPECT_THAT(listener.received, ElementsAre("first", "progress 100", "work", "progress 2"));
}

TEST(ListenerThread, WaitsForItsListenerUntilADeadline) {
  SlowListener listener;
  ListenerThread thread{listener};
  thread.note("first");
  EXPECT_FALSE(thread.finish(Deadline::after(std::chrono::milliseconds{1})));
  listener.let_go();
  EXPECT_TRUE(thread.finish(Deadline::after(std::chrono::seconds{30})));
  EXPECT_THAT(listener.received, ElementsAre("first"));
}

}  // namespace
}  // namespace troupe
