#include <poll.h>
#include <ucp/api/ucp.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <new>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "tools/bench/messages/measures.hpp"
#include "tools/crew/endurance_load.hpp"

namespace troupe::bench {
namespace {

constexpr unsigned kMessage = 1;
constexpr std::size_t kPageBytes = 4096;
/// The same as in a lane.
constexpr unsigned kPausesPerLook = 16;
constexpr int kLongestSleepMs = 500;

void require(ucs_status_t status, std::string_view failure, Code code = Code::environment) {
  TROUPE_CHECK(status == UCS_OK, code, failure, ": ", ucs_status_string(status));
}

std::byte pattern(std::uint64_t place) { return static_cast<std::byte>(place * 167 + (place >> 12)); }

/// With raw_best: no error handling, wake-ups or other threads, over the means that UCX prefers; otherwise as our
/// lanes.
bool is_best(const EndCase& what) { return what.impl == "raw_best"; }

using RawContext = std::unique_ptr<ucp_context, decltype(&ucp_cleanup)>;
RawContext make_context(const EndCase& what) {
  ucp_config_t* config = nullptr;
  require(ucp_config_read(nullptr, nullptr, &config), "UCX cannot read its configuration");
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner{config, ucp_config_release};
  const auto set = [config](const char* name, const char* value) {
    require(ucp_config_modify(config, name, value), text("UCX refuses ", name, " = ", value));
  };
  set("TLS", what.tcp() ? "tcp,self" : "posix,cma,self");
  if (what.tcp()) set("NET_DEVICES", "lo");
  if (!what.tcp() && !is_best(what)) set("MM_ERROR_HANDLING", "y");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = is_best(what) ? UCP_FEATURE_AM : UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = is_best(what) ? 0 : 1;
  ucp_context_h context = nullptr;
  require(ucp_init(&params, config, &context), "UCX cannot start");
  return {context, &ucp_cleanup};
}

/// A worker with one endpoint and nothing between UCX and the loop that drives it: active messages with a header as
/// large as that of our messages; one message is in transit at a time, or many with almost no payload. Threads: one at
/// a time.
class RawWorker {
 public:
  enum class Kind : std::uint64_t { echo, count, counted, stop };

  /// `spin`: how long it polls before it sleeps.
  RawWorker(const RawContext& context, bool best, std::uint64_t bytes, std::chrono::nanoseconds spin, Deadline deadline)
      : best_(best),
        bytes_(bytes),
        spin_(spin),
        deadline_(deadline),
        sending_(make_buffer(bytes)),
        landing_(make_buffer(bytes)) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = best_ ? UCS_THREAD_MODE_SINGLE : UCS_THREAD_MODE_SERIALIZED;
    require(ucp_worker_create(context.get(), &params, &worker_), "UCX cannot make a worker");
    if (!best_) require(ucp_worker_get_efd(worker_, &fd_), "UCX offers no wake-up");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessage;
    handler.cb = &RawWorker::on_message;
    handler.arg = this;
    require(ucp_worker_set_am_recv_handler(worker_, &handler), "UCX refuses a message handler");
  }
  ~RawWorker() { ucp_worker_destroy(worker_); }
  RawWorker(const RawWorker&) = delete;
  RawWorker& operator=(const RawWorker&) = delete;

