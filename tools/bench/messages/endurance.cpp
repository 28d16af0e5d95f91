#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/endurance_load.hpp"
#include "tools/bench/messages/memory_use.hpp"
#include "tools/bench/messages/say.hpp"
#include "tools/bench/messages/side.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {
namespace {

/// That part comes before the first look at memory.
constexpr std::uint64_t kEnduranceWarmUp = 10;

/// What one end knows at the end, as it tells the other.
struct EndReport {
  MemoryUse warm;  // zero: it did not come so far
  MemoryUse last;
  RemoteCounters counters;
  EnduranceEnd::Done done;
};

template <class T>
T swap(Blocking& blocking, Line& line, T mine) {
  const auto bytes = line.swap(blocking, std::as_bytes(std::span(&mine, 1)));
  TROUPE_CHECK(bytes.size() == sizeof mine, Code::corrupt, "the other end told ", bytes.size(), " bytes instead of ",
               sizeof mine);
  std::memcpy(&mine, bytes.data(), sizeof mine);
  return mine;
}

void add(Figures& figures, const EndReport& report, const std::string& suffix) {
  const auto memory = [&](const std::string& name, std::uint64_t warm, std::uint64_t last) {
    if (last == 0) return;
    figures[name + "_mb" + suffix] = megabytes(last);
    if (warm == 0) return;
    figures[name + "_growth_pct" + suffix] = 100 * (static_cast<double>(last) / static_cast<double>(warm) - 1);
  };
  memory("rss", report.warm.resident_bytes, report.last.resident_bytes);
  memory("heap", report.warm.heap_bytes, report.last.heap_bytes);
  figures["sent" + suffix] = static_cast<double>(report.counters.sent);
  figures["delivered" + suffix] = static_cast<double>(report.counters.delivered);
  figures["reordered" + suffix] = static_cast<double>(report.counters.reordered);
  figures["dropped" + suffix] = static_cast<double>(report.counters.dropped);
}

/// One end's test, from the meeting to the figures.
class Endurance {
 public:
  Endurance(Blocking& blocking, const EndCase& what, Line& line)
      : blocking_(blocking),
        what_(what),
        line_(line),
        signals_thread_(signals_),
        side_(blocking, what, line),
        end_(side_.stage(), side_.space(), side_.arena(), side_.lent(),
             EnduranceSchedule((what.messages + 1) / 2, (what.tensors + 1) / 2)) {
    side_.publish("sink", end_.sink());
    far_ = side_.find(blocking, "sink", line.patience());
    there_ = swap(blocking, line, ::getpid());
  }
  ~Endurance() { signals_thread_.on_first({}); }
  Endurance(const Endurance&) = delete;
  Endurance& operator=(const Endurance&) = delete;

  Figures run() {
    signals_thread_.on_first([this] {
      stopping_ = true;
      end_.stop();
    });
    const std::uint64_t messages = (what_.messages + 1) / 2;
    if (what_.client) say_progress({}, Clock::now());
    EndReport mine;
    bool stopped = send_until(messages / kEnduranceWarmUp);
    if (!stopped) mine.warm = memory_use();
    const auto warm_done = end_.done();
    const auto began = Clock::now();
    line_.meet(blocking_);  // both have looked
    if (!stopped) stopped = send_until(messages);
    const std::chrono::duration<double, std::milli> took = Clock::now() - began;
    mine.last = memory_use();
    mine.counters = side_.remote().counters();
    mine.done = end_.done();
    const EndReport theirs = swap(blocking_, line_, mine);
    check(mine, theirs);
    Figures figures;
    add(figures, mine, "");
    add(figures, theirs, "_there");
    const std::uint64_t done = mine.done.counted + mine.done.received;
    figures["messages"] = static_cast<double>(done);
    figures["tensors"] = static_cast<double>(mine.done.tensors_sent + mine.done.tensors_received);
    if (mine.warm.resident_bytes > 0)
      figures["kps"] = static_cast<double>(done - warm_done.counted - warm_done.received) / took.count();
    if (stopped) figures["stopped"] = 1;
    return figures;
  }

