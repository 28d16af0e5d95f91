#pragma once

// The room memory: who may touch which bytes, and from when on: arenas that the processes of a host share, leases of
// slots, timelines whose points say "valid from" and "free from". It does not know what the bytes mean, nor which
// device or transport reads them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/memory/timeline.hpp"

namespace troupe {

class MemoryBinding;

/// What a peer needs to open an arena: plain data, sent in the hello.
struct ArenaTicket {
  std::array<char, 40> boot_id{};   // of the host, zero-terminated
  std::uint64_t pid_namespace = 0;  // inode of the creator's pid namespace
  std::uint64_t size_bytes = 0;
  std::uint64_t nonce = 0;  // random; stands in the arena's first page too
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  ArenaId id;
  std::uint32_t reserved = 0;
};

/// Memory that the processes of a node share: an anonymous file (memfd), sealed against change of size and
/// preallocated, so that touching it cannot fault. It has no name in the file system: when the last process ends, by
/// whatever signal, nothing is left. The first page is a directory of named parts, by which peers find what they share.
/// Threads: publish has one caller at a time; the rest any thread.
class Arena {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;
  static constexpr std::size_t kMaxNames = 100;

  /// Makes an arena of at least `size_bytes` (rounded up to pages) beside its directory page. `binding`: where its
  /// pages come from; null: where the calling thread's memory does. Throws Error{out_of_memory} with the limit that was
  /// met, Error{environment} when the kernel refuses.
  static std::shared_ptr<Arena> create(ArenaId id, std::uint64_t size_bytes, MemoryBinding* binding = nullptr);
  /// Maps a peer's arena through /proc. Throws Error{environment} when it cannot be reached (another pid namespace,
  /// no permission) and Error{corrupt} when seals, size or nonce are not what the ticket says.
  static std::shared_ptr<Arena> open(const ArenaTicket& ticket);

  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  ArenaId id() const noexcept { return id_; }
  std::byte* base() const noexcept { return base_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// Only the creator's arena has a ticket; Error{invalid} otherwise.
  ArenaTicket ticket() const;

  /// Takes `size_bytes` zero bytes from the arena, aligned to `alignment` (a power of two, at least 64 is used).
  /// Nothing is ever given back. Throws Error{out_of_memory} when the arena is full, with both sizes.
  Memory allocate(std::uint64_t size_bytes, std::uint64_t alignment = 64);
  /// Takes a fresh timeline from the arena.
  TimelineId make_timeline() { return make_timelines(1); }
  /// The first of `count` fresh ones, whose indices follow each other.
  TimelineId make_timelines(std::size_t count);
  /// Whether one of this arena's lines, made by whichever process, has that id. Ids that come from other processes are
  /// to be asked here first: anywhere else a wait would count itself among a tensor's bytes.
  bool has_timeline(TimelineId id) const noexcept;
  /// Enters `part` under `name` (at most 19 characters, once) in the directory, for peers to find. It lies in this
  /// arena or in other memory of the same process, which peers must have mapped or imported before they use it.
  void publish(std::string_view name, Memory part);
  void publish(std::string_view name, TimelineId line);
  /// Looks a name up. Throws Error{corrupt} when the directory points outside of its creator's memory.
  std::optional<Memory> find(std::string_view name) const;
  std::optional<TimelineId> find_timeline(std::string_view name) const;

 private:
  Arena(ArenaId id, int fd, std::byte* base, std::uint64_t size_bytes, bool creator) noexcept
      : id_(id), fd_(fd), base_(base), size_bytes_(size_bytes), creator_(creator) {}
  ArenaId id_;
  int fd_;
  std::byte* base_;
  std::uint64_t size_bytes_;
  bool creator_;
};

/// Memory that is no Arena: an application's own buffers, a device's.
struct Region {
  ArenaId id;  // unique in the group, as an arena's
  std::byte* base = nullptr;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
};

/// What this process has mapped: resolves plain Memory and TimelineId to addresses and lines. Threads: any.
class AddressSpace {
 public:
  AddressSpace();
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// An id that no other arena of this process has had, above those that callers choose themselves (below 256). Throws
  /// Error{unsupported} after 65,280.
  ArenaId new_arena(Peer creator);
  /// Makes an arena whose memory comes from where place() said, and maps it. Throws as Arena::create.
  std::shared_ptr<Arena> make_arena(ArenaId id, std::uint64_t size_bytes);
  /// Where the memory of arenas that make_arena() makes comes from, and the CPUs that this space's threads are kept on
  /// (those that watch lines); before the first of either is made. `binding` outlives the space; null, or no CPUs:
  /// wherever the calling thread's do.
  void place(MemoryBinding* binding, std::vector<std::uint32_t> cpus);
  /// How many more ids new_arena() has.
  std::uint32_t arenas_left() const noexcept;
  /// Adds an arena; its memory stays mapped until unmap(), or as long as the address space lives. At most 1,024 arenas
  /// and regions at once.
  void map(std::shared_ptr<Arena> arena);
  /// Makes memory addressable that is no arena; it is the caller's, and outlives every use of its id. Throws
  /// Error{invalid} for an id that is taken, or memory that is none.
  void bind(const Region& region);
  /// Ends an arena's mapping, or a region's entry: its id names nothing here from now on, and its lines have ended.
  /// Nobody looks anything of it up, waits on a line of it or holds an address in it meanwhile or later; a waker that
  /// is left on one of its lines is told Code::aborted. False: nothing of that id is mapped or bound. Blocks until the
  /// threads that watch its lines have let go of them.
  bool unmap(Blocking& blocking, ArenaId id);
  /// Makes `line` the one that its id names (a fake device's logical clock, a process's own line). The line outlives
  /// its entry.
  void bind(Timeline& line);
  void unbind(TimelineId line) noexcept;
  /// A timeline of this process alone: no arena, the same words. PrivateTimeline ends it with its owner.
  TimelineId make_private_timeline();
  /// Its owner has ended. Others may still be about to return from waits for it, so it stays until clear_ended().
  void end_private_timeline(TimelineId line) noexcept;
  /// Frees the private timelines that have ended: nobody waits on one of them, or looks it up, meanwhile or later. A
  /// waker that is left is told Code::aborted.
  void clear_ended();

