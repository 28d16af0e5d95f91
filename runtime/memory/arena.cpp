#include "runtime/memory/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/host_identity.hpp"
#include "runtime/memory/detail/memory_left.hpp"
#include "runtime/memory/memory_binding.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kPageMagic = 0x414e455241455254;  // "TREARENA"
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 39;  // a timeline has a 32-bit number, in units of 128 bytes

enum class Kind : std::uint8_t { memory = 1, line = 2 };

/// A named part. Names are padded with zeros; a name of 19 characters has no terminating zero.
struct Entry {
  char name[19];
  Kind kind;
  ArenaId arena;  // this arena, or other memory of its creator
  std::uint64_t offset;
  std::uint64_t size_bytes;
};
static_assert(sizeof(Entry) == 40);

/// The first page. The creator writes it; peers read it and trust nothing, since every peer can write anywhere in an
/// arena. A peer copies a value once, checks the copy, and never reads the value again for the same decision.
struct Directory {
  std::uint64_t magic;
  std::uint64_t nonce;
  std::uint64_t size_bytes;
  std::uint64_t used_bytes;  // used by the creator: where the free part begins
  ArenaId id;
  std::atomic<std::uint32_t> count;  // entries below it are complete and final
  std::uint64_t reserved[7];
  Entry entries[Arena::kMaxNames];
};
static_assert(sizeof(Directory) <= Arena::kPageBytes && offsetof(Directory, entries) == 96);

Directory& directory(std::byte* base) noexcept { return *reinterpret_cast<Directory*>(base); }

std::uint64_t random_nonce() {
  std::uint64_t nonce = 0;
  while (nonce == 0) {
    TROUPE_CHECK_ERRNO(getrandom(&nonce, sizeof nonce, 0) == sizeof nonce, Code::environment,
                       "cannot get random bytes");
  }
  return nonce;
}

std::byte* map_shared(int fd, std::uint64_t size_bytes) {
  void* base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  TROUPE_CHECK_ERRNO(base != MAP_FAILED, Code::out_of_memory, "cannot map an arena of ", size_bytes,
                     " bytes (see the limit of address space, ulimit -v)");
  return static_cast<std::byte*>(base);
}

/// Refuses sizes at which the kernel would send a signal (SIGXFSZ, out-of-memory killer) instead of an error.
void check_limits(std::uint64_t size_bytes) {
  rlimit limit{};
  TROUPE_CHECK_ERRNO(getrlimit(RLIMIT_FSIZE, &limit) == 0, Code::environment, "cannot read the limit of file sizes");
  TROUPE_CHECK(limit.rlim_cur == RLIM_INFINITY || size_bytes <= limit.rlim_cur, Code::environment, "an arena of ",
               size_bytes, " bytes, a file without a name, is over the limit of file sizes, ", limit.rlim_cur,
               " bytes; set `ulimit -f unlimited`");
  const MemoryLeft left = memory_left();
  TROUPE_CHECK(size_bytes <= left.size_bytes, Code::out_of_memory, "an arena of ", size_bytes,
               " bytes does not fit: ", left.size_bytes, " bytes are left by ", left.limit);
}

/// The opened file must match the ticket: the peer may meanwhile use the descriptor for another file.
void check_file(int fd, const ArenaTicket& ticket) {
  const int seals = fcntl(fd, F_GET_SEALS);
  TROUPE_CHECK(seals != -1 && (seals & kSeals) == kSeals, Code::corrupt, "descriptor ", ticket.fd, " of process ",
               ticket.pid, " is not an arena: it is not sealed against change of size (seals ", seals, ")");
  struct stat about {};
  TROUPE_CHECK_ERRNO(fstat(fd, &about) == 0, Code::environment, "cannot look at the arena of process ", ticket.pid);
  TROUPE_CHECK(static_cast<std::uint64_t>(about.st_size) == ticket.size_bytes, Code::corrupt, "the arena of process ",
               ticket.pid, " has ", about.st_size, " bytes, its ticket says ", ticket.size_bytes);
}

