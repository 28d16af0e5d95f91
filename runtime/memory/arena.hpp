#pragma once

// The room memory: which process or thread may access which bytes, and when: arenas that the processes of a host share,
// leases of slots, timelines whose points say "valid from" and "free from". It does not know what the bytes mean, nor
// which device or transport reads them.

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

/// The data that a peer needs to open an arena: plain data, sent in the hello.
struct ArenaTicket {
  std::array<char, 40> boot_id{};   // of the host, zero-terminated
  std::uint64_t pid_namespace = 0;  // inode of the creator's pid namespace
  std::uint64_t size_bytes = 0;
  std::uint64_t nonce = 0;  // random; the arena's first page has the same number
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  ArenaId id;
  std::uint32_t reserved = 0;
};

/// Memory that the processes of a node share: an anonymous file (memfd), sealed against change of size and
/// preallocated, so that touching it cannot fault. It has no name in the file system: when the last process ends, by
/// any signal, nothing is left. The first page is a directory of named parts, in which peers find the shared data.
/// Threads: publish has one caller at a time; the rest any thread.
class Arena {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;
  static constexpr std::size_t kMaxNames = 100;

  /// Makes an arena of at least `size_bytes` (rounded up to pages), plus its directory page. `binding`: where its pages
  /// are allocated; null: where the calling thread's memory is. Throws Error{out_of_memory} with the limit that was
  /// exceeded, Error{environment} if the kernel refuses.
  static std::shared_ptr<Arena> create(ArenaId id, std::uint64_t size_bytes, MemoryBinding* binding = nullptr);
  /// Maps a peer's arena through /proc. Throws Error{environment} if it is not accessible (another pid namespace, no
  /// permission) and Error{corrupt} if seals, size or nonce do not match the ticket.
  static std::shared_ptr<Arena> open(const ArenaTicket& ticket);

  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  ArenaId id() const noexcept { return id_; }
  std::byte* base() const noexcept { return base_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// For the creator only: a peer's mapping has no ticket, and the call throws Error{invalid}.
  ArenaTicket ticket() const;

  /// Takes `size_bytes` zero bytes from the arena, aligned to `alignment` (a power of two; at least 64 is used). Memory
  /// is never given back. Throws Error{out_of_memory}, with both sizes, if the arena is full.
  Memory allocate(std::uint64_t size_bytes, std::uint64_t alignment = 64);
  /// Takes a new timeline from the arena.
  TimelineId make_timeline() { return make_timelines(1); }
  /// Takes `count` new timelines with consecutive indices, and returns the first.
  TimelineId make_timelines(std::size_t count);
  /// Whether `id` is a timeline of this arena, whichever process made it. Check ids from other processes here before
  /// using them: a wait on any other place would change bytes of a tensor by counting itself as a sleeper.
  bool has_timeline(TimelineId id) const noexcept;
  /// Enters `part` as `name` (at most 19 characters, not used before) in the directory, where peers find it. It lies in
  /// this arena, or in other memory of this process, which peers must have mapped or imported before they use it.
  void publish(std::string_view name, Memory part);
  void publish(std::string_view name, TimelineId line);
  /// Looks up a name. Throws Error{corrupt} if the entry points outside of its creator's memory.
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

/// Memory that is not an Arena: an application's own buffers, or a device's.
struct Region {
  ArenaId id;  // unique in the group, like an arena's
  std::byte* base = nullptr;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
};

/// The memory that this process has mapped: resolves Memory and TimelineId to addresses and timelines. Threads: any.
class AddressSpace {
 public:
  AddressSpace();
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// An id that no other arena of this process has had. Ids below 256 are not given: callers choose those themselves.
  /// Throws Error{unsupported} after 65,280 ids.
  ArenaId new_arena(Peer creator);
  /// Makes an arena with memory from the place that place() set, and maps it. Throws like Arena::create.
  std::shared_ptr<Arena> make_arena(ArenaId id, std::uint64_t size_bytes);
  /// Sets where make_arena() allocates memory, and the CPUs for this space's threads (those that watch timelines). Call
  /// it before the first arena or thread is made. `binding` outlives the space; null, or no CPUs: memory and CPUs are
  /// those of the calling thread.
  void place(MemoryBinding* binding, std::vector<std::uint32_t> cpus);
  /// How many more ids new_arena() can give.
  std::uint32_t arenas_left() const noexcept;
  /// Adds an arena. Its memory stays mapped until unmap() or until the address space is destroyed. There are at most
  /// 1,024 arenas and regions at once.
  void map(std::shared_ptr<Arena> arena);
  /// Makes memory that is not an arena addressable. It belongs to the caller and must outlive every use of its id.
  /// Throws Error{invalid} for an id that is taken, or memory that is empty.
  void bind(const Region& region);
  /// Ends an arena's mapping, or a region's entry: its id is unknown here from now on, and its timelines end. From this
  /// call on nothing may look up a part of it, wait on one of its timelines or hold an address in it; a waker that is
  /// still registered with one of its timelines is called with Code::aborted. False: no arena or region has that id.
  /// Blocks until the threads that watch its timelines no longer use them.
  bool unmap(Blocking& blocking, ArenaId id);
  /// Makes `line` the timeline of its id (a fake device's logical clock, a process's own timeline). The timeline
  /// outlives its entry.
  void bind(Timeline& line);
  void unbind(TimelineId line) noexcept;
  /// Makes a timeline of this process alone, which lies in no arena. PrivateTimeline ends it with its owner.
  TimelineId make_private_timeline();
  /// Call this when the owner ends. Others may still return from waits, so the timeline stays until clear_ended().
  void end_private_timeline(TimelineId line) noexcept;
  /// Frees the private timelines that have ended: from this call on nothing may wait on one of them or look it up. A
  /// waker that is still registered is called with Code::aborted.
  void clear_ended();

  /// The arena. Throws Error{invalid} if it is not mapped, or is not an Arena.
  Arena& arena(ArenaId id) const;
  /// Throws Error{invalid} if no arena or region has that id.
  MemoryKind kind(ArenaId id) const;
  /// The whole arena or region, for devices that register whole mappings with their driver. Throws like kind().
  Region region(ArenaId id) const;
  /// The address of `memory` here. Throws Error{invalid} if the arena is not mapped or does not contain the range.
  std::byte* address(const Memory& memory) const;
  template <class T>
  T* address_of(const Memory& memory) const {
    return reinterpret_cast<T*>(address(memory));
  }
  /// Lets waits on this space's timelines poll for about 200 us before they sleep, for threads that have a core each.
  /// The default is no.
  void may_spin(bool yes) noexcept;
  /// The timeline. It is made on first use and is the same object as long as its arena is mapped. Throws Error{invalid}
  /// if the arena is not mapped, or the private timeline has ended.
  Timeline& timeline(TimelineId id) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A timeline of this process alone that ends with this object (AddressSpace::end_private_timeline). The address space
/// outlives it.
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
