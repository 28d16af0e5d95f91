#include "runtime/base/error.hpp"
#include "transports/nccl/nccl_communicator.hpp"

// In builds without the device for GPUs there is no stream that NCCL could work on, so nothing gets a communicator.
namespace troupe {
namespace {

constexpr const char* kNoNccl =
    "this build has no NCCL: configure it with -DTROUPE_WITH_GPU_DEVICE=ON and build it again";

}  // namespace

namespace nccl {
class Link {};
struct Call {};
}  // namespace nccl
struct NcclCommunicator::Places {};

FoundNccl find_nccl(const std::string&) { return {.why = kNoNccl}; }
NcclId make_nccl_id(const std::string&) { fail(Code::environment, kNoNccl); }
std::uint64_t nccl_staging_bytes(const NcclGroup&) { fail(Code::unsupported, kNoNccl); }

NcclCommunicator::NcclCommunicator(AddressSpace& space, Stream&, NcclGroup, NcclOptions) : space_(space) {
  fail(Code::unsupported, kNoNccl);
}
NcclCommunicator::~NcclCommunicator() = default;
void NcclCommunicator::connect(Blocking&, Deadline) {}
CommunicatorTraits NcclCommunicator::traits() const noexcept { return {}; }
void NcclCommunicator::reduce_scatter(Stream&, std::span<const OwnedPart>) {}
void NcclCommunicator::all_gather(Stream&, std::span<const OwnedPart>) {}
void NcclCommunicator::barrier(Stream&) {}
void NcclCommunicator::all_reduce(Stream&, Memory) {}
Point NcclCommunicator::reduce_update_gather(Stream&, const BucketWork&, const RuleStep&) { return {}; }
Point NcclCommunicator::gather_gradients(Stream&, const BucketWork&) { return {}; }
Point NcclCommunicator::agree(Stream&, const BucketWork&) { return {}; }
Point NcclCommunicator::update_gather(Stream&, const BucketWork&, const RuleStep&) { return {}; }
void NcclCommunicator::abort(const Status&) noexcept {}

}  // namespace troupe
