#include "transports/bootstrap/bootstrap.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/memory/end_mark.hpp"
#include "transports/bootstrap/detail/contact.hpp"
#include "transports/bootstrap/detail/death_watch.hpp"
#include "transports/bootstrap/detail/joined.hpp"

namespace troupe {
namespace bootstrap {
namespace {

constexpr std::size_t kMaxNameBytes = 256;

/// What a rank contributes to an all_gather.
struct Contribution {
  std::uint32_t number;  // of the all_gather: each is one step of the whole job
  std::string what;
  Bytes blob;
};

Bytes encode_contribution(std::uint32_t number, std::string_view what, std::span<const std::byte> blob) {
  Bytes body;
  body.reserve(8 + what.size() + blob.size());
  put_u32(body, number);
  put_u32(body, static_cast<std::uint32_t>(what.size()));
  put_text(body, what);
  body.insert(body.end(), blob.begin(), blob.end());
  return body;
}

Contribution decode(std::span<const std::byte> body) {
  Contribution to;
  to.number = take_u32(body);
  const std::uint32_t length = take_u32(body);
  TROUPE_CHECK(length <= kMaxNameBytes && length <= body.size(), Code::corrupt, "a gathering's name of ", length,
               " bytes");
  to.what = take_text(body.first(length));
  to.blob.assign(body.begin() + length, body.end());
  return to;
}

/// A job with connected ranks.
class Star final : public Bootstrap {
 public:
  Star(std::uint32_t rank, std::unique_ptr<EndMark> mark, Joined joined)
      : rank_(rank), mark_(std::move(mark)), joined_(std::move(joined)) {}

  const std::vector<Hello>& hellos() const override { return joined_.hellos; }
  std::vector<std::vector<std::byte>> all_gather(Blocking& blocking, std::string_view what,
                                                 std::span<const std::byte> mine, Deadline deadline) override;
  void watch(Lost lost) override;
  void leave() noexcept override;

 private:
  struct Gathering {
    Blocking& blocking;
    std::string_view what;
    Deadline deadline;
    Clock::time_point began = Clock::now();
  };
  std::vector<Bytes> collect(const Gathering& gathering, std::span<const std::byte> mine);
  std::vector<Bytes> contribute(const Gathering& gathering, std::span<const std::byte> mine);
  Bytes take_contribution(const Gathering& gathering, std::uint32_t rank, const Frame& frame);
  void serve(const Gathering& gathering, std::uint32_t rank, std::vector<std::optional<Bytes>>& blobs);
  [[noreturn]] void end(const Status& why);
  std::vector<Connection*> links() const;
  std::string describe_rank(std::uint32_t rank) const { return describe(joined_.hellos[rank]); }