  /// The arena, or Error{invalid} when it is not mapped, or no Arena.
  Arena& arena(ArenaId id) const;
  /// Throws Error{invalid} when nothing of that id is mapped or bound.
  MemoryKind kind(ArenaId id) const;
  /// All of the arena or region, for devices that make whole mappings known to their driver. Throws as kind() does.
  Region region(ArenaId id) const;
  /// Where `memory` lies here. Throws Error{invalid} when the arena is not mapped or the range leaves it.
  std::byte* address(const Memory& memory) const;
  template <class T>
  T* address_of(const Memory& memory) const {
    return reinterpret_cast<T*>(address(memory));
  }
  /// Lets waits on this space's lines poll for some 200 us before they sleep, for threads that have a core each. At
  /// first they may not.
  void may_spin(bool yes) noexcept;
  /// The line, made on first use and the same object as long as its arena is mapped. Throws Error{invalid} when that is
  /// not mapped, or the private line has ended.
  Timeline& timeline(TimelineId id) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A timeline of this process alone that ends with its owner (AddressSpace::end_private_timeline), whom the address
/// space outlives.
class PrivateTimeline {
 public:
  explicit PrivateTimeline(AddressSpace& space) : space_(space), id_(space.make_private_timeline()) {}
  ~PrivateTimeline() { space_.end_private_timeline(id_); }
  PrivateTimeline(const PrivateTimeline&) = delete;
  PrivateTimeline& operator=(const PrivateTimeline&) = delete;

  TimelineId id() const noexcept { return id_; }
  Timeline& line() const { return space_.timeline(id_); }

 private:
  AddressSpace& space_;
  const TimelineId id_;
};

}  // namespace troupe
