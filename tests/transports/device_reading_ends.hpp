#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <utility>

#include "runtime/compute/host_memory_device.hpp"
#include "tests/transports/loopback_ends.hpp"

namespace troupe::contracts {

/// Ends that send from a device's memory, as a UCX with support of GPUs does: they find it at an address of their own.
/// For fake devices with simulated memory. What arrives must land in the host's.
class DeviceReadingEnds final : public DirectNetwork {
 public:
  explicit DeviceReadingEnds(LoopbackAdversity adversity = {}) : ends_(adversity) {}
  std::unique_ptr<Transport> endpoint(Peer self, AddressSpace& space) override {
    readers_[self] = std::make_unique<AddressSpace>();
    return std::make_unique<End>(ends_.endpoint(self, *readers_[self]), space, counts_);
  }
  void show(Peer self, const RegionTicket& of_device) override {
    readers_.at(self)->map(Arena::open(arena_ticket(of_device)));
  }
  void map(Peer self, const std::shared_ptr<Arena>& arena) override { readers_.at(self)->map(arena); }
  /// How many payloads were sent so far, and how many of them from a device's memory.
  std::uint64_t sent() const noexcept { return counts_.all; }
  std::uint64_t sent_from_devices() const noexcept { return counts_.from_devices; }

 private:
  struct Counts {
    std::atomic<std::uint64_t> all{0}, from_devices{0};
  };
  class End final : public Transport {
   public:
    End(std::unique_ptr<Transport> inner, const AddressSpace& space, Counts& counts)
        : inner_(std::move(inner)), space_(space), counts_(counts) {}
    std::string description() const override { return inner_->description(); }
    bool carries(MemoryKind kind) const noexcept override { return inner_->carries(kind); }
    bool sends_from(MemoryKind) const noexcept override { return true; }
    std::vector<std::byte> address() const override { return inner_->address(); }
    void connect(Peer peer, std::span<const std::byte> address) override { inner_->connect(peer, address); }
    void receive(Channel channel, Receiver& receiver) override { inner_->receive(channel, receiver); }
    bool send(Peer to, Lane lane, Class priority, Channel channel, std::span<const std::byte> head,
              std::span<const Memory> payload, SendDone& done) override {
      const bool sent = inner_->send(to, lane, priority, channel, head, payload, done);
      if (!sent || payload.empty()) return sent;
      ++counts_.all;
      if (space_.kind(payload[0].arena) == MemoryKind::device) ++counts_.from_devices;
      return true;
    }
    bool progress(Lane lane) override { return inner_->progress(lane); }
    bool arm(Lane lane) override { return inner_->arm(lane); }
    int fd(Lane lane) const override { return inner_->fd(lane); }
    void fence(Peer peer, Lane lane, const Status& why) noexcept override { inner_->fence(peer, lane, why); }

   private:
    const std::unique_ptr<Transport> inner_;
    const AddressSpace& space_;  // the rank's
    Counts& counts_;
  };

  LoopbackEnds ends_;
  std::map<Peer, std::unique_ptr<AddressSpace>> readers_;
  Counts counts_;
};

}  // namespace troupe::contracts