 private:
  /// Until both ends have sent so much and nothing is under way any more; whether one of them was told to stop.
  bool send_until(std::uint64_t limit) {
    end_.go(far_, limit);
    while (!end_.wait(blocking_, kSayEvery)) watch();
    bool stopping = stopping_;
    line_.tell(std::as_bytes(std::span(&stopping, 1)));
    while (!line_.rest(blocking_, kSayEvery)) watch();
    const auto theirs = line_.hear(blocking_);
    return stopping || (!theirs.empty() && theirs[0] != std::byte{0});
  }

  /// Tells how far it is. Throws Error{timeout} when it goes no further.
  void watch() {
    end_.wait(blocking_, Clock::duration::zero());  // for what has failed meanwhile
    const auto now = Clock::now();
    const EnduranceEnd::Done done = end_.done();
    if (!(done == told_)) moved_ = now;
    TROUPE_CHECK(now - moved_ < kStall, Code::timeout, "nothing has arrived for ",
                 std::chrono::duration_cast<std::chrono::seconds>(kStall).count(), " s, at message ", done.counted,
                 " there and ", done.received, " here:\n",
                 side_.remote().describe(blocking_, Deadline::after(kSayEvery)));
    if (what_.client) say_progress(done, now);
    told_ = done;
    told_at_ = now;
  }
  void say_progress(const EnduranceEnd::Done& done, Clock::time_point now) const {
    const std::uint64_t all = done.counted + done.received;
    const std::chrono::duration<double, std::micro> span = now - told_at_;
    std::ostringstream out;
    out << std::fixed << std::setprecision(2) << "endurance: " << static_cast<double>(all) / 1e6 << " of "
        << static_cast<double>(what_.messages) / 1e6 << " million messages, "
        << done.tensors_sent + done.tensors_received << " of " << what_.tensors << " tensors, "
        << static_cast<double>(all - told_.counted - told_.received) / span.count() << " million/s; resident "
        << std::setprecision(1) << megabytes(resident_bytes(::getpid())) << " and " << megabytes(resident_bytes(there_))
        << " MB";
    say(out.str());
  }
  void check(const EndReport& mine, const EndReport& theirs) const {
    TROUPE_CHECK(mine.counters.dropped + theirs.counters.dropped == 0, Code::corrupt, mine.counters.dropped,
                 " messages were dropped here and ", theirs.counters.dropped, " there");
    TROUPE_CHECK(mine.counters.sent == theirs.counters.delivered && mine.counters.delivered == theirs.counters.sent,
                 Code::corrupt, "of ", mine.counters.sent, " messages of the remote actors ", theirs.counters.delivered,
                 " were delivered, of ", theirs.counters.sent, " the other way ", mine.counters.delivered);
    TROUPE_CHECK(mine.done.counted == theirs.done.received && mine.done.received == theirs.done.counted &&
                     mine.done.tensors_sent == theirs.done.tensors_received &&
                     mine.done.tensors_received == theirs.done.tensors_sent,
                 Code::corrupt, "of ", mine.done.counted, " messages with ", mine.done.tensors_sent, " tensors ",
                 theirs.done.received, " with ", theirs.done.tensors_received, " arrived, of ", theirs.done.counted,
                 " with ", theirs.done.tensors_sent, " the other way ", mine.done.received, " with ",
                 mine.done.tensors_received);
  }

  Blocking& blocking_;
  const EndCase what_;
  Line& line_;
  std::atomic<bool> stopping_{false};
  const rtrun::Signals signals_;  // before anything has threads
  rtrun::SignalThread signals_thread_;
  Side side_;
  EnduranceEnd end_;
  caf::actor far_;
  pid_t there_ = 0;
  EnduranceEnd::Done told_;
  Clock::time_point told_at_ = Clock::now();
  Clock::time_point moved_ = Clock::now();
};

}  // namespace

Figures run_endurance(Blocking& blocking, const EndCase& what, Line& line) {
  Endurance endurance(blocking, what, line);
  const Figures figures = endurance.run();
  line.meet(blocking);
  return what.client ? figures : Figures{};
}

}  // namespace troupe::bench
