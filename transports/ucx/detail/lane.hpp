#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "transports/ucx/detail/admission.hpp"
#include "transports/ucx/detail/arrivals.hpp"
#include "transports/ucx/detail/context.hpp"
#include "transports/ucx/detail/sends.hpp"

namespace troupe {

/// One UCX worker and its endpoints. Threads: one at a time, the lane's owner; address() any.
class UcxLane {
 public:
  UcxLane(const UcxContext& context, Lane lane, AddressSpace& space, const UcxOptions& options,
          const Directory& directory, const Receivers& receivers);
  /// Takes back what UCX still uses, and calls all outstanding callbacks.
  ~UcxLane();
  UcxLane(const UcxLane&) = delete;
  UcxLane& operator=(const UcxLane&) = delete;

  std::vector<std::byte> address() const { return address_; }
  /// See ListenerGuard.
  void end_early_connections() const { guard_.end_early_connections(); }
  bool send(Peer to, Class priority, Channel channel, std::span<const std::byte> head, std::span<const Memory> payload,
            SendDone& done);
  bool progress();
  bool arm();
  int fd() const noexcept { return fd_; }
  void fence(Peer peer, const Status& why) noexcept;

  /// Begins to send out everything that was passed to it, and accepts no more.
  void begin_flush();
  /// Continues the flush; true when it is done.
  bool flushed();

 private:
  void create_worker(const UcxContext& context, UcxMeans means, bool must_listen);
  PeerLink* find_or_make(Peer peer);
  PeerLink* link_of_sender(Peer peer);
  bool make_endpoint(PeerLink& link);
  static void on_error(void* link, ucp_ep_h endpoint, ucs_status_t status);
  bool do_deferred_work();
  void end_cut_link(PeerLink& link);
  void close_by_force(PeerLink& link);
  void give_up_transfers();
  bool finish_closing();
  void report_lost(PeerLink& link);
  bool complete();

  struct WorkerDestroy {
    void operator()(ucp_worker_h worker) const noexcept { ucp_worker_destroy(worker); }
  };

  const Lane lane_;
  const Directory& directory_;
  const Receivers& receivers_;
  DeferredWork deferred_;
  UcxSends sends_;
  UcxArrivals arrivals_;
  std::unordered_map<std::uint32_t, std::unique_ptr<PeerLink>> links_;
  PeerLink* last_link_ = nullptr;   // of the last message: the next one often has the same peer
  std::vector<PeerLink*> closing_;  // links that are cut, but that UCX still uses
  std::vector<void*> flushes_;
  std::unique_ptr<ucp_worker, WorkerDestroy> worker_;
  int fd_ = -1;
  std::vector<std::byte> address_;
  ListenerGuard guard_;
};

}  // namespace troupe