void check_ticket(const ArenaTicket& ticket) {
  const std::string host{ticket.boot_id.data(), strnlen(ticket.boot_id.data(), ticket.boot_id.size())};
  TROUPE_CHECK(host == boot_id(), Code::environment, "the arena of process ", ticket.pid,
               " is on another host (boot id ", host, ", here ", boot_id(), ")");
  TROUPE_CHECK(ticket.pid_namespace == pid_namespace(), Code::environment, "the arena of process ", ticket.pid,
               " is in another pid namespace (", ticket.pid_namespace, ", here ", pid_namespace(),
               "); processes share memory only within one");
  TROUPE_CHECK(ticket.pid > 0 && ticket.fd >= 0 && ticket.size_bytes > Arena::kPageBytes &&
                   ticket.size_bytes <= kMaxBytes && ticket.size_bytes % Arena::kPageBytes == 0,
               Code::corrupt, "no arena has this ticket: pid ", ticket.pid, ", descriptor ", ticket.fd, ", ",
               ticket.size_bytes, " bytes");
}

TimelineWord& word_at(std::byte* base, std::uint64_t index) noexcept {
  return reinterpret_cast<TimelineWord*>(base)[index];
}

std::string_view name_of(const Entry& entry) noexcept { return {entry.name, strnlen(entry.name, sizeof entry.name)}; }

std::optional<Entry> find_entry(const Arena& arena, std::string_view name, Kind kind) {
  const Directory& page = directory(arena.base());
  const std::uint32_t count = page.count.load(std::memory_order_acquire);
  TROUPE_CHECK(count <= Arena::kMaxNames, Code::corrupt, "the directory of arena ", arena.id().value, " claims ", count,
               " names; there is room for ", Arena::kMaxNames);
  const auto end = page.entries + count;
  const auto found = std::find_if(page.entries, end, [&](const Entry& entry) { return name_of(entry) == name; });
  if (found == end) return std::nullopt;
  const Entry entry = *found;
  TROUPE_CHECK(entry.kind == kind, Code::corrupt, "'", name, "' in arena ", arena.id().value, " is of kind ",
               static_cast<int>(entry.kind), ", not ", static_cast<int>(kind), " (1: memory, 2: timeline)");
  const bool elsewhere = kind == Kind::memory && entry.arena != arena.id();  // whoever maps it checks the range
  TROUPE_CHECK(!elsewhere || (entry.arena.value != 0 && creator_of(entry.arena) == creator_of(arena.id())),
               Code::corrupt, "'", name, "' in arena ", arena.id().value, " is a part of arena ", entry.arena.value,
               ", which another process made");
  TROUPE_CHECK(elsewhere || (entry.offset >= Arena::kPageBytes && entry.offset <= arena.size_bytes() &&
                             entry.size_bytes <= arena.size_bytes() - entry.offset),
               Code::corrupt, "'", name, "' in arena ", arena.id().value, " leaves it: ", entry.size_bytes,
               " bytes at ", entry.offset, " of ", arena.size_bytes());
  return entry;
}

void add_entry(std::byte* base, std::string_view name, Kind kind, const Memory& part) {
  Directory& page = directory(base);
  const std::uint32_t count = page.count.load(std::memory_order_relaxed);
  TROUPE_CHECK(!name.empty() && name.size() <= sizeof Entry::name, Code::invalid, "'", name,
               "' cannot be a name in an arena: 1 to ", sizeof Entry::name, " characters");
  TROUPE_CHECK(count < Arena::kMaxNames, Code::invalid, "no room for '", name, "' in arena ", page.id.value,
               ": it has ", count, " names");
  for (const Entry& entry : std::span{page.entries, count}) {
    TROUPE_CHECK(name_of(entry) != name, Code::invalid, "'", name, "' stands in the directory of arena ", page.id.value,
                 " already");
  }
  Entry& entry = page.entries[count];
  std::copy(name.begin(), name.end(), entry.name);
  entry.kind = kind;
  entry.arena = part.arena;
  entry.offset = part.offset;
  entry.size_bytes = part.size_bytes;
  page.count.store(count + 1, std::memory_order_release);  // last: a peer that sees the count sees the whole entry
}

}  // namespace