  const std::uint32_t rank_;
  const std::unique_ptr<EndMark> mark_;
  Joined joined_;
  std::uint32_t gathered_ = 0;  // number of all_gather calls so far
  bool left_ = false;
  std::optional<DeathWatch> watch_;
};

std::vector<Bytes> Star::all_gather(Blocking& blocking, std::string_view what, std::span<const std::byte> mine,
                                    Deadline deadline) {
  TROUPE_CHECK(!watch_ && !left_, Code::invalid, "cannot gather '", what, "': the ranks only watch each other by now");
  TROUPE_CHECK(mine.size() <= kMaxBlobBytes && !what.empty() && what.size() <= kMaxNameBytes, Code::invalid,
               "cannot gather '", what, "': ", mine.size(), " bytes, of at most ", kMaxBlobBytes,
               ", under a name of 1 to ", kMaxNameBytes, " characters");
  const Gathering gathering{blocking, what, deadline};
  auto blobs = rank_ == 0 ? collect(gathering, mine) : contribute(gathering, mine);
  ++gathered_;
  return blobs;
}

/// On rank 0: receives all contributions, then sends all of them to every rank.
std::vector<Bytes> Star::collect(const Gathering& gathering, std::span<const std::byte> mine) {
  std::vector<std::optional<Bytes>> blobs(joined_.hellos.size());
  blobs[0] = Bytes{mine.begin(), mine.end()};
  const std::vector<Connection*> all = links();
  std::vector<bool> ready(all.size() + 1, true);  // something may have arrived before
  for (;;) {
    std::vector<std::uint32_t> missing;
    for (std::uint32_t rank = 1; rank < blobs.size(); ++rank) {
      if (ready[rank - 1]) serve(gathering, rank, blobs);
      if (!blobs[rank]) missing.push_back(rank);
    }
    if (missing.empty()) break;
    if (gathering.deadline.passed()) {
      end({Code::timeout, text("waited ", seconds(Clock::now() - gathering.began), " for ", list_ranks(missing),
                               " to bring '", gathering.what, "' (thread ", gathering.blocking.thread(), ")")});
    }
    ready = wait_ready(all, -1, gathering.deadline);
  }
  std::vector<Bytes> result;
  for (auto& blob : blobs) {
    result.push_back(std::move(*blob));
    auto body = std::make_shared<Bytes>();
    body->reserve(4 + result.back().size());
    put_u32(*body, gathered_);
    body->insert(body->end(), result.back().begin(), result.back().end());
    for (Connection* link : all) link->send(Kind::gathered, body);
  }
  if (!flush_all(all, gathering.deadline)) {
    end({Code::timeout, text("waited ", seconds(Clock::now() - gathering.began), " for the other ranks to take '",
                             gathering.what, "' (thread ", gathering.blocking.thread(), ")")});
  }
  return result;
}

/// Reads what `rank` sent; ends the job if that rank is gone or gathers something else.
void Star::serve(const Gathering& gathering, std::uint32_t rank, std::vector<std::optional<Bytes>>& blobs) {
  Connection& link = *joined_.links[rank];
  link.receive();
  if (!blobs[rank]) {
    if (const auto frame = link.take()) blobs[rank] = take_contribution(gathering, rank, *frame);
  }
  if (!link.open()) {
    end({Code::peer_lost,
         text(describe_rank(rank), " is lost: ", link.why(), ", before everyone had '", gathering.what, "'")});
  }
}

Bytes Star::take_contribution(const Gathering& gathering, std::uint32_t rank, const Frame& frame) {
  if (frame.kind == Kind::bye)
    end({Code::peer_lost, text(describe_rank(rank), " left before everyone had '", gathering.what, "'")});
  if (frame.kind != Kind::gather) {
    end({Code::peer_lost,
         text(describe_rank(rank), " sent a frame of kind ", static_cast<int>(frame.kind), " out of turn")});
  }
  Contribution theirs;
  try {
    theirs = decode(frame.body);
  } catch (const Error& error) {
    end({Code::peer_lost, text(describe_rank(rank), " sent invalid data: ", error.what())});
  }
  if (theirs.what != gathering.what || theirs.number != gathered_) {
    end({Code::invalid,
         text("rank ", rank, " gathers '", theirs.what, "' as its number ", theirs.number, ", rank 0 '", gathering.what,
              "' as its number ", gathered_, ": every rank must gather the same things in the same order")});
  }
  return std::move(theirs.blob);
}

/// On the other ranks: sends the own contribution to rank 0 and waits for all.
std::vector<Bytes> Star::contribute(const Gathering& gathering, std::span<const std::byte> mine) {
  Connection& link = *joined_.links[0];
  const std::vector<Connection*> all = links();
  link.send(Kind::gather, encode_contribution(gathered_, gathering.what, mine));
  std::vector<Bytes> blobs;
  const Clock::time_point last = gathering.deadline.at() + kGrace;
  while (blobs.size() < joined_.hellos.size()) {
    auto frame = link.take();
    if (!frame) {
      TROUPE_CHECK(link.open(), Code::peer_lost, describe_rank(0), " is lost: ", link.why(), ", before everyone had '",
                   gathering.what, "'");
      TROUPE_CHECK(Clock::now() < last, Code::timeout, "waited ", seconds(Clock::now() - gathering.began), " for '",
                   gathering.what, "' of all ranks from rank 0 (thread ", gathering.blocking.thread(), ")");
      wait_ready(all, -1, Deadline::after(last - Clock::now()));
      link.flush();
      link.receive();
      continue;
    }
    std::span<const std::byte> body{frame->body};
    if (frame->kind == Kind::refused) {
      const Status why = take_status(body);
      link.close();  // rank 0 waits for the end of the connection
      fail(why.code(), std::string{why.text()});
    }
    if (frame->kind == Kind::lost) {
      const std::uint32_t rank = take_u32(body);
      fail(Code::peer_lost,
           text("rank ", rank, " is lost: ", take_text(body), ", before everyone had '", gathering.what, "'"));
    }
    TROUPE_CHECK(frame->kind == Kind::gathered && take_u32(body) == gathered_, Code::peer_lost, describe_rank(0),
                 " left, or sent a frame of kind ", static_cast<int>(frame->kind),
                 " out of turn, before everyone had '", gathering.what, "'");
    blobs.emplace_back(body.begin(), body.end());
  }
  return blobs;
}

/// On rank 0: tells all ranks why the job ends, and throws.
void Star::end(const Status& why) {
  const std::vector<Connection*> all = links();
  for (Connection* link : all) link->send(Kind::refused, status_body(why));
  part(all, Deadline::after(kParting));
  throw Error{why.code(), std::string{why.text()}};
}

std::vector<Connection*> Star::links() const {
  std::vector<Connection*> all;
  for (const auto& link : joined_.links) {
    if (link) all.push_back(link.get());
  }
  return all;
}

void Star::watch(Lost lost) {
  TROUPE_CHECK(!watch_ && !left_, Code::invalid, "the ranks watch each other already, or this one has left");
  watch_.emplace(rank_, *mark_, joined_, std::move(lost));
  watch_->start();
}

void Star::leave() noexcept {
  if (std::exchange(left_, true)) return;
  if (watch_) return watch_->leave();
  const std::vector<Connection*> all = links();
  Bytes body;
  put_u32(body, rank_);
  for (Connection* link : all) link->send(Kind::bye, body);
  part(all, Deadline::after(kParting));
  for (Connection* link : all) link->close();
}

}  // namespace
}  // namespace bootstrap

std::vector<ProcessLocation> hosts_of(std::span<const Hello> hellos) {
  std::vector<ProcessLocation> hosts;
  for (const Hello& hello : hellos) hosts.push_back({hello.topology.identity, hello.pid_namespace, hello.addresses});
  return hosts;
}

std::unique_ptr<Bootstrap> Bootstrap::join(Blocking& blocking, const LaunchPlace& place, const Hello& mine,
                                           Deadline deadline, const std::function<void(const std::string&)>& waiting) {
  TROUPE_CHECK(place.rank < place.world_size && place.rank == mine.rank, Code::invalid, "rank ", place.rank, " of ",
               place.world_size, " cannot join with a hello of rank ", mine.rank);
  bootstrap::JoinRequest request{place, {mine, place.world_size}, deadline, waiting};
  if (mine.addresses.empty()) request.mine.hello.addresses = bootstrap::source_addresses();
  auto mark = std::make_unique<EndMark>();
  request.mine.hello.end_mark = mark->place().fd;
  auto joined =
      place.rank == 0 ? bootstrap::wait_for_others(blocking, request) : bootstrap::join_rank_zero(blocking, request);
  return std::make_unique<bootstrap::Star>(place.rank, std::move(mark), std::move(joined));
}

}  // namespace troupe
