#include "transports/bootstrap/detail/death_watch.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"

namespace troupe::bootstrap {
namespace {

constexpr std::chrono::milliseconds kSuspicion{50};
constexpr std::chrono::seconds kWatchTimeout{10};
constexpr const char* kEnded = "its process ended";

enum class Source : std::uint32_t { wake, link, process, marks };

/// Readable when the process has ended, also before its parent has waited for it. Empty if the kernel has no pidfds, or
/// the process has ended already: then its socket shows it.
Fd open_process(std::int32_t pid) noexcept { return Fd{static_cast<int>(syscall(SYS_pidfd_open, pid, 0))}; }

epoll_event readable(Source source, std::uint32_t rank) noexcept {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = (static_cast<std::uint64_t>(source) << 32) | rank;
  return event;
}

}  // namespace

DeathWatch::DeathWatch(std::uint32_t rank, const EndMark& mark, Joined& joined, Bootstrap::Lost lost)
    : rank_(rank),
      mark_(mark),
      joined_(joined),
      lost_(std::move(lost)),
      others_(joined.hellos.size()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TROUPE_CHECK_ERRNO(epoll_.get() >= 0 && wake_.get() >= 0, Code::environment, "cannot watch the other ranks");
  add(wake_.get(), readable(Source::wake, 0), 0);
  for (std::uint32_t other = 0; other < others_.size(); ++other) {
    if (other == rank_) continue;
    watch_link(other);
    watch_process(other);
  }
  watch_marks();
}

void DeathWatch::start() {
  thread_ = start_thread("troupe-watch", [this] {
    started_.wait(false);
    run();
  });
  started_.store(true);
  started_.notify_one();
}

DeathWatch::~DeathWatch() {
  stop(/*goodbye=*/false);
  if (thread_.joinable()) thread_.join();
}

void DeathWatch::leave() noexcept {
  stop(/*goodbye=*/true);
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

void DeathWatch::stop(bool goodbye) noexcept {
  if (goodbye) goodbye_.store(true);
  stop_.store(true);
  eventfd_write(wake_.get(), 1);
}

void DeathWatch::add(int fd, epoll_event event, std::uint32_t rank) {
  TROUPE_CHECK_ERRNO(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, Code::environment, "cannot watch rank ",
                     rank);
}

void DeathWatch::watch_link(std::uint32_t rank) {
  Connection* link = joined_.links[rank].get();
  if (link == nullptr || !link->open()) return;
  set_user_timeout(link->fd(), kWatchTimeout);
  link->accept_frames_of(kMaxStrangerBytes);
  add(link->fd(), readable(Source::link, rank), rank);
}

/// Whether this process sees that one by its pid.
bool DeathWatch::is_visible(std::uint32_t rank) const {
  const Hello& mine = joined_.hellos[rank_];
  const Hello& theirs = joined_.hellos[rank];
  return theirs.topology.identity.boot_id == mine.topology.identity.boot_id &&
         theirs.pid_namespace == mine.pid_namespace && theirs.pid > 0 && theirs.pid != mine.pid;
}

void DeathWatch::watch_process(std::uint32_t rank) {
  if (!is_visible(rank)) return;
  others_[rank].process = open_process(joined_.hellos[rank].pid);
  if (others_[rank].process.get() >= 0) add(others_[rank].process.get(), readable(Source::process, rank), rank);
}

void DeathWatch::watch_marks() {
  std::array<int, 2> ends{-1, -1};
  TROUPE_CHECK_ERRNO(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0, Code::environment,
                     "cannot watch the other ranks");
  for (std::size_t end = 0; end < ends.size(); ++end) ending_[end].reset(ends[end]);
  add(ending_[0].get(), readable(Source::marks, 0), 0);
  std::vector<EndMark::Place> places(others_.size());  // by rank
  for (std::uint32_t rank = 0; rank < others_.size(); ++rank)
    if (rank != rank_ && is_visible(rank)) places[rank] = {joined_.hellos[rank].pid, joined_.hellos[rank].end_mark};
  marks_.emplace(places, [this](std::size_t index) {
    const auto rank = static_cast<std::uint32_t>(index);
    [[maybe_unused]] const ssize_t written = ::write(ending_[1].get(), &rank, sizeof rank);  // there is always room
  });
}

void DeathWatch::take_marks() {
  std::uint32_t rank = 0;
  while (::read(ending_[0].get(), &rank, sizeof rank) == sizeof rank) {
    if (others_[rank].presence == Presence::here && joined_.links[rank]) serve(rank);  // its last frames
    lost(rank, kEnded);
  }
}

void DeathWatch::run() {
  std::optional<EndMark::Hold> hold{mark_};
  for (std::uint32_t rank = 0; rank < others_.size() && !stop_.load(); ++rank) {
    if (joined_.links[rank]) serve(rank);  // frames that came before the watch began, or a connection that has ended
  }
  std::array<epoll_event, 64> events;
  while (!stop_.load()) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout());
    for (int i = 0; i < count && !stop_.load(); ++i) {
      const auto rank = static_cast<std::uint32_t>(events[i].data.u64);
      switch (static_cast<Source>(events[i].data.u64 >> 32)) {
        case Source::wake: break;
        case Source::link: serve(rank); break;
        case Source::process: process_ended(rank); break;
        case Source::marks: take_marks(); break;
      }
    }
    check_suspects();
  }
  hold.reset();  // before the goodbye: the others must not count a process that leaves, and then ends, as lost
  if (goodbye_.load()) say_goodbye();
}

