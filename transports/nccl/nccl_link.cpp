#include <atomic>
#include <cstdlib>
#include <cstring>

#include "runtime/base/thread.hpp"
#include "transports/nccl/detail/link.hpp"

namespace troupe::nccl {
namespace {

using std::chrono::milliseconds;

/// The first version whose communicators can be made and used without blocking, and with the Config that we give.
constexpr int kLeastVersion = 21800;
constexpr milliseconds kBetweenLooks{2}, kWhileIdle{20};
constexpr std::chrono::microseconds kBetweenPolls{20};

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Code code_of(Result result, bool is_connected) noexcept {
  switch (result) {
    case Result::remote_error: return Code::peer_lost;
    case Result::system_error: return is_connected ? Code::peer_lost : Code::environment;
    case Result::invalid_argument:
    case Result::invalid_usage: return Code::invalid;
    default: return Code::device_fault;
  }
}

}  // namespace

namespace {

/// Without a value if no NCCL can be used: then `found.why` says what to do.
std::optional<Library> find_library(const std::string& name, FoundNccl& found) {
  // Collectives' connections are made while the group connects, not in the middle of a step.
  (void)::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  // Ranks may record a step at different times: recording must need nothing of the peers.
  (void)::setenv("NCCL_GRAPH_REGISTER", "0", 0);
  std::string why;
  std::optional<Library> library = Library::load(why, name.c_str());
  int version = 0;
  if (!library) {
    found.why =
        text("there is no usable NCCL (", why, "): install NVIDIA's libnccl2, or add its folder to LD_LIBRARY_PATH");
  } else if (library->get_version(&version) != Result::success || version < kLeastVersion) {
    found.why =
        text(name, " is NCCL ", version / 10000, ".", version / 100 % 100, ", Troupe needs 2.18 at least: update it");
  } else {
    found.version = static_cast<std::uint32_t>(version);
    return library;
  }
  return std::nullopt;
}

}  // namespace

Library open_library(const std::string& name) {
  FoundNccl found;
  const std::optional<Library> library = find_library(name, found);
  TROUPE_CHECK(library.has_value(), Code::environment, found.why);
  return *library;
}

Link::Link(AddressSpace& space, const LibraryStream& stream, const NcclGroup& group, const NcclOptions& options)
    : library_(open_library(options.library)),
      number_(next_number()),
      rank_(group.rank.value),
      deadline_(options.call_deadline) {
  for (std::size_t r = 0; r < group.members.size(); ++r) {
    const NcclMember& member = group.members[r];
    members_.push_back({.name = group.names[r]});
    if (member.progress.arena.value == 0) continue;
    members_.back().progress = &space.timeline(member.progress);
    members_.back().ended = &space.timeline(member.ended);
  }
  TROUPE_CHECK(members_[rank_].ended != nullptr, Code::invalid, "this rank's lines must be in its arena");
  UniqueId id;
  std::memcpy(&id, group.id.bytes.data(), sizeof id);
  Config config;
  config.blocking = 0;
  stream.make_current();
  const Result begun =
      library_.comm_init_rank_config(&comm_, static_cast<int>(members_.size()), id, static_cast<int>(rank_), &config);
  if (begun != Result::success && begun != Result::in_progress) {
    const Status why = status_of(begun, "connecting");
    if (comm_ != nullptr) (void)library_.comm_abort(comm_);
    fail(why.code(), std::string{why.text()});
  }
  thread_ = start_thread("nccl-watch", [this] { run(); });
}

/// NCCL's own end may hang, as where a peer's host does not answer. Then its thread stays, which holds nothing of this
/// object any more.
Link::~Link() {
  end();
  Lock lock{left_->mutex};
  const bool has_left = left_->news.wait_for(lock, deadline_, [this] { return left_->is_over; });
  lock.unlock();
  has_left ? thread_.join() : thread_.detach();
}

// ---- Calls ----

Status Link::status_of(Result result, const char* what) const {
  const char* const last = comm_ == nullptr ? nullptr : library_.get_last_error(comm_);
  return {code_of(result, is_connected_),
          text("NCCL, ", what, ": ", library_.get_error_string(result), last == nullptr || *last == '\0' ? "" : ", ",
               last == nullptr ? "" : last, late_ranks())};
}

void Link::check(Result result, const char* what) const {
  if (result == Result::success) return;
  const Status why = status_of(result, what);
  fail(why.code(), std::string{why.text()});
}

/// Until NCCL has finished what it does in the background; in_progress: not by the deadline. Throws when this link
/// ends.
Result Link::poll_until_done(Lock& lock, Deadline deadline) {
  for (;;) {
    if (ends_) fail(why_.code(), std::string{why_.text()});
    Result state = Result::success;
    check(library_.comm_get_async_error(comm_, &state), "asking for errors");
    if (state != Result::in_progress || deadline.passed()) return state;
    news_.wait_for(lock, kBetweenPolls, [this] { return ends_; });
  }
}

void Link::connect(Blocking&, Deadline deadline) {
  Lock lock{mutex_};
  const Result state = poll_until_done(lock, deadline);
  TROUPE_CHECK(state != Result::in_progress, Code::timeout, "rank ", members_[rank_].name.value,
               " waited for NCCL to connect ", members_.size(), " ranks", late_ranks());
  check(state, "connecting");
  is_connected_ = true;
}

Result Link::issue(const Call& call, StreamHandle stream) const {
  const int rank = static_cast<int>(call.rank);
  const auto result = [&] {
    switch (call.kind) {
      case Call::Kind::all_reduce:
        return library_.all_reduce(call.from, call.to, call.count, call.type, Operator::sum, comm_, stream);
      case Call::Kind::reduce:
        return library_.reduce(call.from, call.to, call.count, call.type, Operator::sum, rank, comm_, stream);
      case Call::Kind::broadcast:
        return library_.broadcast(call.from, call.to, call.count, call.type, rank, comm_, stream);
      case Call::Kind::all_gather: return library_.all_gather(call.from, call.to, call.count, call.type, comm_, stream);
      case Call::Kind::send: return library_.send(call.from, call.count, call.type, rank, comm_, stream);
      case Call::Kind::recv: return library_.recv(call.to, call.count, call.type, rank, comm_, stream);
    }
    return Result::internal_error;
  }();
  return result == Result::in_progress ? Result::success : result;
}

/// What NCCL does not take ends this rank's part, as the peers wait for it.
void Link::enqueue(void* stream, std::span<const std::byte> what) {
  Lock lock{mutex_};
  if (ends_) fail(why_.code(), std::string{why_.text()});
  try {
    check(library_.group_start(), "a group of calls");
    Call call{};
    Result issued = Result::success;
    for (std::size_t at = sizeof number_; at < what.size() && issued == Result::success; at += sizeof call) {
      std::memcpy(&call, what.data() + at, sizeof call);
      issued = issue(call, static_cast<StreamHandle>(stream));
    }
    const Result ended = library_.group_end();  // also after an error
    check(issued, "a collective");
    if (ended != Result::in_progress) return check(ended, "a group of calls");
    const Result state = poll_until_done(lock, Deadline::after(deadline_));
    TROUPE_CHECK(state != Result::in_progress, Code::timeout, "NCCL took more than ", deadline_.count(),
                 " ms to begin a call (faults.exchange_s)", late_ranks());
    check(state, "a group of calls");
  } catch (const Error& error) {
    lock.unlock();
    abort(error.status());
    throw;
  }
}

// ---- Watching ----

void Link::abort(const Status& why) noexcept {
  members_[rank_].ended->poison(why);  // first: streams look at it when NCCL lets them go
  end();
}

void Link::end() noexcept {
  const std::lock_guard lock{mutex_};
  if (ends_) return;
  ends_ = true;
  const Status told = members_[rank_].ended->status();
  why_ = told.ok() ? Status{Code::aborted, "the exchange is over"} : told;
  news_.notify_all();
}

/// "; rank 2 has not come to call 17": those that have shown less than this rank.
std::string Link::late_ranks() const {
  const std::uint64_t own = members_[rank_].progress->value();
  std::string found;
  for (const Member& member : members_) {
    if (member.progress == nullptr || member.progress->value() >= own) continue;
    found += text(found.empty() ? "; rank " : ", rank ", member.name.value);
  }
  return found.empty() ? found : text(found, " has not come to call ", (own + 1) / 2);
}

Status Link::overdue() {
  const std::uint64_t now = members_[rank_].progress->value();
  if (now != seen_ || now % 2 == 0) {
    seen_ = now;
    since_ = Clock::now();
    return {};
  }
  if (Clock::now() - since_ < deadline_) return {};
  return {Code::timeout, text("call ", (now + 1) / 2, " takes more than ", deadline_.count(), " ms (faults.exchange_s)",
                              late_ranks())};
}

/// Why this link is to end, if it is.
Status Link::look(Lock&) {
  Result state = Result::success;
  const Result asked = library_.comm_get_async_error(comm_, &state);
  if (asked != Result::success) return status_of(asked, "asking for errors");
  if (state != Result::success && state != Result::in_progress) {
    const Status found = status_of(state, "in the background");
    return {found.code(), text(found.text(), "; NCCL_DEBUG=INFO tells more, on the other hosts, too")};
  }
  for (const Member& member : members_) {
    if (member.ended == nullptr) continue;
    const Status status = member.ended->status();
    if (status.ok()) continue;
    if (status.code() == Code::aborted || status.code() == Code::peer_lost || status.code() == Code::timeout)
      return status;
    return {Code::peer_lost, text("rank ", member.name.value, " ended: ", status.text())};
  }
  return overdue();
}

/// NCCL's own call for the end frees what kernels of this rank wait for, and may itself wait for recorded steps to end.
void Link::run() {
  Lock lock{mutex_};
  while (!ends_) {
    const bool is_idle = members_[rank_].progress->value() % 2 == 0;
    if (news_.wait_for(lock, is_idle ? kWhileIdle : kBetweenLooks, [this] { return ends_; })) break;
    const Status why = look(lock);
    if (why.ok()) continue;
    lock.unlock();
    abort(why);
    lock.lock();
  }
  const Comm comm = std::exchange(comm_, nullptr);
  const std::shared_ptr<Left> left = left_;
  const auto leave = library_.comm_abort;
  lock.unlock();
  if (comm != nullptr) (void)leave(comm);  // the link may be gone after this
  const std::lock_guard over{left->mutex};
  left->is_over = true;
  left->news.notify_all();
}

}  // namespace troupe::nccl

namespace troupe {

FoundNccl find_nccl(const std::string& library) {
  FoundNccl found;
  (void)nccl::find_library(library, found);
  return found;
}

NcclId make_nccl_id(const std::string& library) {
  const nccl::Library opened = nccl::open_library(library);
  nccl::UniqueId made;
  const nccl::Result result = opened.get_unique_id(&made);
  TROUPE_CHECK(result == nccl::Result::success, Code::environment,
               "NCCL makes no id: ", opened.get_error_string(result),
               "; NCCL_DEBUG=WARN tells more, NCCL_SOCKET_IFNAME chooses the network interface");
  NcclId id;
  static_assert(sizeof made == sizeof id.bytes);
  std::memcpy(id.bytes.data(), &made, sizeof made);
  return id;
}

}  // namespace troupe
