#pragma once

#include <utility>

#include <caf/send.hpp>

#include "actors/messages.hpp"
#include "runtime/memory/lease.hpp"

namespace troupe::detail {

/// Sends SlotFree to an actor when a slot of a pool is free again, on whatever thread that happens.
template <class Actor>
class SlotMessenger final : public SlotWaker {
 public:
  SlotMessenger(LeasePool& pool, Actor receiver) : pool_(pool), receiver_(std::move(receiver)) { pool_.on_free(this); }
  ~SlotMessenger() { pool_.on_free(nullptr); }
  SlotMessenger(const SlotMessenger&) = delete;
  SlotMessenger& operator=(const SlotMessenger&) = delete;
  void slot_free() noexcept override { caf::anon_send(receiver_, SlotFree{}); }

 private:
  LeasePool& pool_;
  Actor receiver_;
};

}  // namespace troupe::detail