/// Milliseconds until the next suspect counts as lost; -1: there is none.
int DeathWatch::timeout() const {
  int least = -1;
  for (const Other& other : others_) {
    if (!other.suspect) continue;
    const auto left = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(other.suspect->left()).count());
    least = least < 0 ? left : std::min(least, left);
  }
  return least;
}

void DeathWatch::serve(std::uint32_t rank) {
  Connection& link = *joined_.links[rank];
  link.flush();
  link.receive();
  while (auto frame = link.take()) take(rank, *frame);
  if (others_[rank].presence != Presence::here) return;
  if (!link.open()) return lost(rank, link.why());
  await_room(rank);
}

void DeathWatch::take(std::uint32_t from, const Frame& frame) {
  std::span<const std::byte> body{frame.body};
  try {
    if (frame.kind == Kind::bye) {
      const std::uint32_t about = take_u32(body);
      // Only rank 0 may report others.
      left(from == 0 && about < others_.size() && about != rank_ ? about : from);
    } else if (frame.kind == Kind::lost && from == 0) {
      const std::uint32_t about = take_u32(body);
      if (about < others_.size() && about != rank_) lost(about, take_text(body));
    } else if (frame.kind == Kind::gather && is_root()) {
      joined_.links[from]->send(Kind::refused,
                                status_body({Code::invalid, "rank 0 gathers nothing any more: it watches"}));
    }
  } catch (const Error& error) {
    lost(from, text("it sent invalid data: ", error.what()));
  }
}

void DeathWatch::process_ended(std::uint32_t rank) {
  Other& other = others_[rank];
  if (other.presence != Presence::here || other.suspect) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, other.process.get(), nullptr);
  if (joined_.links[rank]) {
    serve(rank);  // its last frames, if there were any, have arrived
    if (other.presence == Presence::here) lost(rank, kEnded);
  } else {
    other.suspect = Deadline::after(kSuspicion);
  }
}

void DeathWatch::check_suspects() {
  for (std::uint32_t rank = 0; rank < others_.size(); ++rank) {
    if (others_[rank].suspect && others_[rank].suspect->passed()) lost(rank, kEnded);
  }
}

void DeathWatch::lost(std::uint32_t rank, const std::string& why) {
  Other& other = others_[rank];
  if (other.presence != Presence::here) return;
  other.presence = Presence::lost;
  release(rank);
  relay(rank, Kind::lost, why);
  if (!stop_.load()) lost_(Peer{rank}, {Code::peer_lost, text(describe(joined_.hellos[rank]), " is lost: ", why)});
}

void DeathWatch::left(std::uint32_t rank) {
  Other& other = others_[rank];
  if (other.presence != Presence::here) return;
  other.presence = Presence::left;
  release(rank);
  relay(rank, Kind::bye, "");
}

void DeathWatch::relay(std::uint32_t about, Kind kind, const std::string& said) {
  if (!is_root()) return;
  auto body = std::make_shared<Bytes>();
  put_u32(*body, about);
  put_text(*body, said);
  for (std::uint32_t rank = 1; rank < others_.size(); ++rank) {
    if (others_[rank].presence != Presence::here) continue;
    joined_.links[rank]->send(kind, body);
    await_room(rank);
  }
}

/// Makes epoll report when unsent data can be sent, as long as there is some.
void DeathWatch::await_room(std::uint32_t rank) {
  const Connection& link = *joined_.links[rank];
  if (link.has_unsent() == others_[rank].writing) return;
  others_[rank].writing = link.has_unsent();
  epoll_event event = readable(Source::link, rank);
  if (link.has_unsent()) event.events |= EPOLLOUT;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, link.fd(), &event);
}

/// Stops watching `rank`. If it is rank 0, no other rank can be watched any more: they count as left.
void DeathWatch::release(std::uint32_t rank) {
  if (Connection* link = joined_.links[rank].get(); link != nullptr && link->fd() >= 0) {
    // Removed explicitly, since closing is not sufficient if a forked child holds the socket, too.
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link->fd(), nullptr);
    shutdown(link->fd(), SHUT_RDWR);
    link->close();
  }
  others_[rank].process.reset();
  others_[rank].suspect.reset();
  if (rank != 0) return;
  for (Other& other : others_) {
    if (other.presence == Presence::here) other.presence = Presence::left;
    other.process.reset();
    other.suspect.reset();
  }
}

void DeathWatch::say_goodbye() {
  auto body = std::make_shared<Bytes>();
  put_u32(*body, rank_);
  std::vector<Connection*> links;
  for (const auto& link : joined_.links) {
    if (!link || !link->open()) continue;
    link->send(Kind::bye, body);
    links.push_back(link.get());
  }
  part(links, Deadline::after(kParting));
  for (Connection* link : links) link->close();
}

}  // namespace troupe::bootstrap
