#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "runtime/error.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe {
namespace {

constexpr std::size_t kMaxSecretBytes = 4096;

/// The variable's value; Error{environment} when it is not set.
std::string required(const char* name) {
  const char* value = std::getenv(name);
  TROUPE_CHECK(value != nullptr, Code::environment, "RANK is set but ", name,
               " is not: a launcher must set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT together");
  return value;
}

template <class T>
T number(const char* name, std::uint64_t least, std::uint64_t most) {
  const std::string value = required(name);
  std::uint64_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  TROUPE_CHECK(error == std::errc{} && end == value.data() + value.size() && parsed >= least && parsed <= most,
               Code::environment, name, "='", value, "' is not a number from ", least, " to ", most);
  return static_cast<T>(parsed);
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

}  // namespace

std::optional<LaunchPlace> launch_place_from_environment() {
  if (std::getenv("RANK") == nullptr) return std::nullopt;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  LaunchPlace place;
  place.world_size = number<std::uint32_t>("WORLD_SIZE", 1, kMost);
  place.rank = number<std::uint32_t>("RANK", 0, place.world_size - 1);
  place.local_rank = number<std::uint32_t>("LOCAL_RANK", 0, place.world_size - 1);
  place.master_address = required("MASTER_ADDR");
  TROUPE_CHECK(!place.master_address.empty(), Code::environment,
               "MASTER_ADDR is empty; it must name the host of rank 0");
  place.master_port = number<std::uint16_t>("MASTER_PORT", 1, 65535);
  place.found_in = "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT";
  if (const char* file = std::getenv("TROUPE_SECRET_FILE")) {
    place.secret = read_secret(file);
    place.found_in += ", TROUPE_SECRET_FILE";
  }
  if (place.rank == 0 && std::getenv("TROUPE_LISTEN_FD") != nullptr) {
    place.listen_fd = number<int>("TROUPE_LISTEN_FD", 0, std::numeric_limits<int>::max());
    place.found_in += ", TROUPE_LISTEN_FD";
  }
  return place;
}

}  // namespace troupe
