#include "tools/bench/messages/raw_worker.hpp"

#include <poll.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"

namespace troupe::bench {
namespace {

constexpr unsigned kMessage = 1;
constexpr std::size_t kPageBytes = 4096;
/// As a lane does.
constexpr unsigned kPausesPerLook = 16;
constexpr int kLongestSleepMs = 500;

template <class... Parts>
void require(ucs_status_t status, const Parts&... failure) {
  TROUPE_CHECK(status == UCS_OK, Code::environment, failure..., ": ", ucs_status_string(status));
}

void set(ucp_config_t* config, const char* name, const char* value) {
  require(ucp_config_modify(config, name, value), "UCX refuses ", name, " = ", value);
}

void configure(ucp_config_t* config, const RawOptions& options) {
  if (options.tcp) {
    set(config, "TLS", "tcp,self");
    set(config, "NET_DEVICES", "lo");
  } else if (options.best) {
    set(config, "TLS", "posix,cma,self");
  } else {
    set(config, "TLS", "posix,cma,self");
    set(config, "MM_ERROR_HANDLING", "y");
  }
}

std::byte pattern(std::uint64_t place) { return static_cast<std::byte>(place * 167 + (place >> 12)); }

}  // namespace

RawContext::RawContext(const RawOptions& how) : options(how) {
  ucp_config_t* config = nullptr;
  require(ucp_config_read(nullptr, nullptr, &config), "UCX cannot read its configuration");
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner{config, ucp_config_release};
  configure(config, options);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM;
  if (!options.best) {
    params.features |= UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = 1;
  }
  require(ucp_init(&params, config, &context_), "UCX cannot start");
}

RawWorker::Buffer RawWorker::make_buffer(std::uint64_t bytes) {
  const std::size_t whole = (bytes / kPageBytes + 1) * kPageBytes;
  Buffer buffer{static_cast<std::byte*>(std::aligned_alloc(kPageBytes, whole)), std::free};
  if (buffer == nullptr) throw std::bad_alloc{};
  for (std::uint64_t i = 0; i < bytes; ++i) buffer[i] = pattern(i);
  return buffer;
}

RawWorker::RawWorker(const RawContext& context, std::uint64_t bytes, Peer peer)
    : context_(context), bytes_(bytes), peer_(peer), sending_(make_buffer(bytes)), landing_(make_buffer(bytes)) {
  const bool best = context.options.best;
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = best ? UCS_THREAD_MODE_SINGLE : UCS_THREAD_MODE_SERIALIZED;
  require(ucp_worker_create(context.get(), &params, &worker_), "UCX cannot make a worker");
  if (!best) require(ucp_worker_get_efd(worker_, &fd_), "UCX offers no wake-up");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessage;
  handler.cb = &RawWorker::on_message;
  handler.arg = this;
  require(ucp_worker_set_am_recv_handler(worker_, &handler), "UCX refuses a message handler");
}

RawWorker::~RawWorker() { ucp_worker_destroy(worker_); }

std::vector<std::byte> RawWorker::address() const {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
  require(ucp_worker_query(worker_, &attributes), "UCX cannot describe a worker");
  const auto* raw = reinterpret_cast<const std::byte*>(attributes.address);
  std::vector<std::byte> bytes(raw, raw + attributes.address_length);
  ucp_worker_release_address(worker_, attributes.address);
  return bytes;
}

void RawWorker::connect(std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = peer_.told ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) {
    static_cast<RawWorker*>(self)->failed_ = status;
  };
  params.err_handler.arg = this;
  require(ucp_ep_create(worker_, &params, &endpoint_), "UCX finds no way to the other end");
}

ucs_status_t RawWorker::on_message(void* self, const void* header, std::size_t header_bytes, void* data,
                                   std::size_t size, const ucp_am_recv_param_t* param) {
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
  receive.cb.recv_am = &RawWorker::on_received;
  receive.user_data = self;
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(ours.worker_, data, ours.landing_.get(), size, &receive);
  if (UCS_PTR_IS_ERR(request)) ours.failed_ = UCS_PTR_STATUS(request);
  if (request == nullptr) ++ours.arrived_;
  return UCS_INPROGRESS;
}

void RawWorker::on_received(void* request, ucs_status_t status, std::size_t, void* self) {
  auto& ours = *static_cast<RawWorker*>(self);
  if (status != UCS_OK) ours.failed_ = status;
  ++ours.arrived_;
  ucp_request_free(request);
}

void RawWorker::send(Kind kind, Deadline deadline, std::uint64_t number) {
  if (send_request_ != nullptr) finish_send(deadline);
  std::swap(sending_, landing_);
  header_.kind = static_cast<std::uint64_t>(kind);
  header_.number = number;
  ucp_request_param_t param{};
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint_, kMessage, &header_, sizeof header_, sending_.get(), bytes_, &param);
  TROUPE_CHECK(!UCS_PTR_IS_ERR(request), Code::peer_lost, "cannot send: ", ucs_status_string(UCS_PTR_STATUS(request)));
  send_request_ = request;
}

void RawWorker::finish_send(Deadline deadline) {
  drive_until([&] { return ucp_request_check_status(send_request_) != UCS_INPROGRESS; }, deadline);
  ucp_request_free(std::exchange(send_request_, nullptr));
}

RawWorker::Kind RawWorker::take(Deadline deadline) {
  drive_until([&] { return arrived_ > taken_; }, deadline);
  ++taken_;
  number_ = landed_.number;
  return static_cast<Kind>(landed_.kind);
}

bool RawWorker::intact() const {
  for (std::uint64_t i = 0; i < bytes_; ++i)
    if (landing_[i] != pattern(i)) return false;
  return true;
}

void RawWorker::flush(Deadline deadline) {
  if (send_request_ != nullptr) finish_send(deadline);
  ucp_request_param_t param{};
  const ucs_status_ptr_t request = ucp_worker_flush_nbx(worker_, &param);
  if (!UCS_PTR_IS_PTR(request)) return;
  send_request_ = request;
  finish_send(deadline);
}

/// The loop of a lane, with nothing else to look after.
template <class Condition>
void RawWorker::drive_until(Condition condition, Deadline deadline) {
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
    if (++rounds % kPausesPerLook != 0 && peer_.spin.count() > 0) {
      pause_cpu();
      continue;
    }
    TROUPE_CHECK(failed_ == UCS_OK, Code::peer_lost, "raw UCX failed: ", ucs_status_string(failed_));
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "the other end of a raw measurement does not answer");
    if (fd_ >= 0 && Clock::now() - idle_since >= peer_.spin) sleep();
  }
}

void RawWorker::sleep() {
  if (ucp_worker_arm(worker_) != UCS_OK) return;
  pollfd polled{fd_, POLLIN, 0};
  ::poll(&polled, 1, kLongestSleepMs);
}

}  // namespace troupe::bench
