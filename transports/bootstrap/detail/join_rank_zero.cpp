// Joining, on every rank except 0.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "transports/bootstrap/detail/contact.hpp"
#include "transports/bootstrap/detail/joined.hpp"
#include "transports/bootstrap/detail/proof.hpp"

namespace troupe::bootstrap {
namespace {

constexpr std::chrono::seconds kConnect{3};
constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{250};

class JoinClient {
 public:
  JoinClient(Blocking& blocking, const JoinRequest& request) : blocking_(blocking), request_(request) {}
  Joined run();

 private:
  std::unique_ptr<Connection> connect();
  std::optional<Joined> join(Connection& link);
  bool authenticate(Connection& link);
  std::optional<Frame> next(Connection& link, Kind kind);
  void pause(std::chrono::milliseconds span);
  void tell();
  [[noreturn]] void give_up();
  std::string where() const { return text(request_.place.master_address, ":", request_.place.master_port); }

  Blocking& blocking_;
  const JoinRequest& request_;
  const Clock::time_point began_ = Clock::now();
  Deadline next_note_ = Deadline::after(kNoteEvery);
  std::string reached_;         // the last address of rank 0 that was tried
  bool connected_ = false;      // there is a connection
  bool authenticated_ = false;  // the connection is rank 0's
  std::string cause_ = "nothing happened yet";
};

Joined JoinClient::run() {
  auto span = kFirstPause;
  for (;;) {
    if (auto link = connect()) {
      connected_ = true;
      if (auto joined = join(*link)) {
        joined->links.front() = std::move(link);
        return std::move(*joined);
      }
      connected_ = authenticated_ = false;
      cause_ = text("rank 0 was reached, but ", link->why());
    }
    pause(span);
    span = std::min(2 * span, kLongestPause);
  }
}

/// A connection to rank 0; nothing if there is none, with the cause in cause_.
std::unique_ptr<Connection> JoinClient::connect() {
  const LaunchPlace& place = request_.place;
  std::vector<Address> addresses;
  try {
    addresses = resolve(place.master_address, place.master_port, request_.deadline);
  } catch (const Error& error) {
    cause_ = error.what();  // the name service may start later, too
    return nullptr;
  }
  for (const Address& address : addresses) {
    TROUPE_CHECK(!place.secret.empty() || address.loopback(), Code::environment, "rank ", place.rank,
                 " will not join rank 0 at ", where(), " (", address.to_string(),
                 ") without a job secret: anybody on the network could answer; set TROUPE_SECRET_FILE on every rank");
    const Deadline patience = Deadline::after(kConnect);
    Fd fd = connect_to(address, patience.at() < request_.deadline.at() ? patience : request_.deadline);
    reached_ = address.host();
    if (fd.get() >= 0) return std::make_unique<Connection>(std::move(fd), text("rank 0 at ", address.to_string()));
    TROUPE_CHECK(errno != ENETUNREACH || !address.loopback(), Code::environment, "rank ", place.rank,
                 " cannot join rank 0 at ", where(),
                 ": the loopback interface of this network namespace is down; turn it on (`ip link set lo up`)");
    cause_ = text(address.to_string(), ": ", std::generic_category().message(errno));
  }
  return nullptr;
}

/// Everything from the challenge to the last hello; nothing if the connection ended before.
std::optional<Joined> JoinClient::join(Connection& link) {
  if (!authenticate(link)) return std::nullopt;
  authenticated_ = true;
  link.accept_frames_of(kMaxHelloBytes);
  link.send(Kind::hello, encode(request_.mine));
  Joined joined;
  joined.links.resize(request_.place.world_size);
  for (std::uint32_t rank = 0; rank < request_.place.world_size; ++rank) {
    const auto frame = next(link, Kind::hello);
    if (!frame) return std::nullopt;
    joined.hellos.push_back(decode_hello(frame->body).hello);
    TROUPE_CHECK(joined.hellos.back().rank == rank, Code::corrupt, "rank 0 told of rank ", joined.hellos.back().rank,
                 " in the place of rank ", rank);
  }
  add_once(joined.hellos.front().addresses, reached_);
  link.accept_frames_of(kMaxFrameBytes);
  link.rename(describe(joined.hellos.front()));
  return joined;
}

/// Proves the secret, and checks rank 0's proof.
bool JoinClient::authenticate(Connection& link) {
  const auto challenge = next(link, Kind::challenge);
  if (!challenge) return false;
  Nonce theirs;
  TROUPE_CHECK(challenge->body.size() == theirs.size(), Code::corrupt, "the process at ", where(),
               " sent a challenge of ", challenge->body.size(), " bytes");
  std::copy(challenge->body.begin(), challenge->body.end(), theirs.begin());
  const Nonce mine = fresh_nonce();
  const LaunchPlace& place = request_.place;
  const Mac mac = prove(place.secret, Role::connects, theirs, mine, place.rank);
  Bytes body{mine.begin(), mine.end()};
  put_u32(body, place.rank);
  body.insert(body.end(), mac.begin(), mac.end());
  link.send(Kind::proof, std::move(body));
  const auto welcome = next(link, Kind::welcome);
  if (!welcome) return false;
  const Mac expected = prove(place.secret, Role::listens, theirs, mine, place.rank);
  TROUPE_CHECK(welcome->body.size() == expected.size() && same(std::span{welcome->body}.first<32>(), expected),
               Code::environment, "the process at ", where(),
               " does not know the job's secret: it is not rank 0 of this job");
  return true;
}

/// The next frame of `kind`; nothing if the connection has ended. Throws the error with which rank 0 ends the job, and
/// Error{timeout} at the deadline.
std::optional<Frame> JoinClient::next(Connection& link, Kind kind) {
  Connection* const links[] = {&link};
  for (;;) {
    while (auto frame = link.take()) {
      if (frame->kind == kind) return frame;
      if (frame->kind == Kind::waiting) {
        request_.note(take_text(frame->body));
        next_note_ = Deadline::after(kNoteEvery);
      } else {
        TROUPE_CHECK(frame->kind == Kind::refused, Code::corrupt, "rank 0 at ", where(), " sent a frame of kind ",
                     static_cast<int>(frame->kind), " out of turn");
        const Status why = take_status(frame->body);
        fail(why.code(), text("rank 0 at ", where(), " tells rank ", request_.place.rank, ": ", why.text()));
      }
    }
    if (!link.open()) return std::nullopt;
    if (request_.deadline.at() + kGrace <= Clock::now()) give_up();
    if (next_note_.passed()) tell();
    const auto left = request_.deadline.left() + kGrace;
    wait_ready(links, -1, Deadline::after(std::min<Clock::duration>(left, next_note_.left())));
    link.flush();
    link.receive();
  }
}

void JoinClient::pause(std::chrono::milliseconds span) {
  if (request_.deadline.passed()) give_up();
  if (next_note_.passed()) tell();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(request_.deadline.left());
  poll(nullptr, 0, static_cast<int>(std::min(span, left).count()));
}

void JoinClient::tell() {
  next_note_ = Deadline::after(kNoteEvery);
  request_.note(connected_ ? text("connected to ", where(), ", waiting for rank 0 to begin")
                           : text("waiting for rank 0 at ", where(), " (", cause_, ")"));
}

void JoinClient::give_up() {
  const std::string waited = seconds(Clock::now() - began_);
  const std::string who = text("rank ", request_.place.rank, " (thread ", blocking_.thread(), ")");
  TROUPE_CHECK(connected_, Code::environment, who, " could not join rank 0 at ", where(), " for ", waited, ": ", cause_,
               "; does rank 0 run, and are MASTER_ADDR and MASTER_PORT right?");
  TROUPE_CHECK(authenticated_, Code::timeout, who, " waited ", waited, " for the process at ", where(),
               " to send its first message; is it rank 0 of this job?");
  fail(Code::timeout,
       text(who, " waited ", waited, " with rank 0 at ", where(), " for ranks that are missing; rank 0 names them"));
}

}  // namespace

Joined join_rank_zero(Blocking& blocking, const JoinRequest& request) { return JoinClient{blocking, request}.run(); }

}  // namespace troupe::bootstrap
