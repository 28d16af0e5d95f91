// Device memory of other processes. A handle says which file of which process the memory lies in.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/cuda_host/entry.hpp"

namespace troupe::cuda {
namespace {

using namespace host;

constexpr std::uint64_t kMark = 0x73746e64696e6970;

struct Ticket {
  std::uint64_t mark;
  std::int64_t process;
  std::int64_t file;    // its descriptor there
  std::uint64_t inode;  // tells the file from one that has the descriptor later
  std::uint64_t size_bytes;
};
static_assert(sizeof(Ticket) <= sizeof(IpcMemHandle));

/// The descriptor here; -1: the memory is gone.
int open_file(const Ticket& ticket) {
  const std::string path = "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat about {};
  if (file >= 0 && fstat(file, &about) == 0 && about.st_ino == ticket.inode) return file;
  if (file >= 0) close(file);
  return -1;
}

}  // namespace

TROUPE_EXPORT Result cuIpcGetMemHandle(IpcMemHandle* handle, DevicePointer pointer) {
  TROUPE_ENTER(cuIpcGetMemHandle, context);
  const AllocationPtr found = entry.all().memory.find(pointer);
  if (found == nullptr || found->freed) {
    reports().add("use after free", entry.place()->text() + " shares memory that is not there" +
                                        (found == nullptr ? "" : ": " + found->text()));
    return Result::invalid_value;
  }
  struct stat about {};
  if (found->file < 0 || found->imported || fstat(found->file, &about) != 0) return Result::invalid_value;
  const Ticket ticket{kMark, getpid(), found->file, about.st_ino, found->range.size_bytes};
  *handle = {};
  std::memcpy(handle, &ticket, sizeof ticket);
  return Result::success;
}

TROUPE_EXPORT Result cuIpcOpenMemHandle_v2(DevicePointer* pointer, IpcMemHandle handle, unsigned) {
  TROUPE_ENTER(cuIpcOpenMemHandle_v2, context);
  Ticket ticket{};
  std::memcpy(&ticket, &handle, sizeof ticket);
  if (ticket.mark != kMark) return Result::invalid_value;
  const PlacePtr place = entry.place();
  if (ticket.process == getpid()) {
    reports().add("own handle", place->text() + " opens memory of its own process, which CUDA refuses");
    return Result::invalid_context;
  }
  const int file = open_file(ticket);
  if (file < 0) {
    reports().add("handle of freed memory", place->text() + " opens memory that process " +
                                                std::to_string(ticket.process) +
                                                " has freed, or that process has ended");
    return Result::invalid_handle;
  }
  const AllocationPtr made = entry.all().memory.import(current_device, file, ticket.size_bytes, place);
  if (made == nullptr) {
    close(file);
    return Result::map_failed;
  }
  *pointer = made->range.begin;
  return Result::success;
}

TROUPE_EXPORT Result cuIpcCloseMemHandle(DevicePointer pointer) {
  TROUPE_ENTER(cuIpcCloseMemHandle, driver);
  Process& all = entry.all();
  const PlacePtr place = entry.place();
  const AllocationPtr found = all.memory.find(pointer);
  if (found == nullptr || !found->imported || found->range.begin != pointer) return Result::invalid_value;
  if (found->freed) {
    reports().add("double free", place->text() + " closes " + found->text());
    return Result::invalid_value;
  }
  found->freeing = place;
  all.races.frees(found->range, all.cpu.tick(kCpu), all.cpu, place);
  all.memory.release(found);
  return Result::success;
}

}  // namespace troupe::cuda
