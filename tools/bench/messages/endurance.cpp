#include <malloc.h>
#include <unistd.h>

#include <iomanip>
#include <sstream>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/actors.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/endurance_load.hpp"
#include "tools/crew/process_usage.hpp"

namespace troupe::bench {
namespace {

/// One in this number of messages is sent before memory is read for the first time.
constexpr std::uint64_t kEnduranceWarmUp = 10;
/// How often progress is checked.
constexpr std::chrono::milliseconds kLook{100};

/// The memory of this process now: resident, including shared pages; allocated by malloc (0: unknown).
std::pair<double, double> memory_use() {
  double heap = 0;
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const auto told = ::mallinfo2();
  heap = static_cast<double>(told.uordblks + told.hblkhd) / 1e6;
#endif
  return {memory_mb(::getpid(), "VmRSS"), heap};
}

/// `warm`: 0 if the test ended before the warm-up did.
void add_memory(Figures& figures, const std::string& name, double warm, double last) {
  if (last > 0) figures[name + "_mb"] = last;
  if (warm > 0) figures[name + "_growth_pct"] = 100 * (last / warm - 1);
}

/// Checks one direction: what one end says that it sent against what the other end says that it received.
void check(const Figures& from, const EnduranceEnd::Done& done_from, const Figures& to,
           const EnduranceEnd::Done& done_to) {
  TROUPE_CHECK(from.at("dropped") == 0, Code::corrupt, from.at("dropped"), " messages were dropped");
  TROUPE_CHECK(from.at("sent") == to.at("delivered"), Code::corrupt, "of ", from.at("sent"),
               " messages of the remote actors ", to.at("delivered"), " were delivered");
  TROUPE_CHECK(done_from.counted == done_to.received && done_from.tensors_sent == done_to.tensors_received,
               Code::corrupt, "of ", done_from.counted, " messages with ", done_from.tensors_sent, " tensors ",
               done_to.received, " with ", done_to.tensors_received, " arrived");
}

/// The test at one end, from the barrier at the start to the figures.
class Endurance {
 public:
  Endurance(Blocking& blocking, const EndCase& what, EndLines lines)
      : blocking_(blocking),
        what_(what),
        lines_(lines),
        side_(blocking, what),
        end_(side_.stage(), side_.space(), side_.arena(), side_.lent(),
             EnduranceSchedule((what.messages + 1) / 2, (what.tensors + 1) / 2)) {
    side_.publish("sink", end_.sink());
    far_ = side_.find(blocking, "sink", lines.other.patience());
    there_ = lines.other.swap(blocking, ::getpid());
  }

  Figures run() {
    const std::uint64_t messages = (what_.messages + 1) / 2;
    bool stopped = send_until(messages / kEnduranceWarmUp);
    const auto warm = stopped ? std::pair(0.0, 0.0) : memory_use();
    const auto warm_done = end_.done();
    const auto began = Clock::now();
    lines_.other.barrier(blocking_);  // both have read their memory use
    if (!stopped) stopped = send_until(messages);
    const double took_ms = milliseconds_since(began);

    const auto last = memory_use();
    const RemoteCounters counters = side_.remote().counters();
    const EnduranceEnd::Done done = end_.done();
    Figures figures{{"sent", static_cast<double>(counters.sent)},
                    {"delivered", static_cast<double>(counters.delivered)},
                    {"reordered", static_cast<double>(counters.reordered)},
                    {"dropped", static_cast<double>(counters.dropped)}};
    add_memory(figures, "rss", warm.first, last.first);
    add_memory(figures, "heap", warm.second, last.second);
    const auto told = lines_.other.swap(blocking_, {figures, done});
    const auto theirs = told.at(0).get<Figures>();
    const auto done_there = told.at(1).get<EnduranceEnd::Done>();
    check(figures, done, theirs, done_there);
    check(theirs, done_there, figures, done);
    for (const auto& [name, value] : theirs) figures[name + "_there"] = value;
    figures["messages"] = static_cast<double>(done.counted + done.received);
    figures["tensors"] = static_cast<double>(done.tensors_sent + done.tensors_received);
    if (warm.first > 0)
      figures["kps"] = (figures["messages"] - static_cast<double>(warm_done.counted + warm_done.received)) / took_ms;
    if (stopped) figures["stopped"] = 1;
    side_.end(blocking_, lines_.other);
    return figures;
  }

 private:
  /// Waits until both ends have sent `limit` messages and none is in transit; returns whether one end was told to stop.
  bool send_until(std::uint64_t limit) {
    end_.go(far_, limit);
    while (!end_.wait(blocking_, kLook)) watch();
    lines_.other.tell(stopping_);
    while (!lines_.other.rest(blocking_, kLook)) watch();
    return lines_.other.await(blocking_).get<bool>() || stopping_;
  }

  /// Prints progress. Throws Error{timeout} if there is none.
  void watch() {
    if (!stopping_ && lines_.control.rest(blocking_, Clock::duration::zero())) {
      stopping_ = true;
      end_.stop();
    }
    end_.wait(blocking_, Clock::duration::zero());  // throws if something has failed meanwhile
    const auto now = Clock::now();
    const EnduranceEnd::Done done = end_.done();
    if (!(std::exchange(moved_to_, done) == done)) moved_at_ = now;
    TROUPE_CHECK(now - moved_at_ < kStall, Code::timeout, "nothing has arrived for ", kStall.count(), " s, at message ",
                 done.counted, " there and ", done.received, " here:\n",
                 side_.remote().describe(blocking_, Deadline::after(kSayEvery)));
    if (what_.client && now - told_at_ >= kSayEvery) say_progress(done, now);
  }
  void say_progress(const EnduranceEnd::Done& done, Clock::time_point now) {
    const std::uint64_t all = done.counted + done.received;
    const std::chrono::duration<double, std::micro> span = now - std::exchange(told_at_, now);
    std::ostringstream out;
    out << std::fixed << std::setprecision(2) << "endurance: " << static_cast<double>(all) / 1e6 << " of "
        << static_cast<double>(what_.messages) / 1e6 << " million messages, "
        << done.tensors_sent + done.tensors_received << " of " << what_.tensors << " tensors, "
        << static_cast<double>(all - std::exchange(told_, all)) / span.count() << " million/s; resident "
        << std::setprecision(1) << memory_mb(::getpid(), "VmRSS") << " and " << memory_mb(there_, "VmRSS") << " MB";
    say(out.str());
  }

  Blocking& blocking_;
  const EndCase what_;
  const EndLines lines_;
  PairSide side_;
  EnduranceEnd end_;
  caf::actor far_;
  pid_t there_ = 0;
  bool stopping_ = false;
  std::uint64_t told_ = 0;
  Clock::time_point told_at_ = Clock::now();
  EnduranceEnd::Done moved_to_;
  Clock::time_point moved_at_ = Clock::now();
};

}  // namespace

Figures run_endurance(Blocking& blocking, const EndCase& what, EndLines lines) {
  const Figures figures = Endurance(blocking, what, lines).run();
  return what.client ? figures : Figures{};
}

}  // namespace troupe::bench
