#include <arpa/inet.h>
#include <dirent.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "runtime/base/error.hpp"
#include "transports/ucx/detail/admission.hpp"

namespace troupe {
namespace {

// The offset at which a filter finds the source address: a socket's filter sees a packet from its TCP header on, and
// reaches the IP header by this special offset.
constexpr std::uint32_t kSource4 = static_cast<std::uint32_t>(SKF_NET_OFF) + 12;
constexpr std::uint32_t kSource6 = static_cast<std::uint32_t>(SKF_NET_OFF) + 8;
constexpr std::uint32_t kTakeWhole = 0xffffffff;
constexpr std::uint32_t kDrop = 0;

using Program = std::vector<sock_filter>;

sock_filter load(std::uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter answer(std::uint32_t bytes) { return BPF_STMT(BPF_RET | BPF_K, bytes); }
/// Compares the loaded value, and skips this number of instructions.
sock_filter compare(std::uint16_t how, std::uint32_t with, std::uint8_t if_true, std::uint8_t if_false) {
  return BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | how | BPF_K), with, if_true, if_false);
}

/// Finds the loaded address among `ranges` by binary search, since the filter runs for every packet of a peer.
void find(Program& to, std::span<const Admission::Range> ranges) {
  if (ranges.size() == 1) {
    to.push_back(compare(BPF_JGE, ranges[0].first, 0, 1));
    to.push_back(compare(BPF_JGT, ranges[0].last, 0, 1));
    to.push_back(answer(kDrop));
    to.push_back(answer(kTakeWhole));
    return;
  }
  const std::size_t half = ranges.size() / 2;
  to.push_back(compare(BPF_JGE, ranges[half].first, 0, 1));
  const std::size_t jump = to.size();
  to.push_back({});  // to the upper half, which may be too far for the jump of a comparison
  find(to, ranges.first(half));
  to[jump] = BPF_STMT(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(to.size() - jump - 1));
  find(to, ranges.subspan(half));
}

std::uint32_t mask_of(unsigned bits, unsigned word) {
  const unsigned left = bits > 32 * word ? std::min(bits - 32 * word, 32u) : 0;
  return left == 0 ? 0 : ~std::uint32_t{0} << (32 - left);
}

Admission::Prefix cut(Admission::Prefix prefix, unsigned bits) {
  prefix.bits = std::min(prefix.bits, bits);
  for (unsigned word = 0; word < 4; ++word) prefix.words[word] &= mask_of(prefix.bits, word);
  return prefix;
}

void take_if_under(Program& to, const Admission::Prefix& prefix) {
  const unsigned words = (prefix.bits + 31) / 32;
  for (unsigned word = 0; word < words; ++word) {
    const auto left = static_cast<std::uint8_t>(3 * (words - word - 1) + 1);  // instructions until the next prefix
    to.push_back(load(kSource6 + 4 * word));
    to.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask_of(prefix.bits, word)));
    to.push_back(compare(BPF_JEQ, prefix.words[word], 0, left));
  }
  to.push_back(answer(kTakeWhole));
}

using Ipv6Words = std::array<std::uint32_t, 4>;

Ipv6Words words_of(const in6_addr& address) {
  Ipv6Words words;
  std::memcpy(words.data(), &address, sizeof words);
  for (std::uint32_t& word : words) word = ntohl(word);
  return words;
}

/// The IPv4 address of a packet over an IPv6 socket.
std::optional<std::uint32_t> mapped(const in6_addr& address) {
  if (!IN6_IS_ADDR_V4MAPPED(&address)) return std::nullopt;
  return words_of(address)[3];
}

bool is_loopback(std::uint32_t address) { return address >> 24 == 127; }

/// Descriptors of this process, ascending.
std::vector<int> open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder{::opendir("/proc/self/fd"), ::closedir};
  TROUPE_CHECK_ERRNO(folder != nullptr, Code::environment,
                     "cannot list this process's open files, among which are the TCP sockets of UCX that are to be "
                     "closed to strangers; is /proc mounted, and is the limit of open files high enough (ulimit -n)?");
  std::vector<int> found;
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec == std::errc{} && fd != ::dirfd(folder.get()))
      found.push_back(fd);
  }
  std::sort(found.begin(), found.end());
  return found;
}

int option(int fd, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : 0;
}

/// The kernel's number of a socket, which unlike a descriptor is never reused.
std::uint64_t cookie(int fd) {
  std::uint64_t value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &value, &size) == 0 ? value : 0;
}

/// The port of a TCP socket; 0 for anything else.
std::uint16_t tcp_port(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  if ((name.ss_family != AF_INET && name.ss_family != AF_INET6) || option(fd, SO_PROTOCOL) != IPPROTO_TCP) return 0;
  return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);  // the same offset in both families
}

/// Whether a worker's address contains the port, as UCX writes it.
bool names(std::span<const std::byte> address, std::uint16_t port) {
  const std::uint16_t wire = htons(port);
  std::array<std::byte, sizeof wire> bytes;
  std::memcpy(bytes.data(), &wire, sizeof wire);
  return std::search(address.begin(), address.end(), bytes.begin(), bytes.end()) != address.end();
}

}  // namespace

