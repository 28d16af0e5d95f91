#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include "actors/caf_error.hpp"
#include "runtime/base/error.hpp"
#include "tools/bench/messages/actors.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/process_usage.hpp"
#include "tools/crew/statistics.hpp"

namespace troupe::bench {
namespace {

constexpr std::chrono::milliseconds kSampleEvery{100};
/// Wait before memory is read for the last time: an allocator returns the memory of a backlog within a second.
constexpr std::chrono::seconds kCalm{2};
/// How long a handler sends before the actor processes its next message.
constexpr std::chrono::microseconds kTurn{900};

/// The most time that a reader catches up after other processes had its core.
constexpr std::chrono::milliseconds kMakesUpFor{100};

using Counted = caf::atom_constant<caf::atom("counted")>;

double microseconds(Clock::duration span) { return std::chrono::duration<double, std::micro>(span).count(); }

/// How often this thread has given up its core to wait for something.
std::uint64_t waits_of_this_thread() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return static_cast<std::uint64_t>(used.ru_nvcsw);
}

/// Shared by the sender's actor and the measuring thread.
struct Sending {
  std::uint64_t bytes = 0;  // of each string
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> sent{0};
  Finish finish;
  // Used by the actor until it has finished:
  Clock::duration longest{};          // of one call, including time in which other processes had its core
  Clock::duration longest_on_core{};  // without that time
  std::uint64_t waits = 0;
};

/// Sends numbered strings as fast as it can, until `over` is set.
caf::behavior sender(caf::event_based_actor* self, const std::shared_ptr<Sending>& what, const caf::actor& reader) {
  return {[=](Go) {
    const std::uint64_t waits_before = waits_of_this_thread();
    std::uint64_t number = what->sent.load(std::memory_order_relaxed);
    auto now = Clock::now();
    for (const auto end = now + kTurn; now < end; now = Clock::now()) {
      std::string text(what->bytes, 'x');
      std::memcpy(text.data(), &number, sizeof number);
      const auto begun = Clock::now();
      const auto core_begun = core_time(CLOCK_THREAD_CPUTIME_ID);
      self->send(reader, std::move(text));
      what->longest_on_core = std::max(what->longest_on_core, core_time(CLOCK_THREAD_CPUTIME_ID) - core_begun);
      what->longest = std::max(what->longest, Clock::now() - begun);
      what->sent.store(++number, std::memory_order_relaxed);
    }
    what->waits += waits_of_this_thread() - waits_before;
    if (what->over.load()) {
      what->finish.tell();
    } else {
      self->send(self, Go::value);
    }
  }};
}

/// Shared by the reader's actor and the reporting thread.
struct Reading {
  std::uint64_t bytes = 0;
  Clock::duration pause{};  // for each message
  std::atomic<bool> hurry{false};
  std::atomic<std::uint64_t> read{0};
  std::atomic<std::uint64_t> wrong{0};  // duplicates, out of order, or with other content
};

/// Receives strings in ascending order of their numbers, of which some are missing, and computes after each until the
/// next one is due.
caf::behavior reader(caf::event_based_actor*, const std::shared_ptr<Reading>& what) {
  return {[what, next = std::uint64_t{0}, due = Clock::now()](const std::string& text) mutable {
            due = std::max(due + what->pause, Clock::now() - kMakesUpFor);
            std::uint64_t number = 0;
            const bool whole = text.size() == what->bytes;
            if (whole) std::memcpy(&number, text.data(), sizeof number);
            const bool same = whole && (text.size() == sizeof number || text.back() == 'x');
            if (!same || number < next) what->wrong.fetch_add(1, std::memory_order_relaxed);
            next = number + 1;
            while (!what->hurry.load(std::memory_order_relaxed) && Clock::now() < due) {
            }
            what->read.fetch_add(1, std::memory_order_relaxed);
          },
          [what](Counted) { return what->read.load(std::memory_order_relaxed); }};
}

/// The resident memory of one end.
class Watched {
 public:
  explicit Watched(pid_t process) : process_(process), before_mb_(now_mb()) {}
  void sample() { samples_mb_.add(now_mb()); }
  double now_mb() const { return memory_mb(process_, "VmRSS"); }
  void add_to(Figures& figures, const std::string& end) const {
    figures[end + "_before_mb"] = before_mb_;
    figures[end + "_median_mb"] = samples_mb_.median();
    figures[end + "_peak_mb"] = memory_mb(process_, "VmHWM");
    figures[end + "_after_mb"] = now_mb();
  }

 private:
  const pid_t process_;
  const double before_mb_;
  Spread samples_mb_;
};

/// The sender's end, which measures.
class Flood {
 public:
  Flood(Blocking& blocking, const EndCase& what, Line& line)
      : blocking_(blocking),
        what_(what),
        line_(line),
        side_(blocking, what),
        reader_(side_.find(blocking, "reader", line.patience())),
        there_(line.await(blocking).get<pid_t>()) {
    sending_->bytes = what.bytes;
  }

