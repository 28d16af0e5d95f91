// What collectives do on a stream.
#include <algorithm>
#include <cstring>

#include "tests/support/cuda_host/nccl/transfers.hpp"

namespace troupe::nccl::host {
namespace {

using cuda::Access;
using cuda::host::process;
using cuda::host::reports;
using Bytes = std::vector<std::byte>;

std::byte* at(std::uintptr_t address) { return static_cast<std::byte*>(process().memory.at(address)); }

const char* name_of(std::uint32_t type) {
  return type == static_cast<std::uint32_t>(Type::f32)   ? "f32"
         : type == static_cast<std::uint32_t>(Type::u64) ? "u64"
                                                         : "bytes";
}

std::string text_of(const Record& record) {
  std::string text = record.place;
  text += " of " + std::to_string(record.count) + " " + name_of(record.type);
  if (record.root >= 0) text += " with root " + std::to_string(record.root);
  return text;
}

Record record_of(const Call& call) {
  Record record{};
  std::snprintf(record.name, sizeof record.name, "%s", call.name);
  std::snprintf(record.place, sizeof record.place, "%s", call.place->text().c_str());
  record.count = call.count;
  record.type = static_cast<std::uint32_t>(call.type);
  record.root = call.root;
  return record;
}

bool is_same(const Record& a, const Record& b) {
  return std::strcmp(a.name, b.name) == 0 && a.count == b.count && a.type == b.type && a.root == b.root;
}

/// Whether no rank that has come so far has called something else as its collective of that number. Whoever comes later
/// tells.
bool all_call_this(CommState& comm, const Call& call) {
  const std::uint64_t number = comm.collectives++;
  Seat& own = comm.clique().seats[comm.rank];
  const Record mine = record_of(call);
  own.log[number % kLogged] = mine;
  own.calls.store(number + 1);
  for (int r = 0; r < comm.ranks; ++r) {
    const Seat& other = comm.clique().seats[r];
    const std::uint64_t calls = other.calls.load();
    if (calls <= number || calls - number > kLogged / 2) continue;
    const Record theirs = other.log[number % kLogged];
    if (is_same(mine, theirs)) continue;
    reports().add("different calls", "call " + std::to_string(number + 1) + " is at rank " + std::to_string(comm.rank) +
                                         " " + text_of(mine) + ", at rank " + std::to_string(r) + " " +
                                         text_of(theirs));
    return false;
  }
  return true;
}

/// Not in rank order, as NCCL's sums are not: those behind `first` come before it.
template <class T>
void add_up(std::byte* to, const std::vector<const std::byte*>& parts, std::size_t first, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    T sum{};
    for (std::size_t r = 1; r <= parts.size(); ++r) {
      T value;
      std::memcpy(&value, parts[(first + r) % parts.size()] + i * sizeof(T), sizeof(T));
      sum = r == 1 ? value : static_cast<T>(sum + value);
    }
    std::memcpy(to + i * sizeof(T), &sum, sizeof(T));
  }
}

void add_up(const Call& call, std::byte* to, const std::vector<const std::byte*>& parts, int first,
            std::uint64_t count) {
  const auto begin = static_cast<std::size_t>(first);
  if (call.type == Type::f32)
    add_up<float>(to, parts, begin, count);
  else if (call.type == Type::u64)
    add_up<std::uint64_t>(to, parts, begin, count);
  else
    add_up<std::uint8_t>(to, parts, begin, count);
}

bool broadcast(Run& run, CommState& comm, const Call& call) {
  Transfers moves{comm, call};
  if (comm.rank != call.root) {
    moves.receive(call.root, at(call.to), call.size_bytes());
    return moves.run(run);
  }
  for (int r = 0; r < comm.ranks; ++r)
    if (r != comm.rank) moves.send(r, at(call.from), call.size_bytes());
  if (call.from != call.to && call.count != 0) std::memmove(at(call.to), at(call.from), call.size_bytes());
  return moves.run(run);
}

bool all_gather(Run& run, CommState& comm, const Call& call) {
  Transfers moves{comm, call};
  const std::uint64_t each = call.size_bytes();
  for (int r = 0; r < comm.ranks; ++r) {
    if (r == comm.rank) continue;
    moves.send(r, at(call.from), each);
    moves.receive(r, at(call.to) + static_cast<std::uint64_t>(r) * each, each);
  }
  std::byte* const own = at(call.to) + static_cast<std::uint64_t>(comm.rank) * each;
  if (own != at(call.from) && each != 0) std::memmove(own, at(call.from), each);
  return moves.run(run);
}

/// The sum of elements [first, first + count) of all ranks comes to `root`, at the same place of `to`.
struct Part {
  int root;
  std::uint64_t first, count;
};
bool reduce(Run& run, CommState& comm, const Call& call, const std::vector<Part>& parts) {
  Transfers moves{comm, call};
  const std::uint64_t each = call.count == 0 ? 0 : call.size_bytes() / call.count;
  std::vector<Bytes> found(static_cast<std::size_t>(comm.ranks));
  std::vector<const std::byte*> addends;
  const Part* own = nullptr;
  for (const Part& part : parts) {
    if (part.root == comm.rank)
      own = &part;
    else
      moves.send(part.root, at(call.from) + part.first * each, part.count * each);
  }
  if (own != nullptr)
    for (int r = 0; r < comm.ranks; ++r) {
      Bytes& from = found[static_cast<std::size_t>(r)];
      if (r != comm.rank) {
        from.resize(own->count * each);
        moves.receive(r, from.data(), from.size());
      }
      addends.push_back(r == comm.rank ? at(call.from) + own->first * each : from.data());
    }
  if (!moves.run(run)) return false;
  if (own == nullptr) return true;
  run.lock.unlock();
  Bytes sum(own->count * each);
  add_up(call, sum.data(), addends, own->root, own->count);
  if (!sum.empty()) std::memcpy(at(call.to) + own->first * each, sum.data(), sum.size());
  run.lock.lock();
  return true;
}

bool all_reduce(Run& run, CommState& comm, const Call& call) {
  std::vector<Part> parts;
  const auto ranks = static_cast<std::uint64_t>(comm.ranks);
  for (std::uint64_t r = 0; r < ranks; ++r) {
    const std::uint64_t first = call.count * r / ranks;
    parts.push_back({static_cast<int>(r), first, call.count * (r + 1) / ranks - first});
  }
  if (!reduce(run, comm, call, parts)) return false;
  Transfers moves{comm, call};
  const std::uint64_t each = call.count == 0 ? 0 : call.size_bytes() / call.count;
  for (const Part& part : parts) {
    std::byte* const data = at(call.to) + part.first * each;
    for (int r = 0; r < comm.ranks && part.root == comm.rank; ++r)
      if (r != comm.rank) moves.send(r, data, part.count * each);
    if (part.root != comm.rank) moves.receive(part.root, data, part.count * each);
  }
  return moves.run(run);
}

bool run_collective(Run& run, CommState& comm, const Call& call) {
  if (!all_call_this(comm, call)) {
    comm.clique().broken = 1;
    cuda::host::fail(run.device, cuda::Result::launch_failed);
    return false;
  }
  switch (call.kind) {
    case Call::Kind::broadcast: return broadcast(run, comm, call);
    case Call::Kind::all_gather: return all_gather(run, comm, call);
    case Call::Kind::all_reduce: return all_reduce(run, comm, call);
    default: return reduce(run, comm, call, {{call.root, 0, call.count}});
  }
}

/// All sends and receives of a group go on together.
bool run_messages(Run& run, CommState& comm, const std::vector<Call>& calls) {
  const auto first = std::find_if(calls.begin(), calls.end(), [](const Call& call) { return !call.is_collective(); });
  if (first == calls.end()) return true;
  Transfers moves{comm, *first};
  for (const Call& call : calls) {
    if (call.kind == Call::Kind::send) moves.send(call.root, at(call.from), call.size_bytes());
    if (call.kind == Call::Kind::recv) moves.receive(call.root, at(call.to), call.size_bytes());
  }
  return moves.run(run);
}

cuda::host::Uses uses_of(const CommState& comm, const Call& call) {
  const auto* const from = reinterpret_cast<const void*>(call.from);
  const auto* const to = reinterpret_cast<const void*>(call.to);
  const std::uint64_t bytes = call.size_bytes();
  cuda::host::Uses uses;
  if (bytes == 0) return uses;
  const bool is_root = call.root == comm.rank;
  const bool reads = call.kind == Call::Kind::broadcast ? is_root : call.kind != Call::Kind::recv;
  const bool writes = call.kind == Call::Kind::broadcast ? !is_root || from != to
                      : call.kind == Call::Kind::reduce  ? is_root
                                                         : call.kind != Call::Kind::send;
  if (reads) uses.push_back({from, bytes, Access::reads});
  if (writes)
    uses.push_back({to, call.kind == Call::Kind::all_gather ? bytes * static_cast<std::uint64_t>(comm.ranks) : bytes,
                    Access::writes});
  return uses;
}

/// An error that happens in the background: the kernel does not end by itself.
bool fails_on_command(Run& run, CommState& comm) {
  cuda::host::Process& all = process();
  const auto fault = static_cast<unsigned>(all.calls.next(all.settings, "nccl_collective"));
  if (fault == 0) return false;
  comm.error = fault > cuda::host::kNcclFault ? Result{fault - cuda::host::kNcclFault} : Result::unhandled_cuda_error;
  all.changed.wait_for(run.lock, all.settings.deadline, [&comm] { return comm.aborted; });
  return true;
}

}  // namespace

void run_group(Run& run, CommState& comm, const std::vector<Call>& calls, const PlacePtr& place) {
  if (comm.aborted) return;
  ++comm.running;
  if (comm.last_place != nullptr && !run.clock.sees(comm.last))
    reports().add("unordered collectives",
                  place->text() + " is not ordered behind " + comm.last_place->text() + " of the same communicator");
  comm.last = run.now;
  comm.last_place = place;
  bool goes_on = std::all_of(calls.begin(), calls.end(), [&](const Call& call) {
    return cuda::host::may_use(run, call.place, uses_of(comm, call));
  });
  goes_on = goes_on && !fails_on_command(run, comm);  // what fails in the background may have written some
  for (const Call& call : calls)
    if (goes_on && call.is_collective()) goes_on = run_collective(run, comm, call);
  if (goes_on) run_messages(run, comm, calls);
  --comm.running;
  process().changed.notify_all();
}

}  // namespace troupe::nccl::host
