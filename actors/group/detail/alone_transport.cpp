#include "actors/group/detail/alone_transport.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

namespace troupe::group {
namespace {

class AloneTransport final : public Transport {
 public:
  AloneTransport() : never_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    TROUPE_CHECK_ERRNO(never_ >= 0, Code::environment, "no file descriptor left; raise the limit (ulimit -n)");
  }
  ~AloneTransport() override { close(never_); }

  std::string description() const override { return "alone"; }
  bool carries(MemoryKind) const noexcept override { return false; }
  std::vector<std::byte> address() const override { return {}; }
  void connect(Peer peer, std::span<const std::byte>) override {
    fail(Code::environment, text("a group of one process has no peer ", peer.value));
  }
  void receive(Channel, Receiver&) override {}
  bool send(Peer to, Lane, Class, Channel, std::span<const std::byte>, std::span<const Memory>,
            SendDone& done) override {
    done.sent({Code::peer_lost, text("a group of one process has no peer ", to.value)});
    return true;
  }
  bool progress(Lane) override { return false; }
  bool arm(Lane) override { return true; }
  int fd(Lane) const override { return never_; }
  void fence(Peer, Lane, const Status&) noexcept override {}

 private:
  const int never_;  // never readable
};

}  // namespace

std::unique_ptr<Transport> make_alone_transport() { return std::make_unique<AloneTransport>(); }

}  // namespace troupe::group