  /// Connects it to the worker that the other end connects now.
  void barrier(Blocking& blocking, Line& line) {
    ucp_worker_attr_t attributes{};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    require(ucp_worker_query(worker_, &attributes), "UCX cannot describe a worker");
    const auto mine =
        binary(std::as_bytes(std::span(reinterpret_cast<const char*>(attributes.address), attributes.address_length)));
    ucp_worker_release_address(worker_, attributes.address);
    const auto other = line.swap(blocking, mine);

    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(other.get_binary().data());
    params.err_mode = best_ ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) {
      static_cast<RawWorker*>(self)->failed_ = status;
    };
    params.err_handler.arg = this;
    require(ucp_ep_create(worker_, &params, &endpoint_), "UCX finds no way to the other end");
  }
  /// Sends the payload that was received last, or this worker's own if there was none, after the previous one has been
  /// sent.
  void send(Kind kind, std::uint64_t number = 0) {
    finish_send();
    std::swap(sending_, landing_);
    header_.kind = static_cast<std::uint64_t>(kind);
    header_.number = number;
    ucp_request_param_t param{};
    send_request_ = ucp_am_send_nbx(endpoint_, kMessage, &header_, sizeof header_, sending_.get(), bytes_, &param);
    require(UCS_PTR_IS_ERR(send_request_) ? UCS_PTR_STATUS(send_request_) : UCS_OK, "cannot send", Code::peer_lost);
  }
  /// Drives UCX until more messages have arrived than the caller has taken. Throws Error{timeout}.
  Kind take() {
    drive_until([&] { return arrived_ > taken_; });
    ++taken_;
    number_ = landed_.number;
    return static_cast<Kind>(landed_.kind);
  }
  /// The number in the message that was taken last.
  std::uint64_t number() const noexcept { return number_; }
  /// Whether the payload received last is the one that was sent first.
  bool intact() const {
    for (std::uint64_t i = 0; i < bytes_; ++i)
      if (landing_[i] != pattern(i)) return false;
    return true;
  }
  /// Waits until everything has been sent. Both ends may end after both have returned from it.
  void flush() {
    finish_send();
    ucp_request_param_t param{};
    const ucs_status_ptr_t request = ucp_worker_flush_nbx(worker_, &param);
    if (UCS_PTR_IS_PTR(request)) send_request_ = request;
    finish_send();
  }

 private:
  struct Header {  // 48 bytes, as the wire's
    std::uint64_t kind, number;
    std::array<std::uint64_t, 4> rest;
  };
  using Buffer = std::unique_ptr<std::byte[], void (*)(void*)>;

  static Buffer make_buffer(std::uint64_t bytes) {
    const std::size_t whole = (bytes / kPageBytes + 1) * kPageBytes;
    Buffer buffer{static_cast<std::byte*>(std::aligned_alloc(kPageBytes, whole)), std::free};
    if (buffer == nullptr) throw std::bad_alloc{};
    for (std::uint64_t i = 0; i < bytes; ++i) buffer[i] = pattern(i);
    return buffer;
  }

  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t size,
                                 const ucp_am_recv_param_t* param) {
    auto& ours = *static_cast<RawWorker*>(self);
    if (header_bytes != sizeof(Header) || size != ours.bytes_) {
      ours.failed_ = UCS_ERR_MESSAGE_TRUNCATED;
      return UCS_OK;
    }
    std::memcpy(&ours.landed_, header, sizeof(Header));
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      std::memcpy(ours.landing_.get(), data, size);
      ++ours.arrived_;
      return UCS_OK;
    }
    ucp_request_param_t receive{};
    receive.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    receive.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* worker) {
      auto& received = *static_cast<RawWorker*>(worker);
      if (status != UCS_OK) received.failed_ = status;
      ++received.arrived_;
      ucp_request_free(request);
    };
    receive.user_data = self;
    const ucs_status_ptr_t request = ucp_am_recv_data_nbx(ours.worker_, data, ours.landing_.get(), size, &receive);
    if (UCS_PTR_IS_ERR(request)) ours.failed_ = UCS_PTR_STATUS(request);
    if (request == nullptr) ++ours.arrived_;
    return UCS_INPROGRESS;
  }

  /// Waits until the last message has been sent.
  void finish_send() {
    if (send_request_ == nullptr) return;
    drive_until([&] { return ucp_request_check_status(send_request_) != UCS_INPROGRESS; });
    ucp_request_free(std::exchange(send_request_, nullptr));
  }

  /// The loop of a lane, without its other tasks.
  template <class Condition>
  void drive_until(Condition condition) {
    bool idle = false;
    unsigned rounds = 0;
    Clock::time_point idle_since;
    while (!condition()) {
      if (ucp_worker_progress(worker_) != 0) {
        idle = false;
        continue;
      }
      if (!std::exchange(idle, true)) {
        idle_since = Clock::now();
        rounds = 0;
      }
      if (++rounds % kPausesPerLook != 0 && spin_.count() > 0) {
        pause_cpu();
        continue;
      }
      require(failed_, "raw UCX failed", Code::peer_lost);
      TROUPE_CHECK(!deadline_.passed(), Code::timeout, "the other end of a raw measurement does not answer");
      if (fd_ >= 0 && Clock::now() - idle_since >= spin_ && ucp_worker_arm(worker_) == UCS_OK) {
        pollfd polled{fd_, POLLIN, 0};
        ::poll(&polled, 1, kLongestSleepMs);
      }
    }
  }

  const bool best_;
  const std::uint64_t bytes_;
  const std::chrono::nanoseconds spin_;
  const Deadline deadline_;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int fd_ = -1;
  Buffer sending_;
  Buffer landing_;
  Header header_{};
  void* send_request_ = nullptr;
  Header landed_{};  // of the message that is being received, or was received last
  std::uint64_t arrived_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t number_ = 0;
  ucs_status_t failed_ = UCS_OK;
};

