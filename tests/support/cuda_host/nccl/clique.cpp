#include "tests/support/cuda_host/nccl/clique.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::nccl::host {
namespace {

constexpr std::uint64_t kMark = 0x73746e646e63636c;

struct Ticket {
  std::uint64_t mark;
  std::int64_t process;
  std::int64_t file;    // its descriptor there, open until that process ends
  std::uint64_t inode;  // tells the file from one that has the descriptor later
};
static_assert(sizeof(Ticket) <= sizeof(UniqueId));

/// Files of cliques that this process has made, by inode.
struct Files {
  std::mutex mutex;
  std::map<std::uint64_t, int> open;
};
Files& files() {
  static auto& all = *std::make_unique<Files>().release();  // streams' threads use it until the process ends
  return all;
}

}  // namespace

bool make_clique(UniqueId& id) {
  const int file = memfd_create("nccl stand-in", MFD_CLOEXEC);
  struct stat about {};
  if (file < 0 || ftruncate(file, sizeof(Clique)) != 0 || fstat(file, &about) != 0) return false;
  const std::lock_guard lock{files().mutex};
  files().open[about.st_ino] = file;
  const Ticket ticket{kMark, getpid(), file, about.st_ino};
  id = {};
  std::memcpy(&id, &ticket, sizeof ticket);
  return true;
}

OpenClique open_clique(const UniqueId& id) {
  Ticket ticket{};
  std::memcpy(&ticket, &id, sizeof ticket);
  if (ticket.mark != kMark) return {};
  const std::string path = "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return {};
  struct stat about {};
  void* at = MAP_FAILED;
  if (fstat(file, &about) == 0 && about.st_ino == ticket.inode)
    at = mmap(nullptr, sizeof(Clique), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? OpenClique{} : OpenClique{static_cast<Clique*>(at), ticket.inode};
}

void close_clique(const OpenClique& open) {
  if (open.clique == nullptr) return;
  munmap(open.clique, sizeof(Clique));
  const std::lock_guard lock{files().mutex};
  const auto found = files().open.find(open.number);
  if (found == files().open.end()) return;
  close(found->second);
  files().open.erase(found);
}

}  // namespace troupe::nccl::host
