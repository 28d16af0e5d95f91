#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "transports/bootstrap/bootstrap.hpp"
#include "transports/bootstrap/detail/launcher.hpp"
#include "transports/bootstrap/detail/pmix.hpp"

namespace troupe {
namespace {

constexpr std::size_t kMaxSecretBytes = 4096;
constexpr std::uint32_t kMostRanks = 65536;  // a larger number is a mistake; its tables would take gigabytes

/// The names of a launcher's variables for a process's place.
struct Names {
  const char* rank;
  const char* world_size;
  const char* local_rank;
};
constexpr Names kPlainNames{"RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Names kOpenMpiNames{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"};

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

/// The variable's value; throws Error{environment} if it is not set.
std::string required(const Names& names, const char* name) {
  const char* value = std::getenv(name);
  TROUPE_CHECK(value != nullptr, Code::environment, names.rank, " is set but ", name, " is not: a launcher must set ",
               names.rank, ", ", names.world_size, ", ", names.local_rank, ", MASTER_ADDR and MASTER_PORT together");
  return value;
}

template <class T>
T number(const Names& names, const char* name, std::uint64_t least, std::uint64_t most) {
  const std::string value = required(names, name);
  const auto parsed = number_in<std::uint64_t>(value);
  TROUPE_CHECK(parsed && *parsed >= least && *parsed <= most, Code::environment, name, "='", value,
               "' is not a number from ", least, " to ", most);
  return static_cast<T>(*parsed);
}

std::string read_secret(const std::string& file) {
  struct stat about {};
  TROUPE_CHECK_ERRNO(stat(file.c_str(), &about) == 0, Code::environment, "cannot look at TROUPE_SECRET_FILE=", file);
  TROUPE_CHECK((about.st_mode & (S_IWGRP | S_IRWXO)) == 0, Code::environment, "TROUPE_SECRET_FILE=", file,
               " can be read by every user or written by a group; whoever knows the secret can join: chmod 600 ", file);
  std::ifstream in{file, std::ios::binary};
  TROUPE_CHECK_ERRNO(in.is_open(), Code::environment, "cannot read TROUPE_SECRET_FILE=", file);
  std::string secret(kMaxSecretBytes + 1, '\0');
  in.read(secret.data(), static_cast<std::streamsize>(secret.size()));
  secret.resize(static_cast<std::size_t>(in.gcount()));
  TROUPE_CHECK(secret.size() <= kMaxSecretBytes, Code::environment, "TROUPE_SECRET_FILE=", file, " is longer than ",
               kMaxSecretBytes, " bytes");
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  TROUPE_CHECK(!secret.empty(), Code::environment, "TROUPE_SECRET_FILE=", file, " is empty");
  return secret;
}

/// The first line of stdin, through which a launcher on another machine sends the secret: nobody there can read it.
/// Reads no byte after that line.
std::string secret_from_stdin(Deadline deadline) {
  constexpr const char* kCure = "the remote shell must pass stdin on (`ssh -n` does not)";
  std::string secret;
  for (;;) {
    pollfd entry{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
    const int ready = ::poll(&entry, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    TROUPE_CHECK(ready > 0, Code::timeout, "TROUPE_SECRET_STDIN is set, but no secret came on stdin; ", kCure);
    char next = 0;
    const ssize_t got = ::read(STDIN_FILENO, &next, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    TROUPE_CHECK(got > 0, Code::environment, "TROUPE_SECRET_STDIN is set, but stdin ended before the secret did; ",
                 kCure);
    if (next == '\n') break;
    secret += next;
    TROUPE_CHECK(secret.size() <= kMaxSecretBytes, Code::environment, "the secret on stdin is longer than ",
                 kMaxSecretBytes, " bytes");
  }
  TROUPE_CHECK(!secret.empty(), Code::environment, "TROUPE_SECRET_STDIN is set, but the secret on stdin is empty");
  return secret;
}

/// The job's secret, if the launcher has given a file with one.
std::string given_secret() {
  const char* file = std::getenv("TROUPE_SECRET_FILE");
  return file != nullptr ? read_secret(file) : std::string{};
}

LaunchPlace place_from(const Names& names, Deadline deadline) {
  LaunchPlace place;
  place.world_size = number<std::uint32_t>(names, names.world_size, 1, kMostRanks);
  place.rank = number<std::uint32_t>(names, names.rank, 0, place.world_size - 1);
  place.local_rank = number<std::uint32_t>(names, names.local_rank, 0, place.world_size - 1);
  place.master_address = required(names, "MASTER_ADDR");
  TROUPE_CHECK(!place.master_address.empty(), Code::environment,
               "MASTER_ADDR is empty; it must name the host of rank 0");
  place.master_port = number<std::uint16_t>(names, "MASTER_PORT", 1, 65535);
  place.found_in = text(names.rank, ", ", names.world_size, ", ", names.local_rank, ", MASTER_ADDR, MASTER_PORT");
  place.launcher_on_stdin = is_set("TROUPE_SECRET_STDIN");
  place.secret = place.launcher_on_stdin ? secret_from_stdin(deadline) : given_secret();
  if (!place.secret.empty()) place.found_in += place.launcher_on_stdin ? ", stdin" : ", TROUPE_SECRET_FILE";
  if (place.rank == 0 && is_set("TROUPE_LISTEN_FD")) {
    place.listen_fd = number<int>(names, "TROUPE_LISTEN_FD", 0, std::numeric_limits<int>::max());
    place.found_in += ", TROUPE_LISTEN_FD";
  }
  return place;
}

}  // namespace

std::optional<LaunchPlace> launch_place_from_environment(Clock::duration patience) {
  const Deadline deadline = Deadline::after(patience);
  switch (bootstrap::find_launcher()) {
    case bootstrap::Launcher::plain: return place_from(kPlainNames, deadline);
    case bootstrap::Launcher::open_mpi: return place_from(kOpenMpiNames, deadline);
    case bootstrap::Launcher::pmix: return bootstrap::place_from_pmix(given_secret(), deadline);
    case bootstrap::Launcher::none: break;
  }
  return std::nullopt;
}

}  // namespace troupe
