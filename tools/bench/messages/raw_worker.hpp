#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/clock.hpp"

namespace troupe::bench {

/// How UCX is used: as the lanes of our transport use it, or as suits it best.
struct RawOptions {
  bool tcp = false;
  bool best = false;  // no error handling, no wake-ups, one thread; the means that UCX prefers
};

class RawContext {
 public:
  explicit RawContext(const RawOptions& options);
  ~RawContext() { ucp_cleanup(context_); }
  RawContext(const RawContext&) = delete;
  RawContext& operator=(const RawContext&) = delete;
  const RawOptions options;
  ucp_context_h get() const noexcept { return context_; }

 private:
  ucp_context_h context_ = nullptr;
};

/// A worker with one endpoint and nothing between UCX and the loop that drives it: active messages with a header as
/// large as that of our messages, of which one is under way at a time or many without payload to speak of. Threads: one
/// at a time.
class RawWorker {
 public:
  enum class Kind : std::uint64_t { echo, count, counted, stop };
  struct Peer {
    bool told = true;               // of the other's death
    std::chrono::nanoseconds spin;  // polls for so long before it sleeps
  };

  RawWorker(const RawContext& context, std::uint64_t bytes, Peer peer);
  ~RawWorker();
  RawWorker(const RawWorker&) = delete;
  RawWorker& operator=(const RawWorker&) = delete;

  std::vector<std::byte> address() const;
  void connect(std::span<const std::byte> address);
  /// Sends the payload that came last, or at first one of this worker's own; once the one before has left.
  void send(Kind kind, Deadline deadline, std::uint64_t number = 0);
  /// Drives UCX until one more message has arrived than the caller has taken. Throws Error{timeout}.
  Kind take(Deadline deadline);
  /// The number that came with the message taken last.
  std::uint64_t number() const noexcept { return number_; }
  /// Whether the payload that came last is the one that was sent first.
  bool intact() const;
  /// Until everything sent has left: then both ends may end, once both have come so far.
  void flush(Deadline deadline);

 private:
  struct Header {  // 48 bytes, as the wire's
    std::uint64_t kind, number;
    std::array<std::uint64_t, 4> rest;
  };
  using Buffer = std::unique_ptr<std::byte[], void (*)(void*)>;

  static Buffer make_buffer(std::uint64_t bytes);
  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t size,
                                 const ucp_am_recv_param_t* param);
  static void on_received(void* request, ucs_status_t status, std::size_t size, void* self);
  void finish_send(Deadline deadline);
  template <class Condition>
  void drive_until(Condition condition, Deadline deadline);
  void sleep();

  const RawContext& context_;
  const std::uint64_t bytes_;
  const Peer peer_;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int fd_ = -1;
  Buffer sending_;
  Buffer landing_;
  Header header_{};
  void* send_request_ = nullptr;
  Header landed_{};  // of the message that is landing, or has landed last
  std::uint64_t arrived_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t number_ = 0;
  ucs_status_t failed_ = UCS_OK;
};

}  // namespace troupe::bench
