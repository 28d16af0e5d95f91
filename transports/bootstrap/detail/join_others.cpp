// Joining, on rank 0.
#include <algorithm>
#include <list>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "transports/bootstrap/detail/contact.hpp"
#include "transports/bootstrap/detail/joined.hpp"
#include "transports/bootstrap/detail/proof.hpp"

namespace troupe::bootstrap {
namespace {

constexpr std::chrono::seconds kHandshake{10};        // from the accepted connection to the hello
constexpr std::chrono::milliseconds kExhausted{100};  // how long not to accept if there are no descriptors
constexpr std::size_t kMaxStrangers = 1024;           // with fewer, a crowd could displace a rank
constexpr int kCandidatesPerRound = 64;               // then connected candidates have their turn
constexpr int kMaxNotes = 20;                         // connections to the port must not fill a log

enum class Stage {
  proof,    // it was sent a challenge
  hello,    // it knows the secret
  joined,   // it has a rank
  leaving,  // it was refused; the reason is being sent
};

struct Candidate {
  Candidate(Connection connection, Address came_from, const Nonce& challenge)
      : link(std::move(connection)), from(came_from), nonce(challenge), until(Deadline::after(kHandshake)) {}
  Connection link;
  Address from;
  Nonce nonce;
  Stage stage = Stage::proof;
  Deadline until;  // for the handshake, or for leaving
  std::uint32_t rank = 0;
};

class JoinServer {
 public:
  JoinServer(Blocking& blocking, const JoinRequest& request, Fd listener)
      : blocking_(blocking),
        request_(request),
        listener_(std::move(listener)),
        places_(request.place.world_size),
        missing_(request.place.world_size - 1) {
    places_[0].hello = request.mine.hello;
    places_[0].hello.settings.clear();
  }
  Joined run();

 private:
  struct Place {
    Candidate* candidate = nullptr;
    Hello hello;
  };

  void round(Deadline until);
  void accept_candidates();
  void serve(Candidate& candidate);
  void take(Candidate& candidate, const Frame& frame);
  void take_proof(Candidate& candidate, std::span<const std::byte> body);
  void take_hello(Candidate& candidate, std::span<const std::byte> body);
  void refuse(Candidate& candidate, const Status& why);
  void forget(Candidate& candidate);
  void drop_strangers(std::size_t most);
  void make_room();
  std::size_t count_strangers() const;
  [[noreturn]] void end();
  void tell_who_is_missing();
  Joined complete();
  std::string who_is_missing() const;
  void note(const std::string& text);

