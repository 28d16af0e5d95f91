#pragma once

#include <cstdint>
#include <vector>

namespace troupe {

/// One contribution that a shard applied. A shard's records stand in the order of applying; those of one update follow
/// each other in the order in which they were added up. With the workers' data this is all that a bitwise replay of an
/// asynchronous run needs: what each worker computed follows from its clock and the versions it had read.
struct AppliedRecord {
  std::uint32_t sequence = 0;  // of the update at this shard, from 1: the version that it made
  std::uint32_t clock = 0;     // of the worker
  std::uint32_t base = 0;      // the version of this shard's parameters that the worker computed from
  std::uint16_t shard = 0;
  std::uint16_t worker = 0;
  friend bool operator==(const AppliedRecord&, const AppliedRecord&) = default;
};
static_assert(sizeof(AppliedRecord) == 16);

using UpdateLog = std::vector<AppliedRecord>;

}  // namespace troupe