std::shared_ptr<Arena> Arena::create(ArenaId id, std::uint64_t size_bytes, MemoryBinding* binding) {
  TROUPE_CHECK(id.value != 0, Code::invalid, "an arena needs an id other than 0, which stands for none");
  TROUPE_CHECK(size_bytes <= kMaxBytes - 2 * kPageBytes, Code::out_of_memory, "an arena of ", size_bytes,
               " bytes is over the limit of ", kMaxBytes - 2 * kPageBytes);
  const std::uint64_t whole =
      (std::max<std::uint64_t>(size_bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes + kPageBytes;
  check_limits(whole);
  Fd file{memfd_create("troupe-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  TROUPE_CHECK_ERRNO(file, Code::environment, "cannot make an anonymous file for an arena");
  TROUPE_CHECK_ERRNO(ftruncate(file.get(), static_cast<off_t>(whole)) == 0, Code::out_of_memory,
                     "cannot make an arena of ", whole, " bytes");
  const int fd = file.get();
  std::byte* base = map_shared(fd, whole);
  std::shared_ptr<Arena> arena{new Arena{id, file.release(), base, whole, /*creator=*/true}};
  // Between the mapping and its first page: the kernel keeps the binding with the file, and all pages follow it.
  if (binding != nullptr) binding->bind(base, whole);
  // ftruncate alone is not enough: every page must exist now, or touching one later could end the process with SIGBUS.
  int refused;
  while ((refused = posix_fallocate(fd, 0, static_cast<off_t>(whole))) == EINTR) {
  }
  errno = refused;
  TROUPE_CHECK_ERRNO(refused == 0, Code::out_of_memory, "cannot reserve ", whole, " bytes for an arena");
  // Sealed before a peer can open it: if a file shrinks under a mapping, a process that touches it ends by SIGBUS.
  TROUPE_CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, kSeals) == 0, Code::environment, "cannot seal an arena");
  Directory& page = directory(base);
  page.magic = kPageMagic;
  page.size_bytes = whole;
  page.used_bytes = kPageBytes;
  page.id = id;
  page.nonce = random_nonce();
  return arena;
}

std::shared_ptr<Arena> Arena::open(const ArenaTicket& ticket) {
  check_ticket(ticket);
  const std::string path = text("/proc/", ticket.pid, "/fd/", ticket.fd);
  // Non-blocking, because the number may meanwhile refer to a pipe.
  Fd file{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  TROUPE_CHECK_ERRNO(file, Code::environment, "cannot open the arena of process ", ticket.pid, " at ", path,
                     " (it must live, belong to the same user, and allow ptrace)");
  check_file(file.get(), ticket);
  std::byte* base = map_shared(file.get(), ticket.size_bytes);
  std::shared_ptr<Arena> arena{new Arena{ticket.id, file.release(), base, ticket.size_bytes, /*creator=*/false}};
  const Directory& page = directory(base);
  TROUPE_CHECK(page.magic == kPageMagic && page.nonce == ticket.nonce && page.size_bytes == ticket.size_bytes &&
                   page.id == ticket.id && ticket.id.value != 0,
               Code::corrupt, path, " is another arena than the ticket's: id ", page.id.value, " for ", ticket.id.value,
               ", ", page.size_bytes, " bytes for ", ticket.size_bytes, ", and nonces that ",
               page.nonce == ticket.nonce ? "agree" : "differ");
  return arena;
}

Arena::~Arena() {
  munmap(base_, size_bytes_);
  close(fd_);
}

ArenaTicket Arena::ticket() const {
  TROUPE_CHECK(creator_, Code::invalid, "only the process that made arena ", id_.value, " can name it to others");
  ArenaTicket ticket;
  const std::string host = boot_id();
  TROUPE_CHECK(host.size() < ticket.boot_id.size(), Code::environment, "the boot id ", host, " of this host has ",
               host.size(), " characters; an arena's ticket has room for ", ticket.boot_id.size() - 1);
  std::copy(host.begin(), host.end(), ticket.boot_id.begin());
  ticket.pid_namespace = pid_namespace();
  ticket.size_bytes = size_bytes_;
  ticket.nonce = directory(base_).nonce;
  ticket.pid = getpid();
  ticket.fd = fd_;
  ticket.id = id_;
  return ticket;
}

Memory Arena::allocate(std::uint64_t size_bytes, std::uint64_t alignment) {
  TROUPE_CHECK(creator_, Code::invalid, "only the process that made arena ", id_.value, " may allocate from it");
  TROUPE_CHECK(std::has_single_bit(alignment) && alignment <= kPageBytes, Code::invalid, "an alignment of ", alignment,
               " bytes: must be a power of two, at most ", kPageBytes);
  const std::uint64_t step = std::max<std::uint64_t>(alignment, 64);
  // The word is in the shared page, but only the creator changes it. Threads compete only for the offset: memory is
  // zero from the start and never returned, so no other access has to be ordered with this one (relaxed is enough).
  const std::atomic_ref<std::uint64_t> used{directory(base_).used_bytes};
  std::uint64_t before = used.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint64_t offset = (before + step - 1) / step * step;
    const std::uint64_t left = offset < size_bytes_ ? size_bytes_ - offset : 0;
    TROUPE_CHECK(size_bytes <= left, Code::out_of_memory, "arena ", id_.value, " is full: ", size_bytes,
                 " bytes are wanted, ", left, " of ", size_bytes_ - kPageBytes, " are left");
    if (used.compare_exchange_weak(before, offset + size_bytes, std::memory_order_relaxed))
      return {id_, offset, size_bytes};
  }
}

TimelineId Arena::make_timelines(std::size_t count) {
  const Memory words = allocate(count * sizeof(TimelineWord), alignof(TimelineWord));
  const auto first = static_cast<std::uint32_t>(words.offset / sizeof(TimelineWord));
  for (std::size_t i = 0; i < count; ++i) word_at(base_, first + i).mark = TimelineWord::kMark;
  return {id_, first};
}

/// The bytes of a tensor could equal the mark by chance, so the other fields are checked for possible values too.
bool Arena::has_timeline(TimelineId id) const noexcept {
  const std::uint64_t offset = std::uint64_t{id.index} * sizeof(TimelineWord);
  if (id.arena != id_ || offset < kPageBytes || offset > size_bytes_ - sizeof(TimelineWord)) return false;
  const TimelineWord& word = word_at(base_, id.index);
  return word.mark == TimelineWord::kMark && word.poisoned.load(std::memory_order_relaxed) <= 2 &&
         word.poison_code <= static_cast<std::uint16_t>(Code::corrupt);
}

void Arena::publish(std::string_view name, Memory part) {
  TROUPE_CHECK(creator_, Code::invalid, "only the process that made arena ", id_.value, " may name its parts");
  const bool elsewhere = part.arena.value != 0 && part.arena != id_ && creator_of(part.arena) == creator_of(id_);
  TROUPE_CHECK(elsewhere || (part.arena == id_ && part.offset >= kPageBytes && part.offset <= size_bytes_ &&
                             part.size_bytes <= size_bytes_ - part.offset),
               Code::invalid, "'", name, "' does not lie in arena ", id_.value, ": ", part.size_bytes, " bytes at ",
               part.offset, " of arena ", part.arena.value);
  add_entry(base_, name, Kind::memory, part);
}

void Arena::publish(std::string_view name, TimelineId line) {
  TROUPE_CHECK(creator_, Code::invalid, "only the process that made arena ", id_.value, " may name its lines");
  const std::uint64_t offset = std::uint64_t{line.index} * sizeof(TimelineWord);
  TROUPE_CHECK(line.arena == id_ && offset >= kPageBytes && offset < size_bytes_, Code::invalid, "'", name,
               "' does not lie in arena ", id_.value, ": line ", line.index, " of arena ", line.arena.value);
  add_entry(base_, name, Kind::line, {id_, offset, sizeof(TimelineWord)});
}

std::optional<Memory> Arena::find(std::string_view name) const {
  const auto entry = find_entry(*this, name, Kind::memory);
  if (!entry) return std::nullopt;
  return Memory{entry->arena, entry->offset, entry->size_bytes};
}

std::optional<TimelineId> Arena::find_timeline(std::string_view name) const {
  const auto entry = find_entry(*this, name, Kind::line);
  if (!entry) return std::nullopt;
  TROUPE_CHECK(entry->offset % sizeof(TimelineWord) == 0 && entry->size_bytes == sizeof(TimelineWord), Code::corrupt,
               "'", name, "' in arena ", id_.value, " is not a timeline: ", entry->size_bytes, " bytes at ",
               entry->offset);
  return TimelineId{id_, static_cast<std::uint32_t>(entry->offset / sizeof(TimelineWord))};
}

}  // namespace troupe
