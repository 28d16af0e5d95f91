#include "transports/ucx/ucx_transport.hpp"

#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <utility>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "transports/ucx/detail/context.hpp"
#include "transports/ucx/detail/lane.hpp"
#include "transports/ucx/detail/signal_handlers.hpp"
#include "transports/ucx/detail/system_v.hpp"

namespace troupe {
namespace {

const UcxOptions& checked(const UcxOptions& options) {
  TROUPE_CHECK(options.max_messages > 0 && options.chunk_bytes > 0 && options.chunks_ahead > 0, Code::invalid,
               "ucx: max_messages (", options.max_messages, "), chunk_bytes (", options.chunk_bytes,
               ") and chunks_ahead (", options.chunks_ahead, ") must be positive");
  return options;
}

class UcxTransport final : public Transport {
 public:
  UcxTransport(AddressSpace& space, const UcxOptions& options)
      : options_(with_means(checked(options))),
        context_(options_, options.means != options_.means),
        directory_(options_),
        control_(context_, Lane::control, space, options_, directory_, receivers_),
        bulk_(context_, Lane::bulk, space, options_, directory_, receivers_) {
    keep_ucx_from_signals();
    keep_ucx_from_system_v();
  }

  ~UcxTransport() override {
    const Deadline deadline = Deadline::after(options_.flush);
    control_.begin_flush();
    bulk_.begin_flush();
    bool control_done = false;
    bool bulk_done = false;
    while ((!control_done || !bulk_done) && !deadline.passed()) {
      control_done = control_.flushed();
      bulk_done = bulk_.flushed();
    }
    if (options_.means == UcxMeans::shm) remove_ucx_orphans();  // files of peers that were killed
  }

  std::string description() const override {
    const char* means = options_.means == UcxMeans::shm   ? "shared memory"
                        : options_.means == UcxMeans::tcp ? "tcp"
                                                          : "automatic";
    const std::string device = options_.network_devices.empty() ? "" : " on " + options_.network_devices;
    return text("ucx ", ucx_version(), " (", means, device, ")");
  }

  std::vector<std::string> network_devices() const { return context_.network_devices(); }

  bool carries(MemoryKind kind) const noexcept override { return kind != MemoryKind::device; }

  bool sends_from(MemoryKind kind) const noexcept override { return carries(kind) || context_.reads_cuda(); }

  std::vector<std::byte> address() const override { return directory_.describe({control_.address(), bulk_.address()}); }

  void connect(Peer peer, std::span<const std::byte> address) override {
    if (!met_.exchange(true)) {
      control_.end_early_connections();
      bulk_.end_early_connections();
    }
    directory_.add(peer, address);
  }

  void receive(Channel channel, Receiver& receiver) override { receivers_[place(channel)] = &receiver; }

  bool send(Peer to, Lane lane, Class priority, Channel channel, std::span<const std::byte> head,
            std::span<const Memory> payload, SendDone& done) override {
    TROUPE_CHECK(head.size() <= kMaxHeadBytes, Code::invalid, "ucx: a head of ", head.size(),
                 " bytes is longer than the ", kMaxHeadBytes,
                 " that a message may have; put the rest into the payload");
    return on(lane).send(to, priority, channel, head, payload, done);
  }

  bool progress(Lane lane) override { return on(lane).progress(); }
  bool arm(Lane lane) override { return on(lane).arm(); }
  int fd(Lane lane) const override { return lane == Lane::control ? control_.fd() : bulk_.fd(); }
  void fence(Peer peer, Lane lane, const Status& why) noexcept override { on(lane).fence(peer, why); }

 private:
  UcxLane& on(Lane lane) noexcept { return lane == Lane::control ? control_ : bulk_; }

  const UcxOptions options_;
  Receivers receivers_{};
  UcxContext context_;
  Directory directory_;
  UcxLane control_;
  UcxLane bulk_;
  std::atomic<bool> met_{false};  // a peer was connected
};

}  // namespace

bool ucx_available() noexcept { return true; }

std::string ucx_version() { return ucp_get_version_string(); }

UcxLibrary ucx_library() {
  const UcxContext context({}, false);
  UcxLibrary library{ucx_version(), {}, context.reads_cuda()};
  if (Dl_info found{}; ::dladdr(reinterpret_cast<const void*>(&ucp_get_version_string), &found) != 0)
    library.path = found.dli_fname;
  return library;
}

std::vector<std::string> ucx_network_devices(const Transport& transport) {
  const auto* const own = dynamic_cast<const UcxTransport*>(&transport);
  return own != nullptr ? own->network_devices() : std::vector<std::string>{};
}

std::unique_ptr<Transport> make_ucx_transport(AddressSpace& space, const UcxOptions& options) {
  return std::make_unique<UcxTransport>(space, options);
}

}  // namespace troupe
