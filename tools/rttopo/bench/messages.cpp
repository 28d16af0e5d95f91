#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "tools/crew/crew.hpp"
#include "tools/crew/line.hpp"
#include "tools/crew/process_usage.hpp"
#include "tools/rttopo/bench/bench.hpp"
#include "tools/rttopo/bench/measures.hpp"
#include "tools/rttopo/bench/members.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::rttopo {
namespace {

using nlohmann::json;
using topology::MessageFigure;

constexpr std::uint64_t kPayloadBytes = std::uint64_t{1} << 20;
constexpr std::uint32_t kInFlight = 8;  // number of payloads
constexpr std::uint32_t kWarmUp = 200;  // number of messages
constexpr std::chrono::seconds kAnswerPatience{20};
constexpr int kNetworkTimes = 5;  // times as long as within a host: links with a rate limit let a burst through first
constexpr Channel kChannel = Channel::exchange;

enum class Word : std::uint64_t { ping, pong, payload, all_sent, all_here, send_too, bye };
struct MessageHead {
  Word word = Word::ping;
  std::uint64_t number = 0;
};

/// One of two processes that measure messages. It drives both lanes itself. One end asks, the other serves. Invariant:
/// at most kInFlight payloads are in transit to it, so this number of landings is enough.
class MessageEnd final : Receiver, SendDone {
 public:
  explicit MessageEnd(const UcxOptions& options) {
    arena_ = Arena::create(arena_id(options.self, 1), (2 * kInFlight + 2) * kPayloadBytes);
    space_.map(arena_);
    for (Memory& slot : landings_) slot = arena_->allocate(kPayloadBytes);
    payload_ = arena_->allocate(kPayloadBytes);
    std::memset(space_.address(payload_), 1, kPayloadBytes);
    transport_ = make_ucx_transport(space_, options);
    transport_->receive(kChannel, *this);
  }
  ~MessageEnd() { transport_.reset(); }
  MessageEnd(const MessageEnd&) = delete;
  MessageEnd& operator=(const MessageEnd&) = delete;

  std::vector<std::byte> address() const { return transport_->address(); }
  void connect(Peer peer, std::span<const std::byte> address) { transport_->connect(peer, address); }

  /// Answers `peer` until it has finished its measurements.
  void serve(Peer peer) {
    // The other end decides how long this takes: the only deadline is for the next message.
    for (Word word = Word::ping; word != Word::bye;) {
      const MessageHead head = next_word(peer);
      word = head.word;
      if (word == Word::ping) say(peer, {Word::pong, head.number});
      if (word == Word::send_too) say(peer, {Word::all_here, exchange(peer, Clock::duration(head.number))});
      if (word != Word::all_sent) continue;
      wait_until(peer, [&] { return payloads_ >= head.number; });
      payloads_ = 0;
      say(peer, {Word::all_here, 0});
    }
  }

  /// The seconds of one way of a message of 8 bytes, measured for `span`.
  double latency_s(Peer peer, Clock::duration span) {
    std::uint64_t trips = 0;
    const auto bounce = [&] {
      say(peer, {Word::ping, ++trips});
      expect(peer, Word::pong);
    };
    while (trips < kWarmUp) bounce();
    trips = 0;
    const auto begun = Clock::now();
    const Deadline end = Deadline::after(span);
    while (!end.passed()) bounce();
    return std::chrono::duration<double>(Clock::now() - begun).count() / static_cast<double>(2 * trips);
  }

  /// The bytes per second of payloads in one direction, sent for `span`, until all have arrived.
  double rate(Peer peer, Clock::duration span) {
    const auto begun = Clock::now();
    const std::uint64_t sent = send_for(peer, span);
    say(peer, {Word::all_sent, sent});
    expect(peer, Word::all_here);
    return static_cast<double>(sent * kPayloadBytes) / std::chrono::duration<double>(Clock::now() - begun).count();
  }

