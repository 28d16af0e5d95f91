#include <atomic>
#include <exception>
#include <functional>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "tools/bench/messages/end.hpp"
#include "tools/bench/messages/measures.hpp"
#include "tools/bench/messages/raw_worker.hpp"

namespace troupe::bench {
namespace {

using Kind = RawWorker::Kind;

/// As our lanes, which are told of a peer's death.
bool is_told(const EndCase& what) { return what.impl != "raw_best"; }

void meet(Blocking& blocking, Line& line, RawWorker& worker) { worker.connect(line.swap(blocking, worker.address())); }

/// Answers until the other end has enough.
void serve(RawWorker& worker, Deadline deadline) {
  for (std::uint64_t counted = 0;;) {
    switch (worker.take(deadline)) {
      case Kind::echo: worker.send(Kind::echo, deadline); break;
      case Kind::count:
        if (++counted % kCountedAtOnce == 0) worker.send(Kind::counted, deadline, counted);
        break;
      default: return worker.flush(deadline);
    }
  }
}

template <class Again>
void bounce(RawWorker& worker, Deadline deadline, Again again) {
  do {
    worker.send(Kind::echo, deadline);
    worker.take(deadline);
  } while (again());
  TROUPE_CHECK(worker.intact(), Code::corrupt, "a raw echo came back with other bytes");
  worker.send(Kind::stop, deadline);
  worker.flush(deadline);
}

Figures count(RawWorker& worker, Deadline deadline, Rate rate) {
  rate.begin();
  std::uint64_t sent = 0;
  std::uint64_t counted = 0;
  do {
    for (; sent < counted + kCountedAhead; ++sent) worker.send(Kind::count, deadline);
    worker.take(deadline);
    counted = worker.number();
  } while (rate.again(counted));
  for (; counted < sent; counted = worker.number()) worker.take(deadline);
  worker.send(Kind::stop, deadline);
  worker.flush(deadline);
  return {{"kps", rate.thousand_a_second()}};
}

/// A thread that ends with its function, whose error goes to who joins.
class Beside {
 public:
  explicit Beside(std::function<void()> work)
      : thread_(start_thread("raw-bulk", [this, work = std::move(work)] {
          try {
            work();
          } catch (const Error& error) {
            failed_ = std::make_exception_ptr(error);
          }
        })) {}
  ~Beside() {
    if (thread_.joinable()) thread_.join();
  }
  void join() {
    thread_.join();
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  std::exception_ptr failed_;  // the thread's until it is joined
  std::thread thread_;
};

/// Ends the work beside, however the scope is left.
class RaisedAtEnd {
 public:
  explicit RaisedAtEnd(std::atomic<bool>& flag) : flag_(flag) {}
  ~RaisedAtEnd() { flag_ = true; }

 private:
  std::atomic<bool>& flag_;
};

/// Small messages on one worker, tensors on another, each with its thread.
Figures mixed(Blocking& blocking, const EndCase& what, Line& line, const RawContext& context,
              std::chrono::nanoseconds spin, Deadline deadline) {
  RawWorker small(context, what.bytes, {is_told(what), spin});
  RawWorker bulk(context, kStreamedBytes, {is_told(what), std::chrono::nanoseconds(0)});
  meet(blocking, line, small);
  meet(blocking, line, bulk);
  line.meet(blocking);
  Figures figures;
  if (what.client) {
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> echoes{0};
    Beside stream([&] {
      bounce(bulk, deadline, [&] {
        ++echoes;
        return !over.load();
      });
    });
    RoundTrips trips({1, what.span()});
    Throughput throughput(echoes);
    const RaisedAtEnd raised(over);
    trips.begin();
    bounce(small, deadline, [&] { return trips.again(); });
    figures = spread_figures(trips);
    figures["gb_s"] = throughput.gb_s();
    over = true;
    stream.join();
  } else {
    Beside stream([&] { serve(bulk, deadline); });
    serve(small, deadline);
    stream.join();
  }
  line.meet(blocking);
  return figures;
}

}  // namespace

Figures run_raw(Blocking& blocking, const EndCase& what, Line& line) {
  const bool best = what.impl == "raw_best";
  const RawContext context({what.tcp(), best});
  const Deadline deadline = Deadline::after(line.patience());
  const std::chrono::nanoseconds spin =
      best ? std::chrono::nanoseconds(std::chrono::hours(1)) : control_lane(what).spin;
  if (what.what == "mixed") return mixed(blocking, what, line, context, spin, deadline);
  TROUPE_CHECK(what.what != "idle", Code::invalid, "raw UCX has nothing of its own that could be idle");
  RawWorker worker(context, what.bytes, {is_told(what), spin});
  meet(blocking, line, worker);
  line.meet(blocking);
  Figures figures;
  if (!what.client) {
    serve(worker, deadline);
  } else if (what.what == "rate") {
    figures = count(worker, deadline, Rate(what.span()));
  } else {
    RoundTrips trips(latency_plan(what));
    trips.begin();
    bounce(worker, deadline, [&] { return trips.again(); });
    figures = latency_figures(trips);
  }
  line.meet(blocking);
  return figures;
}

}  // namespace troupe::bench
