#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/exchange/communicator.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {
namespace nccl {
class Link;  // not public, nor are these
struct Call;
}  // namespace nccl

struct FoundNccl {
  std::uint32_t version = 0;  // NCCL's own number (22105: 2.21.5); 0: there is none that can be used
  std::string why;            // for people, with what to do; empty if there is one
};
/// Opens the library, which stays open. Ranks of a group need the same version.
FoundNccl find_nccl(const std::string& library = "libnccl.so.2");

/// What the ranks of a group find each other by: the first rank makes it and sends it to the others over the control
/// lane. Plain data, for one group once.
struct NcclId {
  std::array<std::byte, 128> bytes{};
};
/// Throws Error{environment} with what to do where there is no NCCL, or one older than 2.18.
NcclId make_nccl_id(const std::string& library = "libnccl.so.2");

/// What a rank shows to those ranks of the group that have mapped its arena.
struct NcclMember {
  TimelineId progress;  // raised when its stream begins a call, and when it is done
  TimelineId ended;     // poisoned with the reason for which its part ended
};

/// A group of ranks on GPUs; the same at all of them, except `rank`, memory and lines. They may be some of a job's
/// ranks.
struct NcclGroup {
  Rank rank;                        // this rank
  NcclId id;                        // not read if there is one rank
  std::vector<NcclMember> members;  // by rank; in arena 0: not mapped here. The own one has lines
  std::vector<Rank> names{};        // the ranks' numbers in the job; empty: those of the group
  std::vector<Stripe> stripes;      // each rank has at most one range of each bucket
  Memory parameters;                // [group] f32, this rank's copy, in device memory as the gradients are
  Memory half{};                    // [group] bf16 or f16; empty: there is no such image
  DType copy_type = DType::bf16;    // of it
  Memory staging;                   // nccl_staging_bytes() of device memory
  std::vector<Bucket> buckets{};    // all that will be exchanged, by index
  /// Each owner gets the other ranks' numbers as they are and adds them up in rank order, so that sums have the same
  /// bits in every run. Otherwise NCCL adds up in an order of its own.
  bool rank_ordered = true;
  /// What plain operations move at once of each rank, in bytes, a multiple of 64; the same at all ranks.
  std::uint64_t room = std::uint64_t{1} << 18;
};
struct NcclOptions {
  std::chrono::milliseconds call_deadline{30000};  // for a call on the stream, from its beginning to its end
  std::string library = "libnccl.so.2";            // opened at run time
};

/// The size of `group.staging`; reads rank, the number of members, stripes, buckets and room.
std::uint64_t nccl_staging_bytes(const NcclGroup& group);

/// Collectives between GPUs by NCCL, on the device's stream, also in recorded steps. The parts of the synchronous step
/// go to the stream's lane beside: a bucket's exchange begins when the work enqueued before it is done, and runs beside
/// what is enqueued after it. Every call of NCCL carries the
/// number of the call, by which a stream sees whether all ranks made the same call with streams that had not failed. A
/// thread watches for NCCL's errors, for peers that have ended, and for calls that take too long; each ends all waits.
/// Programs in which its calls were recorded end before it.
class NcclCommunicator final : public Communicator {
 public:
  /// Begins to connect, without waiting. `stream` is any stream of the device; `space` outlives this object. Throws
  /// Error{unsupported} for a device on which NCCL does not work, Error{environment} as make_nccl_id, Error{invalid} if
  /// the group's parts do not match.
  NcclCommunicator(AddressSpace& space, Stream& stream, NcclGroup group, NcclOptions options = {});
  /// Ends calls that are under way, as abort() does, and waits until NCCL has left the device.
  ~NcclCommunicator() override;

  /// Waits until all ranks have connected. Before the first other call, except abort. Throws Error{timeout} when the
  /// deadline passes, Error{peer_lost}, Error{environment} and others as NCCL reports them.
  void connect(Blocking& blocking, Deadline deadline);

  CommunicatorTraits traits() const noexcept override;
  Rank rank() const noexcept override { return group_.rank; }
  std::uint32_t ranks() const noexcept override { return static_cast<std::uint32_t>(group_.members.size()); }
  // Of any size and in any memory of the device's space, in rounds of `room`.
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override;
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override;
  void barrier(Stream& stream) override;
  void all_reduce(Stream& stream, Memory data) override;
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  Point gather_gradients(Stream& stream, const BucketWork& work) override;
  Point agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  /// Returns at once; a peer that is dead does not matter.
  void abort(const Status& why) noexcept override;

 private:
  enum class Kind : std::uint64_t;
  struct Places;

  std::vector<Memory> own_parts(const Memory& of_bucket, const Bucket& bucket) const;
  const std::vector<Stripe>& owned(const Bucket& bucket) const;
  bool is_device(const Memory& memory) const;
  template <class Work>
  Point beside(Stream& stream, Work&& work);
  void call(Stream& stream, Kind kind, std::uint64_t about, std::span<const std::uint64_t> sizes);
  template <class Round>
  void in_rounds(Stream& stream, std::span<const OwnedPart> parts, Round&& round);
  void reduce_round(Stream& stream, std::span<const Memory> pieces);
  void gather_round(Stream& stream, std::span<const Memory> pieces);
  void add_sums(Stream& stream, const BucketWork& work);
  void add_gradients(Stream& stream, const BucketWork& work, std::span<const Memory> parts, bool ordered);
  void total_up(Stream& stream, const BucketWork& work);
  void publish(Stream& stream, const Bucket& bucket);

  AddressSpace& space_;
  NcclGroup group_;
  const std::vector<std::vector<Stripe>> owned_;  // by bucket, then by rank: what it owns of the bucket
  std::unique_ptr<const Places> places_;          // in the staging memory
  std::unique_ptr<nccl::Link> link_;              // null: there is one rank
  std::uint64_t calls_ = 0;
  std::vector<nccl::Call> group_calls_;  // of the next call
  std::vector<Memory> contributions_;    // by rank; reused by every call
};

}  // namespace troupe