  /// The bytes per second in the slower direction while both ends send for `span`.
  double rate_both_ways(Peer peer, Clock::duration span) {
    say(peer, {Word::send_too, static_cast<std::uint64_t>(span.count())});
    const std::uint64_t here = exchange(peer, span);
    return static_cast<double>(std::min(here, expect(peer, Word::all_here)));
  }
  /// Ends the other end's serve().
  void end(Peer peer) {
    say(peer, {Word::bye, 0});
    wait_until(peer, [&] { return in_flight_ == 0; });
  }

 private:
  /// Sends payloads for `span`. Returns their number.
  std::uint64_t send_for(Peer peer, Clock::duration span) {
    std::uint64_t sent = 0;
    for (const Deadline end = Deadline::after(span); !end.passed();) {
      const MessageHead head{Word::payload, sent};
      if (in_flight_ < kInFlight && transport_->send(peer, Lane::bulk, Class::gradient, kChannel,
                                                     std::as_bytes(std::span{&head, 1}), {&payload_, 1}, *this)) {
        ++in_flight_;
        ++sent;
      }
      look();
    }
    return sent;
  }
  /// Sends payloads for `span` and takes what the other end sends at the same time. Returns the bytes that arrived in a
  /// second.
  std::uint64_t exchange(Peer peer, Clock::duration span) {
    const auto begun = Clock::now();
    say(peer, {Word::all_sent, send_for(peer, span)});
    const std::uint64_t coming = expect(peer, Word::all_sent);
    wait_until(peer, [&] { return payloads_ >= coming; });
    payloads_ = 0;
    const double took = std::chrono::duration<double>(Clock::now() - begun).count();
    return static_cast<std::uint64_t>(static_cast<double>(coming * kPayloadBytes) / took);
  }
  Memory landing(Peer, Lane, std::span<const std::byte>, std::uint64_t size_bytes) noexcept override {
    if (size_bytes != kPayloadBytes) return {};
    return landings_[landed_++ % landings_.size()];
  }
  void arrived(Peer, Lane, std::span<const std::byte> head, Memory payload) noexcept override {
    if (payload.size_bytes != 0) {
      ++payloads_;
    } else if (head.size() == sizeof(MessageHead)) {
      MessageHead& word = words_.emplace_back();
      std::memcpy(&word, head.data(), sizeof word);
    }
  }
  void dropped(Peer, Lane, Memory, const Status& why) noexcept override { failed_ = why; }
  void lost(Peer, const Status& why) noexcept override { failed_ = why; }
  void sent(Status status) noexcept override {
    --in_flight_;
    if (!status.ok()) failed_ = status;
  }

  void look() {
    const bool control = transport_->progress(Lane::control);
    const bool bulk = transport_->progress(Lane::bulk);
    TROUPE_CHECK(failed_.ok(), failed_.code(), "messages could not be measured: ", failed_.text());
    if (!control && !bulk && ++idle_ % 1024 == 0) std::this_thread::yield();  // the other end may need this core
  }
  template <class Condition>
  void wait_until(Peer peer, Condition condition) {
    const Deadline deadline = Deadline::after(kAnswerPatience);
    for (std::uint64_t looks = 0; !condition(); ++looks) {
      look();
      TROUPE_CHECK(looks % 4096 != 0 || !deadline.passed(), Code::timeout, "process ", peer.value,
                   " of this measurement does not answer");
    }
  }
  MessageHead next_word(Peer peer) {
    wait_until(peer, [&] { return !words_.empty(); });
    const MessageHead word = words_.front();
    words_.pop_front();
    return word;
  }
  std::uint64_t expect(Peer peer, Word wanted) {
    const MessageHead head = next_word(peer);
    TROUPE_CHECK(head.word == wanted, Code::corrupt, "process ", peer.value, " answered out of turn");
    return head.number;
  }
  void say(Peer peer, const MessageHead& head) {
    ++in_flight_;
    wait_until(peer, [&] {
      return transport_->send(peer, Lane::control, Class::control, kChannel, std::as_bytes(std::span{&head, 1}), {},
                              *this);
    });
  }

