#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/compute/library_stream.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/nccl/nccl_api.hpp"
#include "transports/nccl/nccl_communicator.hpp"

namespace troupe::nccl {

/// One call of NCCL within a group of calls.
struct Call {
  enum class Kind : std::uint32_t { all_reduce, reduce, broadcast, all_gather, send, recv };
  Kind kind;
  std::uint32_t rank = 0;  // the root, or the peer
  const void* from = nullptr;
  void* to = nullptr;
  std::uint64_t count = 0;
  Type type = Type::f32;
  std::uint32_t reserved = 0;
};
static_assert(std::has_unique_object_representations_v<Call>);  // recorded work is recognized by its bytes

/// Throws Error{environment} with what to do.
Library open_library(const std::string& name);

/// This rank's end of a group: NCCL's communicator, and the thread that watches it. Threads: enqueue() and connect()
/// have one caller at a time, abort() any.
class Link final : public LibraryCalls {
 public:
  Link(AddressSpace& space, const LibraryStream& stream, const NcclGroup& group, const NcclOptions& options);
  /// Waits until NCCL has left the device, but no longer than call_deadline.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void connect(Blocking& blocking, Deadline deadline);
  /// `what`: the calls of one group.
  void enqueue(void* stream, std::span<const std::byte> what) override;
  /// Tells two links apart whose calls have the same bytes.
  std::uint64_t number() const noexcept { return number_; }
  void abort(const Status& why) noexcept;
  /// Whether the stream has done all of that many calls.
  bool has_done(std::uint64_t calls) const noexcept { return members_[rank_].progress->value() >= 2 * calls; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// A peer's lines, where they are mapped.
  struct Member {
    Timeline* progress = nullptr;
    Timeline* ended = nullptr;
    Rank name;
  };
  /// Told by the thread when NCCL's communicator is gone, and its own: the link may be gone by then.
  struct Left {
    std::mutex mutex;  // guards what follows
    std::condition_variable news;
    bool is_over = false;
  };
  void end() noexcept;
  Result issue(const Call& call, StreamHandle stream) const;
  Result poll_until_done(Lock& lock, Deadline deadline);
  void check(Result result, const char* what) const;
  Status status_of(Result result, const char* what) const;
  std::string late_ranks() const;
  void run();
  Status look(Lock& lock);
  Status overdue();

  const Library library_;
  const std::uint64_t number_;
  const std::uint32_t rank_;
  const std::chrono::milliseconds deadline_;
  std::vector<Member> members_;
  std::uint64_t seen_ = 0;  // of the own progress, by the thread
  Clock::time_point since_;
  mutable std::mutex mutex_;  // guards what follows; held for calls of NCCL, none of which waits
  std::condition_variable news_;
  Comm comm_ = nullptr;
  bool is_connected_ = false;
  bool ends_ = false;
  Status why_;
  const std::shared_ptr<Left> left_ = std::make_shared<Left>();
  std::thread thread_;
};

}  // namespace troupe::nccl