  Figures run() {
    send();
    const auto over_at = Clock::now();
    line_.tell({});  // tells the reader to read without pauses
    catch_up();
    const std::chrono::duration<double> caught_up = Clock::now() - over_at;
    line_.rest(blocking_, kCalm);
    Figures figures;
    here_.add_to(figures, "sender");
    there_.add_to(figures, "reader");
    line_.tell({});
    const auto report = line_.await(blocking_);
    const std::uint64_t read = report.at("read");
    const std::uint64_t refused = side_.remote().counters().dropped;
    check(read, report.at("wrong"), refused);
    figures["sent"] = static_cast<double>(sending_->sent.load());
    figures["read"] = static_cast<double>(read);
    figures["refused"] = static_cast<double>(refused);
    figures["longest_send_us"] = microseconds(sending_->longest);
    figures["longest_send_core_us"] = microseconds(sending_->longest_on_core);
    figures["send_waits"] = static_cast<double>(sending_->waits);
    figures["catch_up_s"] = caught_up.count();
    side_.end(blocking_, line_);
    return figures;
  }

 private:
  void send() {
    // The scheduler runs it, since it never returns while it floods: a control lane could do nothing else.
    const Ending actor(Stage{side_.system()}.spawn(sender, sending_, reader_));
    caf::anon_send(actor.get(), Go::value);
    const auto end = Clock::now() + what_.span();
    while (Clock::now() < end) rest("flood");
    sending_->over = true;
    sending_->finish.wait(blocking_, line_.patience());
  }
  /// Waits until all messages were read or refused, and this process was told so.
  void catch_up() {
    while (side_.counters().waiting > 0) rest("catching up");
    caf::scoped_actor self(side_.system());
    self->request(reader_, caf::infinite, Counted::value)
        .receive([&](std::uint64_t read) { read_ = read; },
                 [](const caf::error& error) {
                   TROUPE_CHECK(false, Code::corrupt, "the reader does not answer: ", from_caf(error).text());
                 });
    // The reader's process reports refused messages separately from answers.
    const auto told = Deadline::after(std::chrono::seconds(5));
    while (read_ + side_.remote().counters().dropped != sending_->sent && !told.passed()) rest("catching up");
  }
  void rest(const char* phase) {
    TROUPE_CHECK(!line_.rest(blocking_, kSampleEvery), Code::peer_lost, "the reader's end has gone");
    here_.sample();
    there_.sample();
    const auto now = Clock::now();
    const std::uint64_t handled = this->handled();
    if (std::exchange(moved_to_, handled) != handled) moved_at_ = now;
    TROUPE_CHECK(now - moved_at_ < kStall, Code::timeout, "nothing was read for ",
                 std::chrono::duration_cast<std::chrono::seconds>(kStall).count(), " s:\n",
                 side_.remote().describe(blocking_, Deadline::after(kSayEvery)));
    if (now - said_at_ < kSayEvery) return;
    said_at_ = now;
    std::ostringstream out;
    out << std::fixed << std::setprecision(1) << phase << ": " << std::chrono::duration<double>(now - begun_at_).count()
        << " s, flood of " << std::chrono::duration<double>(what_.span()).count() << " s; " << sending_->sent
        << " messages sent, " << handled << " read, " << side_.remote().counters().dropped << " refused; resident "
        << here_.now_mb() << " and " << there_.now_mb() << " MB";
    say(out.str());
  }
  /// The number of messages read, as far as the reader's process has reported.
  std::uint64_t handled() const {
    const PeerCounters peer = side_.counters();
    const std::uint64_t other = side_.remote().counters().dropped + peer.waiting + peer.unhandled;
    const std::uint64_t sent = sending_->sent;
    return sent - std::min(sent, other);  // all of these numbers change meanwhile
  }
  void check(std::uint64_t read, std::uint64_t wrong, std::uint64_t refused) const {
    TROUPE_CHECK(wrong == 0, Code::corrupt, wrong, " messages came out of order, twice, or with another content");
    TROUPE_CHECK(read + refused == sending_->sent, Code::corrupt, "of ", sending_->sent.load(), " messages ", read,
                 " were read and ", refused, " refused");
  }

  Blocking& blocking_;
  const EndCase what_;
  Line& line_;
  PairSide side_;
  const caf::actor reader_;
  const std::shared_ptr<Sending> sending_ = std::make_shared<Sending>();
  Watched here_{::getpid()};
  Watched there_;
  std::uint64_t read_ = 0;
  const Clock::time_point begun_at_ = Clock::now();
  Clock::time_point said_at_ = begun_at_;
  Clock::time_point moved_at_ = begun_at_;
  std::uint64_t moved_to_ = 0;
};

void read_flood(Blocking& blocking, const EndCase& what, Line& line) {
  PairSide side(blocking, what);
  const auto reading = std::make_shared<Reading>();
  reading->bytes = what.bytes;
  reading->pause = std::chrono::nanoseconds(std::chrono::seconds(1)) / what.reads;
  const Ending actor(side.stage().spawn(reader, reading));
  side.publish("reader", actor.get());
  line.tell(::getpid());
  line.await(blocking);
  reading->hurry = true;
  line.await(blocking);
  line.tell({{"read", reading->read.load()}, {"wrong", reading->wrong.load()}});
  side.end(blocking, line);
}

}  // namespace

Figures run_flood(Blocking& blocking, const EndCase& what, Line& line) {
  if (what.client) return Flood(blocking, what, line).run();
  read_flood(blocking, what, line);
  return {};
}

}  // namespace troupe::bench