  AddressSpace space_;
  std::shared_ptr<Arena> arena_;
  std::array<Memory, 2 * kInFlight> landings_{};
  Memory payload_;
  std::unique_ptr<Transport> transport_;
  std::deque<MessageHead> words_;  // that arrived and were not looked at: at most two, since most have an answer
  std::uint64_t landed_ = 0;
  std::uint64_t payloads_ = 0;
  std::uint64_t idle_ = 0;
  std::uint32_t in_flight_ = 0;
  Status failed_;
};

/// What the asking end needs to know.
struct AskedFor {
  std::uint32_t repeats = 3;
  Clock::duration span{};
};

/// Measures the figure, without names.
MessageFigure ask(MessageEnd& end, Peer peer, const AskedFor& what) {
  std::vector<double> latencies, rates, both_ways;
  for (std::uint32_t r = 0; r < what.repeats; ++r) {
    latencies.push_back(end.latency_s(peer, what.span));
    rates.push_back(end.rate(peer, what.span));
    both_ways.push_back(end.rate_both_ways(peer, what.span));
  }
  end.end(peer);
  MessageFigure figure;
  figure.bytes = kPayloadBytes;
  figure.seconds = topology::repeats_of(latencies);
  figure.bytes_per_second = topology::repeats_of(rates);
  figure.both_ways = topology::repeats_of(both_ways);
  return figure;
}

json words_of(const MessageFigure& figure) {
  return {{"seconds", to_word(figure.seconds)},
          {"bytes_per_second", to_word(figure.bytes_per_second)},
          {"both_ways", to_word(figure.both_ways)}};
}
void take_words(const json& words, MessageFigure& figure) {
  figure.seconds = from_word(words.at("seconds"));
  figure.bytes_per_second = from_word(words.at("bytes_per_second"));
  figure.both_ways = from_word(words.at("both_ways"));
}

void say_figure(const Measuring& how, const MessageFigure& figure) {
  how.say(fmt::format("messages {}, {}: {:.3g} us, {:.3g} GB/s, both ways at once {:.3g} GB/s each", figure.means,
                      figure.same_node ? "two processes here" : figure.from + " to " + figure.to,
                      figure.seconds.median * 1e6, figure.bytes_per_second.median / 1e9,
                      figure.both_ways.median / 1e9));
}

/// The rank's host name; if another node has the same name, as network namespaces do, with the rank's address.
std::string name_of_node(const std::vector<Hello>& hellos, std::uint32_t rank) {
  const Hello& mine = hellos[rank];
  const bool is_shared = std::any_of(hellos.begin(), hellos.end(), [&](const Hello& other) {
    return other.topology.host == mine.topology.host && other.topology.identity != mine.topology.identity;
  });
  const auto at = std::find_if(mine.addresses.begin(), mine.addresses.end(), [](const std::string& address) {
    return !address.starts_with("127.") && address != "::1";
  });
  if (!is_shared || at == mine.addresses.end()) return mine.topology.host;
  return text(mine.topology.host, " (", *at, ")");
}

/// The first CPU of each of two cores, or of a single core.
std::array<int, 2> cpus_of_ends(const Topology& topology) {
  std::vector<int> firsts;
  for (const Core& core : topology.cores)
    if (!core.cpus.empty()) firsts.push_back(static_cast<int>(core.cpus.front()));
  if (firsts.empty()) return {-1, -1};
  return {firsts.front(), firsts.size() > 1 ? firsts[1] : -1};
}

}  // namespace

std::vector<MessageFigure> measure_messages_here(const Measuring& how, const rtrun::Signals& signals,
                                                 const Topology& topology) {
  std::vector<MessageFigure> figures;
  if (!ucx_available()) {
    how.say("messages this build has no UCX: not measured");
    return figures;
  }
  const std::array<int, 2> cpus = cpus_of_ends(topology);
  for (const char* const means : {"shm", "tcp"}) {
    how.check_stop();
    crew::CrewPlan plan;
    plan.name = "the two processes that exchange messages";
    plan.patience = 2 * kAnswerPatience;
    const auto span_ms = std::chrono::duration_cast<std::chrono::milliseconds>(how.span).count();
    for (std::uint32_t self = 0; self < cpus.size(); ++self)
      plan.roles.push_back(
          {{"self", self}, {"means", means}, {"cpu", cpus[self]}, {"repeats", how.repeats}, {"span_ms", span_ms}});
    crew::Crew crew{signals, std::move(plan)};
    const std::vector<json> told = crew.await_all(how.blocking, "address");
    for (std::uint32_t self = 0; self < cpus.size(); ++self) crew.tell(self, {{"address", told[1 - self]["address"]}});
    const json said = crew.await(how.blocking, 0, "figures", crew.patience());
    MessageFigure& figure = figures.emplace_back();
    figure.means = means;
    figure.from = figure.to = topology.host;
    figure.bytes = kPayloadBytes;
    take_words(said, figure);
    say_figure(how, figure);
    crew.await_end(how.blocking, 0, crew.patience());
    crew.await_end(how.blocking, 1, crew.patience());
  }
  return figures;
}

