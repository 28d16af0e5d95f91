#include "tests/support/cuda_host/nccl/transfers.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace troupe::nccl::host {
namespace {

using cuda::host::process;
using cuda::host::reports;

/// What had happened before a message was sent, where both ends are in this process.
using MessageId = std::tuple<std::uint64_t, int, int, std::uint64_t>;  // clique, from, to, number
std::map<MessageId, Clock>& clocks() {
  static auto& all = *std::make_unique<std::map<MessageId, Clock>>().release();  // streams' threads use it to the end
  return all;
}

std::uint64_t copy_in(Wire& wire, const std::byte* from, std::uint64_t size_bytes) {
  const std::uint64_t written = wire.written.load(std::memory_order_relaxed);
  const std::uint64_t room = kWireBytes - (written - wire.read.load(std::memory_order_acquire));
  const std::uint64_t at = written % kWireBytes;
  const std::uint64_t now = std::min({size_bytes, room, kWireBytes - at});
  if (now > 0) std::memcpy(wire.bytes + at, from, now);
  wire.written.store(written + now, std::memory_order_release);
  return now;
}

std::uint64_t copy_out(Wire& wire, std::byte* to, std::uint64_t size_bytes) {
  const std::uint64_t read = wire.read.load(std::memory_order_relaxed);
  const std::uint64_t there = wire.written.load(std::memory_order_acquire) - read;
  const std::uint64_t at = read % kWireBytes;
  const std::uint64_t now = std::min({size_bytes, there, kWireBytes - at});
  if (now > 0) std::memcpy(to, wire.bytes + at, now);
  wire.read.store(read + now, std::memory_order_release);
  return now;
}

}  // namespace

void Transfers::send(int to, const void* from, std::uint64_t size_bytes) {
  Transfer made;
  made.head.size_bytes = size_bytes;
  std::snprintf(made.head.place, sizeof made.head.place, "%s", call_.place->text().c_str());
  made.at = static_cast<std::byte*>(const_cast<void*>(from));
  made.size_bytes = size_bytes;
  out_[to].push_back(made);
}

void Transfers::receive(int from, void* to, std::uint64_t size_bytes) {
  Transfer made;
  made.at = static_cast<std::byte*>(to);
  made.size_bytes = size_bytes;
  in_[from].push_back(made);
}

/// Whether something has moved.
bool Transfers::push(Wire& wire, Transfer& transfer) {
  const auto* const head = reinterpret_cast<const std::byte*>(&transfer.head);
  std::uint64_t moved = 0;
  if (transfer.done < sizeof(Head))
    moved = copy_in(wire, head + transfer.done, sizeof(Head) - transfer.done);
  else
    moved =
        copy_in(wire, transfer.at + (transfer.done - sizeof(Head)), sizeof(Head) + transfer.size_bytes - transfer.done);
  transfer.done += moved;
  return moved > 0;
}

bool Transfers::pull(Wire& wire, Transfer& transfer) {
  auto* const head = reinterpret_cast<std::byte*>(&transfer.head);
  std::uint64_t moved = 0;
  if (transfer.done < sizeof(Head))
    moved = copy_out(wire, head + transfer.done, sizeof(Head) - transfer.done);
  else
    moved = copy_out(wire, transfer.at + (transfer.done - sizeof(Head)),
                     sizeof(Head) + transfer.size_bytes - transfer.done);
  transfer.done += moved;
  return moved > 0;
}

void Transfers::report_difference(int from, const Head& head, std::uint64_t expected) {
  reports().add("different calls", call_.place->text() + " expects " + std::to_string(expected) + " bytes of rank " +
                                       std::to_string(from) + ", which sends " + std::to_string(head.size_bytes) +
                                       " by " + head.place);
  differs_ = true;
}

bool Transfers::move_some() {
  bool moved = false;
  Clique& clique = comm_.clique();
  for (auto& [to, queue] : out_) {
    while (!queue.empty()) {
      if (!push(clique.lane_resources[comm_.rank][to], queue.front())) break;
      moved = true;
      if (queue.front().done == sizeof(Head) + queue.front().size_bytes) queue.pop_front();
    }
  }
  for (auto& [from, queue] : in_) {
    while (!queue.empty()) {
      Transfer& next = queue.front();
      const bool knew = next.done >= sizeof(Head);
      if (!pull(clique.lane_resources[from][comm_.rank], next)) break;
      moved = true;
      if (!knew && next.done >= sizeof(Head) && next.head.size_bytes != next.size_bytes) {
        report_difference(from, next.head, next.size_bytes);
        return true;
      }
      if (next.done == sizeof(Head) + next.size_bytes) queue.pop_front();
    }
  }
  return moved;
}

std::string Transfers::missing() const {
  std::string text;
  const auto add = [&text](const Queues& queues, const char* what) {
    for (const auto& [peer, queue] : queues)
      if (!queue.empty()) text += what + std::to_string(peer);
  };
  add(in_, "; nothing comes from rank ");
  add(out_, "; nothing is taken by rank ");
  return text;
}

/// Whether it may go on.
bool Transfers::pause(Run& run) {
  cuda::host::Process& all = process();
  run.lock.lock();
  bool goes_on = !comm_.aborted && run.device.fault == cuda::Result::success;
  if (differs_) comm_.clique().broken = 1;
  if (goes_on && comm_.clique().broken != 0) {
    cuda::host::fail(run.device, cuda::Result::launch_failed);
    goes_on = false;
  }
  if (goes_on) all.changed.wait_for(run.lock, pause_);
  pause_ = std::min(2 * pause_, std::chrono::microseconds{1000});
  run.lock.unlock();
  return goes_on;
}

bool Transfers::run(Run& run) {
  cuda::host::Process& all = process();
  const auto is_here = [this](int peer) { return comm_.clique().seats[peer].process == getpid(); };
  const auto number = [this](std::vector<std::uint64_t>& counts, int peer) {
    return ++counts[static_cast<std::size_t>(peer)];
  };
  for (const auto& [to, queue] : out_)
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const MessageId id{comm_.open.number, comm_.rank, to, number(comm_.sent, to)};
      if (is_here(to)) clocks()[id] = run.clock;
    }
  std::vector<MessageId> expected;
  for (const auto& [from, queue] : in_)
    for (std::size_t i = 0; i < queue.size(); ++i)
      expected.emplace_back(comm_.open.number, from, comm_.rank, number(comm_.received, from));
  run.lock.unlock();
  const auto end = std::chrono::steady_clock::now() + all.settings.deadline;
  const auto is_done = [](const Queues& queues) {
    return std::all_of(queues.begin(), queues.end(), [](const auto& one) { return one.second.empty(); });
  };
  bool goes_on = true;
  while (goes_on && !(is_done(out_) && is_done(in_))) {
    if (move_some() && !differs_) {
      pause_ = std::chrono::microseconds{20};
      continue;
    }
    goes_on = pause(run);
    if (!goes_on || std::chrono::steady_clock::now() < end) continue;
    run.lock.lock();
    reports().add("endless wait", call_.place->text() + " waits after " +
                                      std::to_string(all.settings.deadline.count()) + " ms" + missing());
    cuda::host::fail(run.device, cuda::Result::launch_timeout);
    return false;
  }
  run.lock.lock();
  for (const MessageId& id : expected) {
    const auto found = clocks().find(id);
    if (found == clocks().end()) continue;
    if (goes_on) run.clock.join(found->second);
    clocks().erase(found);
  }
  return goes_on;
}

}  // namespace troupe::nccl::host