using Kind = RawWorker::Kind;

/// Answers until the other end stops.
void serve(RawWorker& worker) {
  for (std::uint64_t counted = 0;;) {
    switch (worker.take()) {
      case Kind::echo: worker.send(Kind::echo); break;
      case Kind::count:
        if (++counted % kCountedAtOnce == 0) worker.send(Kind::counted, counted);
        break;
      default: return worker.flush();
    }
  }
}

void have_enough(RawWorker& worker) {
  worker.send(Kind::stop);
  worker.flush();
}

template <class Again>
void bounce(RawWorker& worker, Again again) {
  do {
    worker.send(Kind::echo);
    worker.take();
  } while (again());
  TROUPE_CHECK(worker.intact(), Code::corrupt, "a raw echo came back with other bytes");
  have_enough(worker);
}

Figures latency(RawWorker& worker, const EndCase& what) {
  RoundTrips trips(what);
  trips.begin();
  bounce(worker, [&] { return trips.again(); });
  return trips.figures();
}

Figures count(RawWorker& worker, const EndCase& what) {
  Rate rate(what.span());
  rate.begin();
  std::uint64_t sent = 0;
  std::uint64_t counted = 0;
  do {
    for (; sent < counted + kCountedAhead; ++sent) worker.send(Kind::count);
    worker.take();
    counted = worker.number();
  } while (rate.again(counted));
  for (; counted < sent; counted = worker.number()) worker.take();
  have_enough(worker);
  return rate.figures();
}

/// Small messages on one worker and tensors on another, each with its own thread.
Figures mixed(const EndCase& what, RawWorker& small, RawWorker& bulk) {
  Mixture mixture;
  auto stream = std::async(std::launch::async, [&] {
    if (!what.client) return serve(bulk);
    bounce(bulk, [&] {
      ++mixture.echoes;
      return !mixture.over.load();
    });
  });
  const std::shared_ptr<void> however_it_ends(nullptr, [&mixture](void*) { mixture.over = true; });
  Figures figures;
  if (what.client) {
    RoundTrips trips(1, what.span());
    mixture.begin();
    trips.begin();
    bounce(small, [&] { return trips.again(); });
    figures = mixture.figures(trips);
    mixture.over = true;
  } else {
    serve(small);
  }
  stream.get();  // rethrows its error
  return figures;
}

}  // namespace

Figures run_raw(Blocking& blocking, const EndCase& what, Line& line) {
  TROUPE_CHECK(what.what != "idle", Code::invalid, "raw UCX has nothing of its own that could be idle");
  const RawContext context = make_context(what);
  const bool best = is_best(what);
  const Deadline deadline = Deadline::after(line.patience());
  const std::chrono::nanoseconds spin = best ? std::chrono::hours(1) : control_lane(what).spin;
  RawWorker worker(context, best, what.bytes, spin, deadline);
  worker.barrier(blocking, line);
  Figures figures;
  if (what.what == "mixed") {
    RawWorker bulk(context, best, kStreamedBytes, std::chrono::nanoseconds(0), deadline);
    bulk.barrier(blocking, line);
    line.barrier(blocking);
    figures = mixed(what, worker, bulk);
    line.barrier(blocking);
    return figures;
  }
  line.barrier(blocking);
  if (!what.client)
    serve(worker);
  else
    figures = what.what == "rate" ? count(worker, what) : latency(worker, what);
  line.barrier(blocking);
  return figures;
}

}  // namespace troupe::bench