void be_message_end(Blocking& blocking, crew::Line& line, const json& role) {
  if (const int cpu = role.at("cpu"); cpu >= 0) crew::pin_to(cpu);
  UcxOptions options;
  options.self = {role.at("self").get<std::uint32_t>()};
  const bool tcp = role.at("means") == "tcp";
  options.means = tcp ? UcxMeans::tcp : UcxMeans::shm;
  if (tcp) options.network_devices = "lo";
  MessageEnd end{options};
  line.tell({{"say", "address"}, {"address", crew::binary(end.address())}});
  const json other = line.await(blocking);
  const Peer peer{1 - options.self.value};
  end.connect(peer, crew::bytes_of(other.at("address")));
  if (options.self.value == 1) return end.serve(peer);
  const MessageFigure figure =
      ask(end, peer, {role.at("repeats"), std::chrono::milliseconds(role.at("span_ms").get<std::int64_t>())});
  json words = words_of(figure);
  words["say"] = "figures";
  line.tell(words);
}

std::vector<MessageFigure> measure_messages_between(const Measuring& how, Bootstrap& bootstrap, std::uint32_t rank) {
  TROUPE_CHECK(ucx_available(), Code::unsupported,
               "this build has no UCX, over which hosts are measured: install libucx-dev and configure with "
               "TROUPE_WITH_UCX=ON");
  const std::vector<Hello>& hellos = bootstrap.hellos();
  std::vector<std::uint32_t> firsts;  // the first rank of each node
  for (std::uint32_t r = 0; r < hellos.size(); ++r) {
    const auto same = [&](std::uint32_t known) {
      return hellos[known].topology.identity == hellos[r].topology.identity;
    };
    if (std::none_of(firsts.begin(), firsts.end(), same)) firsts.push_back(r);
  }
  UcxOptions options;
  options.self = {rank};
  options.hosts = hosts_of(hellos);
  MessageEnd end{options};
  const auto gather = [&](std::string_view what, std::span<const std::byte> mine) {
    return bootstrap.all_gather(how.blocking, what, mine, Deadline::after(10 * kAnswerPatience));
  };
  const auto addresses = gather("addresses", end.address());
  for (std::uint32_t r = 0; r < hellos.size(); ++r)
    if (r != rank) end.connect({r}, addresses[r]);
  std::vector<MessageFigure> figures;
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    for (std::size_t j = i + 1; j < firsts.size(); ++j) {
      how.check_stop();
      std::string mine;
      if (rank == firsts[j]) end.serve({firsts[i]});
      if (rank == firsts[i]) {
        const MessageFigure figure = ask(end, {firsts[j]}, {how.repeats, kNetworkTimes * how.span});
        mine = words_of(figure).dump();
      }
      // Pairs take turns: ranks that are not in this pair wait here.
      const auto told = gather(text("pair ", i, " ", j), std::as_bytes(std::span{mine}));
      if (rank != 0) continue;
      const std::vector<std::byte>& said = told.at(firsts[i]);
      const json word = json::parse(std::string{reinterpret_cast<const char*>(said.data()), said.size()});
      MessageFigure& figure = figures.emplace_back();
      figure.means = "network";
      figure.from = name_of_node(hellos, firsts[i]);
      figure.to = name_of_node(hellos, firsts[j]);
      figure.same_node = false;
      figure.bytes = kPayloadBytes;
      take_words(word, figure);
      say_figure(how, figure);
    }
  }
  return figures;
}

}  // namespace troupe::rttopo