Admission::Admission(const std::vector<ProcessLocation>& hosts, Peer self) {
  TROUPE_CHECK(self.value < hosts.size(), Code::invalid, "ucx: peer ", self.value, " is this process, and there are ",
               hosts.size(), " hosts");
  for (std::size_t peer = 0; peer < hosts.size(); ++peer) {
    if (peer == self.value) continue;
    for (const std::string& address : hosts[peer].addresses) {
      TROUPE_CHECK(add(address, hosts[peer].node == hosts[self.value].node), Code::environment, "peer ", peer,
                   " says that its connections come from '", address, "', which is not an IP address");
    }
  }
  join_neighbours();
}

/// False if the text is not an address.
bool Admission::add(std::string address, bool same_node) {
  address = address.substr(0, address.find('%'));  // without the interface of a link-local address
  in_addr four{};
  in6_addr six{};
  std::optional<std::uint32_t> short_form;
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) {
    short_form = ntohl(four.s_addr);
  } else {
    if (::inet_pton(AF_INET6, address.c_str(), &six) != 1) return false;
    short_form = mapped(six);
  }
  if (short_form) {
    if (same_node || !is_loopback(*short_form)) ranges_.push_back({*short_form, *short_form});
  } else if (same_node || !IN6_IS_ADDR_LOOPBACK(&six)) {
    prefixes_.push_back({words_of(six), 128});
  }
  return true;
}

void Admission::join_neighbours() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  const auto join = [&](std::uint32_t farthest) {
    std::vector<Range> joined;
    for (const Range& range : ranges_) {
      if (!joined.empty() && (range.first <= joined.back().last || range.first - joined.back().last <= farthest)) {
        joined.back().last = std::max(joined.back().last, range.last);
      } else {
        joined.push_back(range);
      }
    }
    ranges_ = std::move(joined);
  };
  join(1);
  for (std::uint32_t farthest = 2; ranges_.size() > kMostRanges; farthest *= 2) join(farthest);
  for (unsigned bits = 128;; bits -= 16) {
    for (Prefix& prefix : prefixes_) prefix = cut(prefix, bits);
    std::sort(prefixes_.begin(), prefixes_.end());
    prefixes_.erase(std::unique(prefixes_.begin(), prefixes_.end()), prefixes_.end());
    if (prefixes_.size() <= kMostPrefixes) break;
  }
}

bool Admission::admits(const sockaddr_storage& from) const {
  const auto in_range = [&](std::uint32_t address) {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const Range& range) { return range.first <= address && address <= range.last; });
  };
  if (from.ss_family == AF_INET) return in_range(ntohl(reinterpret_cast<const sockaddr_in&>(from).sin_addr.s_addr));
  const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  if (const auto four = mapped(address)) return in_range(*four);
  const Prefix whole{words_of(address), 128};
  return std::any_of(prefixes_.begin(), prefixes_.end(),
                     [&](const Prefix& prefix) { return cut(whole, prefix.bits) == prefix; });
}

std::vector<sock_filter> Admission::program(int domain) const {
  Program program;
  if (domain == AF_INET && !ranges_.empty()) {
    program.push_back(load(kSource4));
    find(program, ranges_);
    return program;
  }
  if (domain == AF_INET6) {
    for (const Prefix& prefix : prefixes_) take_if_under(program, prefix);
  }
  program.push_back(answer(kDrop));
  return program;
}

ListenerGuard::ListenerGuard(const std::vector<ProcessLocation>& hosts, Peer self) {
  if (hosts.empty()) return;
  admission_.emplace(hosts, self);
  for (const int fd : open_descriptors()) {
    if (option(fd, SO_ACCEPTCONN) != 0) before_.push_back(cookie(fd));
  }
  std::sort(before_.begin(), before_.end());
}

std::size_t ListenerGuard::close_to_strangers(std::span<const std::byte> worker_address) {
  if (!admission_) return 0;
  for (const int fd : open_descriptors()) {
    if (option(fd, SO_ACCEPTCONN) == 0 || std::binary_search(before_.begin(), before_.end(), cookie(fd))) continue;
    const std::uint16_t port = tcp_port(fd);
    if (port == 0 || !names(worker_address, port)) continue;  // another thread's socket
    Program program = admission_->program(option(fd, SO_DOMAIN));
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    TROUPE_CHECK_ERRNO(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0, Code::environment,
                       "cannot close UCX's TCP port ", port, " to strangers: the kernel refuses a filter of ",
                       program.size(), " instructions (see net.core.optmem_max)");
    const int on = 1;
    TROUPE_CHECK_ERRNO(::setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on) == 0, Code::environment,
                       "cannot lock the filter of UCX's TCP port ", port);
    ports_.push_back(port);
    // Connections in the queue came before the filter; no peer knows the port yet.
    for (int early; (early = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) ::close(early);
  }
  end_early_connections();
  return ports_.size();
}

void ListenerGuard::end_early_connections() const {
  if (ports_.empty()) return;
  for (const int fd : open_descriptors()) {
    const std::uint16_t port = tcp_port(fd);
    if (port == 0 || std::find(ports_.begin(), ports_.end(), port) == ports_.end()) continue;
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || admission_->admits(peer)) continue;
    // Resets the connection and drops received data, which shutdown() would leave to UCX. The descriptor belongs to
    // UCX, which notices the end and closes it.
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    ::connect(fd, &none, sizeof none);
  }
}

}  // namespace troupe