  Blocking& blocking_;
  const JoinRequest& request_;
  Fd listener_;
  std::list<Candidate> candidates_;
  std::vector<Place> places_;
  std::size_t missing_;
  const Clock::time_point began_ = Clock::now();
  Deadline next_note_ = Deadline::after(kNoteEvery);
  Deadline accept_again_ = Deadline::after(Clock::duration::zero());
  int notes_ = 0;
  std::optional<Status> ended_;  // the reason if there will be no job
  std::size_t refused_ = 0;      // number of ranks that were told the reason
};

Joined JoinServer::run() {
  while (missing_ > 0 && !ended_) {
    if (request_.deadline.passed()) {
      ended_ = Status{Code::timeout, text("waited ", seconds(Clock::now() - began_), " for ", who_is_missing(),
                                          " (thread ", blocking_.thread(), "); look at their output")};
      break;
    }
    if (next_note_.passed()) tell_who_is_missing();
    round(request_.deadline.at() < next_note_.at() ? request_.deadline : next_note_);
  }
  if (ended_) end();
  return complete();
}

/// Waits for events until `until`, and handles them.
void JoinServer::round(Deadline until) {
  std::vector<Connection*> links;
  for (Candidate& candidate : candidates_) {
    links.push_back(&candidate.link);
    if (candidate.stage != Stage::joined && candidate.until.at() < until.at()) until = candidate.until;
  }
  const bool accepts = accept_again_.passed();
  if (!accepts && accept_again_.at() < until.at()) until = accept_again_;
  const std::vector<bool> ready = wait_ready(links, accepts ? listener_.get() : -1, until);
  std::size_t i = 0;
  for (Candidate& candidate : candidates_) {
    if (ready[i++]) serve(candidate);
  }
  drop_strangers(kMaxStrangers);
  if (ready.back()) accept_candidates();
}

void JoinServer::accept_candidates() {
  for (int i = 0; i < kCandidatesPerRound; ++i) {
    Accepted accepted = accept_from(listener_);
    if (accepted.exhausted) make_room();
    if (accepted.fd.get() < 0) return;
    if (request_.place.secret.empty() && !accepted.from.loopback()) {
      note(text("refused ", accepted.from.to_string(), ": without a job secret only this host may join"));
      continue;
    }
    Candidate& candidate = candidates_.emplace_back(Connection{std::move(accepted.fd), accepted.from.to_string()},
                                                    accepted.from, fresh_nonce());
    candidate.link.send(Kind::challenge, Bytes{candidate.nonce.begin(), candidate.nonce.end()});
  }
}

void JoinServer::serve(Candidate& candidate) {
  candidate.link.flush();
  candidate.link.receive();
  while (auto frame = candidate.link.take()) {
    if (candidate.stage == Stage::leaving) continue;
    try {
      take(candidate, *frame);
    } catch (const Error& error) {
      if (error.code() != Code::corrupt) throw;
      note(text("dropped ", candidate.link.name(), ": ", error.what()));
      forget(candidate);
      return;
    }
  }
  if (candidate.link.open()) return;
  if (candidate.stage != Stage::leaving)
    note(text("lost ", candidate.link.name(), " before the job began: ", candidate.link.why()));
  forget(candidate);
}

void JoinServer::take(Candidate& candidate, const Frame& frame) {
  if (candidate.stage == Stage::proof && frame.kind == Kind::proof) return take_proof(candidate, frame.body);
  if (candidate.stage == Stage::hello && frame.kind == Kind::hello) return take_hello(candidate, frame.body);
  TROUPE_CHECK(candidate.stage == Stage::joined && frame.kind == Kind::bye, Code::corrupt, "it sent a frame of kind ",
               static_cast<int>(frame.kind), " out of turn");
}

void JoinServer::take_proof(Candidate& candidate, std::span<const std::byte> body) {
  Nonce nonce;
  TROUPE_CHECK(body.size() == nonce.size() + 4 + sizeof(Mac), Code::corrupt, "it sent a proof of ", body.size(),
               " bytes");
  std::copy_n(body.begin(), nonce.size(), nonce.begin());
  body = body.subspan(nonce.size());
  const std::uint32_t rank = take_u32(body);
  const std::string& secret = request_.place.secret;
  if (!same(body.first<32>(), prove(secret, Role::connects, candidate.nonce, nonce, rank))) {
    note(text("refused ", candidate.link.name(), ": it does not know the job's secret"));
    return refuse(
        candidate,
        {Code::environment, "the job's secret differs from this rank's; give every rank the same TROUPE_SECRET_FILE"});
  }
  candidate.rank = rank;
  candidate.stage = Stage::hello;
  candidate.link.accept_frames_of(kMaxHelloBytes);
  const Mac mac = prove(secret, Role::listens, candidate.nonce, nonce, rank);
  candidate.link.send(Kind::welcome, Bytes{mac.begin(), mac.end()});
}

void JoinServer::take_hello(Candidate& candidate, std::span<const std::byte> body) {
  const WireHello theirs = decode_hello(body);
  TROUPE_CHECK(theirs.hello.rank == candidate.rank, Code::corrupt, "it proved to be rank ", candidate.rank,
               " and says it is rank ", theirs.hello.rank);
  const std::string differ = differences(request_.mine, theirs);
  if (!differ.empty() && !ended_) {
    ended_ = Status{Code::invalid, text("rank ", candidate.rank, " does not fit rank 0: ", differ)};
  }
  if (ended_) return refuse(candidate, *ended_);
  if (candidate.rank >= places_.size()) {
    return refuse(candidate, {Code::invalid,
                              text("there is no rank ", candidate.rank, " in a job of ", places_.size(), " ranks")});
  }
  Place& place = places_[candidate.rank];
  if (candidate.rank == 0 || place.candidate != nullptr) {
    note(text("refused ", describe(theirs.hello), ": ", describe(place.hello), " is there already"));
    return refuse(candidate, {Code::invalid, text(describe(place.hello), " has joined already; start each rank once")});
  }
  place = {&candidate, theirs.hello};
  add_once(place.hello.addresses,
           candidate.from.host());  // differs from its own addresses if there is address translation
  place.hello.settings.clear();     // every rank gets the hellos of all
  candidate.stage = Stage::joined;
  candidate.link.rename(describe(theirs.hello));
  --missing_;
}

void JoinServer::refuse(Candidate& candidate, const Status& why) {
  if (ended_ && candidate.stage != Stage::proof) ++refused_;
  candidate.link.send(Kind::refused, status_body(why));
  candidate.link.end_sending();
  candidate.stage = Stage::leaving;
  candidate.until = Deadline::after(kParting);
}

/// Ends a candidate's connection; drop_strangers() removes the candidate.
void JoinServer::forget(Candidate& candidate) {
  if (candidate.stage == Stage::joined) {
    places_[candidate.rank].candidate = nullptr;
    ++missing_;
  }
  candidate.stage = Stage::leaving;
  candidate.link.close();
}

std::size_t JoinServer::count_strangers() const {
  return static_cast<std::size_t>(std::count_if(candidates_.begin(), candidates_.end(), [](const Candidate& candidate) {
    return candidate.stage != Stage::joined;
  }));
}

/// The process has no descriptor left: removes half of the strangers; if there are none, accepts nobody for a moment.
void JoinServer::make_room() {
  const std::size_t strangers = count_strangers();
  if (strangers > 1) {
    drop_strangers(strangers / 2);
  } else {
    accept_again_ = Deadline::after(kExhausted);
  }
}

/// Removes candidates that are gone, those that take too long, and the oldest strangers beyond `most`.
void JoinServer::drop_strangers(std::size_t most) {
  std::size_t strangers = count_strangers();
  for (auto candidate = candidates_.begin(); candidate != candidates_.end();) {
    const bool stranger = candidate->stage != Stage::joined;
    if (stranger && (!candidate->link.open() || candidate->until.passed() || strangers > most)) {
      if (candidate->stage != Stage::leaving)
        note(text("dropped ", candidate->link.name(), ": it did not identify itself"));
      candidate = candidates_.erase(candidate);
      --strangers;
    } else {
      ++candidate;
    }
  }
}

/// Tells all candidates, also those that connect within a moment, why there will be no job.
void JoinServer::end() {
  for (Candidate& candidate : candidates_) {
    if (candidate.stage == Stage::joined) refuse(candidate, *ended_);
  }
  const Deadline last = Deadline::after(ended_->code() == Code::timeout ? Clock::duration::zero() : kParting);
  while (!last.passed() && refused_ + 1 < places_.size()) round(last);
  std::vector<Connection*> leaving;
  for (Candidate& candidate : candidates_) {
    if (candidate.stage == Stage::leaving) leaving.push_back(&candidate.link);
  }
  part(leaving, Deadline::after(kParting));
  throw Error{ended_->code(), std::string{ended_->text()}};
}

std::string JoinServer::who_is_missing() const {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t rank = 1; rank < places_.size(); ++rank) {
    if (places_[rank].candidate == nullptr) missing.push_back(rank);
  }
  return text(list_ranks(missing), " of ", places_.size(), " to join at ", local_address(listener_.get()).to_string());
}

void JoinServer::tell_who_is_missing() {
  next_note_ = Deadline::after(kNoteEvery);
  const std::string said = text("waiting for ", who_is_missing());
  request_.note(said);
  auto body = std::make_shared<Bytes>();
  put_text(*body, said);
  for (Candidate& candidate : candidates_) {
    if (candidate.stage == Stage::joined) candidate.link.send(Kind::waiting, body);
  }
}

void JoinServer::note(const std::string& said) {
  if (notes_ == kMaxNotes) return;
  request_.note(++notes_ < kMaxNotes ? said : said + " (further ones are not reported)");
}

Joined JoinServer::complete() {
  Joined joined;
  joined.links.resize(places_.size());
  std::vector<Connection*> links;
  for (std::uint32_t rank = 0; rank < places_.size(); ++rank) {
    joined.hellos.push_back(places_[rank].hello);
    if (rank == 0) continue;
    joined.links[rank] = std::make_unique<Connection>(std::move(places_[rank].candidate->link));
    joined.links[rank]->accept_frames_of(kMaxFrameBytes);
    links.push_back(joined.links[rank].get());
  }
  for (const Hello& hello : joined.hellos) {
    const auto body = std::make_shared<const Bytes>(encode({hello, request_.mine.world_size}));
    for (Connection* link : links) link->send(Kind::hello, body);
  }
  TROUPE_CHECK(flush_all(links, request_.deadline), Code::timeout, "waited ", seconds(Clock::now() - began_),
               " for all ranks to take each other's hello");
  return joined;
}

}  // namespace

Joined wait_for_others(Blocking& blocking, const JoinRequest& request) {
  const LaunchPlace& place = request.place;
  Fd listener = place.listen_fd >= 0
                    ? adopt_listener(place.listen_fd, !place.secret.empty())
                    : listen_at(place.master_address, place.master_port, !place.secret.empty(), request.deadline);
  return JoinServer{blocking, request, std::move(listener)}.run();
}

}  // namespace troupe::bootstrap
