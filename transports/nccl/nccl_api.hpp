#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/shared_library.hpp"

// What we use of NCCL (libnccl.so.2), declared here so that everything builds where it is not installed. Binary
// compatible with nccl.h; nccl_api_check.cpp proves that where nccl.h is found.
struct ncclComm;
struct CUstream_st;

namespace troupe::nccl {

using Comm = ncclComm*;
using StreamHandle = CUstream_st*;

#define TROUPE_VALUES "transports/nccl/nccl_values.def"
#include "runtime/base/declare_values.inc"

struct UniqueId {
  char bytes[128];
};
/// ncclConfig_t as of NCCL 2.18; later libraries accept it by its size and version.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;  // INT_MIN: the library's own choice
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// The only list of entry points. Library::load, the check against nccl.h and the stand-in are made from it.
#define TROUPE_NCCL_ENTRY_POINTS(X)                                                                                   \
  X(get_version, ncclGetVersion, Result, int* version)                                                                \
  X(get_unique_id, ncclGetUniqueId, Result, UniqueId* id)                                                             \
  X(comm_init_rank_config, ncclCommInitRankConfig, Result, Comm* comm, int ranks, UniqueId id, int rank,              \
    Config* config)                                                                                                   \
  X(comm_get_async_error, ncclCommGetAsyncError, Result, Comm comm, Result* error)                                    \
  X(comm_abort, ncclCommAbort, Result, Comm comm)                                                                     \
  X(get_error_string, ncclGetErrorString, const char*, Result error)                                                  \
  X(get_last_error, ncclGetLastError, const char*, Comm comm)                                                         \
  X(group_start, ncclGroupStart, Result, void)                                                                        \
  X(group_end, ncclGroupEnd, Result, void)                                                                            \
  X(all_reduce, ncclAllReduce, Result, const void* from, void* to, std::size_t count, Type type, Operator op,         \
    Comm comm, StreamHandle stream)                                                                                   \
  X(reduce, ncclReduce, Result, const void* from, void* to, std::size_t count, Type type, Operator op, int root,      \
    Comm comm, StreamHandle stream)                                                                                   \
  X(broadcast, ncclBroadcast, Result, const void* from, void* to, std::size_t count, Type type, int root, Comm comm,  \
    StreamHandle stream)                                                                                              \
  X(all_gather, ncclAllGather, Result, const void* from, void* to, std::size_t count, Type type, Comm comm,           \
    StreamHandle stream)                                                                                              \
  X(send, ncclSend, Result, const void* from, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream) \
  X(recv, ncclRecv, Result, void* to, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream)

/// NCCL's entry points. A value: copies call the same library, which stays loaded until the process ends.
struct Library {
  TROUPE_ENTRIES(TROUPE_NCCL_ENTRY_POINTS)
  /// Opens `library` and finds every entry point; nothing of it is called. Without a value: `why` says which library or
  /// which symbol is missing.
  static std::optional<Library> load(std::string& why, const char* library = "libnccl.so.2");
};

}  // namespace troupe::nccl
