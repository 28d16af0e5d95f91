// Three processes: a reader, a worker, a writer. Tensors go from one to the next, at most kWindow of them at a time on
// each way, since a stage sends only as many as the next one has given credit for: the writer is slow, so all are.
// Start it with RANK=0, 1 and 2, one terminal for each:
//   RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./example_pipeline
// An argument says how many tensors, the same for all three; without it, 100.
#include <algorithm>
#include <array>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <charconv>
#include <deque>
#include <iostream>
#include <optional>

#include "actors/caf_error.hpp"
#include "apps/group/ucx_group.hpp"

using namespace troupe;
using namespace std::chrono_literals;

constexpr std::uint64_t kNumbers = 256 << 10;  // of a piece: 1 MiB
constexpr std::uint64_t kWindow = 4;
constexpr auto kWriting = 2ms;  // of a piece

struct Piece {
  std::uint64_t number = 0;
  Tensor numbers;
};
template <class Inspector>
auto inspect(Inspector& f, Piece& piece) {
  return f(caf::meta::type_name("pipeline.Piece"), piece.number, piece.numbers);
}

using Connect = caf::atom_constant<caf::atom("connect")>;  // to the next stage, which answers with its first credit
using Credit = caf::atom_constant<caf::atom("credit")>;    // (Credit, count): to the previous stage
using Free = caf::atom_constant<caf::atom("free")>;        // (Free, buffer): to itself: the buffer has no handles
using Written = caf::atom_constant<caf::atom("written")>;  // to itself

/// The connection to the next stage: a buffer for each piece that may be in transit. A buffer is free again when the
/// last handle of its tensor, in any process, was destroyed.
class Outlet {
 public:
  void connect(caf::event_based_actor* self, Group& group, const caf::actor& next) {
    self_ = self, group_ = &group, next_ = next;
    for (std::uint64_t i = 0; i < kWindow; ++i) {
      buffers_.push_back(group.arena().allocate(kNumbers * sizeof(float)));
      free_.push_back(i);
    }
    self->link_to(next);  // if the next stage fails, this one ends, too
    self->send(next, Connect::value);
  }
  void credit(std::uint64_t count) { credit_ += count; }
  void freed(std::uint64_t buffer) { free_.push_back(buffer); }
  bool open() const { return credit_ > 0 && !free_.empty(); }
  bool empty() const { return free_.size() == kWindow; }
  std::uint64_t most_in_flight() const { return most_; }

  /// Sends a piece whose numbers `fill` writes. Requires open().
  template <class Fill>
  void send(std::uint64_t number, Fill fill) {
    const std::uint64_t buffer = free_.back();
    free_.pop_back();
    --credit_;
    most_ = std::max<std::uint64_t>(most_, kWindow - free_.size());
    fill(group_->space().address_of<float>(buffers_[buffer]));
    const std::shared_ptr<void> owner(
        nullptr, [self = caf::actor(self_), buffer](void*) { caf::anon_send(self, Free::value, buffer); });
    self_->send(next_, Piece{number, Tensor(buffers_[buffer], {kNumbers}, DType::f32, {}, owner)});
  }

 private:
  caf::event_based_actor* self_ = nullptr;
  Group* group_ = nullptr;
  caf::actor next_;
  std::vector<Memory> buffers_;
  std::vector<std::uint64_t> free_;
  std::uint64_t credit_ = 0;
  std::uint64_t most_ = 0;
};

void say(const std::string& stage, std::uint64_t pieces, const Outlet* out, Clock::time_point begin) {
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  std::cout << stage << ": " << pieces << " tensors of 1 MiB in " << took.count() << " ms";
  if (out != nullptr) std::cout << ", at most " << out->most_in_flight() << " on their way to the next stage";
  std::cout << std::endl;
}

struct StageState {
  std::uint64_t pieces = 0;  // that go through the pipeline
  Outlet out;
  caf::actor before;
  std::deque<Piece> waiting;  // as many as this stage has given credit for
  std::uint64_t done = 0;
  Clock::time_point begin = Clock::now();
};
using Self = caf::stateful_actor<StageState>*;

void read_on(Self self) {
  auto& s = self->state;
  while (s.done < s.pieces && s.out.open()) {
    s.out.send(s.done, [&](float* numbers) { std::fill_n(numbers, kNumbers, static_cast<float>(s.done)); });
    ++s.done;
  }
  if (s.done < s.pieces || !s.out.empty()) return;
  say("reader", s.pieces, &s.out, s.begin);
  self->quit();
}

caf::behavior reader(Self self, Group* group, std::uint64_t pieces, const caf::actor& worker) {
  self->state.pieces = pieces;
  self->state.out.connect(self, *group, worker);
  return {[=](Credit, std::uint64_t count) { self->state.out.credit(count), read_on(self); },
          [=](Free, std::uint64_t buffer) { self->state.out.freed(buffer), read_on(self); }};
}

void work_on(Self self, Group& group) {
  auto& s = self->state;
  for (; !s.waiting.empty() && s.out.open(); s.waiting.pop_front(), ++s.done) {
    const Piece& piece = s.waiting.front();
    const float* in = group.space().address_of<float>(piece.numbers.memory());
    s.out.send(piece.number,
               [&](float* out) { std::transform(in, in + kNumbers, out, [](float x) { return 2 * x; }); });
    self->send(s.before, Credit::value, std::uint64_t{1});
  }
  if (s.done < s.pieces || !s.out.empty()) return;
  say("worker", s.pieces, &s.out, s.begin);
  self->quit();
}

caf::behavior worker(Self self, Group* group, std::uint64_t pieces, const caf::actor& writer) {
  self->state.pieces = pieces;
  self->state.out.connect(self, *group, writer);
  return {[=](Connect) {
            self->state.before = caf::actor_cast<caf::actor>(self->current_sender());
            self->send(self->state.before, Credit::value, kWindow);
          },
          [=](Piece& piece) { self->state.waiting.push_back(std::move(piece)), work_on(self, *group); },
          [=](Credit, std::uint64_t count) { self->state.out.credit(count), work_on(self, *group); },
          [=](Free, std::uint64_t buffer) { self->state.out.freed(buffer), work_on(self, *group); }};
}

/// Takes its time, without blocking a thread.
caf::behavior writer(Self self, Group* group, std::uint64_t pieces) {
  self->state.pieces = pieces;
  return {[=](Connect) {
            self->state.before = caf::actor_cast<caf::actor>(self->current_sender());
            self->send(self->state.before, Credit::value, kWindow);
          },
          [=](Piece& piece) {
            self->state.waiting.push_back(std::move(piece));
            if (self->state.waiting.size() == 1) self->delayed_send(self, kWriting, Written::value);
          },
          [=](Written) {
            auto& s = self->state;
            const Piece& piece = s.waiting.front();
            const float last = group->space().address_of<float>(piece.numbers.memory())[kNumbers - 1];
            if (piece.number != s.done || last != 2.0f * static_cast<float>(s.done)) {
              return self->quit(to_caf(Status{Code::corrupt, text("piece ", s.done, " is not as it should be")}));
            }
            s.waiting.pop_front();
            self->send(s.before, Credit::value, std::uint64_t{1});
            if (++s.done < s.pieces) {
              if (!s.waiting.empty()) self->delayed_send(self, kWriting, Written::value);
              return;
            }
            say("writer", s.pieces, nullptr, s.begin);
            self->quit();
          }};
}

caf::actor spawn_stage(Blocking& blocking, caf::actor_system& system, Group& group, std::uint64_t pieces) {
  const Deadline soon = Deadline::after(30s);
  switch (group.self().value) {
    case 0: return system.spawn(reader, &group, pieces, group.lookup(blocking, Peer{1}, "worker", soon));
    case 1: return system.spawn(worker, &group, pieces, group.lookup(blocking, Peer{2}, "writer", soon));
    default: return system.spawn(writer, &group, pieces);
  }
}

/// The number of pieces that the arguments ask for; nothing if they are not a number above 0.
std::optional<std::uint64_t> pieces_of(int argc, char** argv) {
  if (argc == 1) return 100;
  const std::string_view word = argv[1];
  std::uint32_t pieces = 0;
  const auto [end, error] = std::from_chars(word.begin(), word.end(), pieces);
  if (argc > 2 || error != std::errc() || end != word.end() || pieces == 0) return std::nullopt;
  return pieces;
}

/// Waits for the end of this process's stage. Throws the error with which it ended.
void await_end(caf::actor_system& system, const caf::actor& stage, std::uint64_t pieces) {
  caf::scoped_actor self(system);
  self->monitor(stage);
  Status why{Code::timeout, "the pipeline stands still"};
  self->receive([&](const caf::down_msg& down) { why = from_caf(down.reason); },
                caf::after(60s + 10 * pieces * kWriting) >> [&] { self->send_exit(stage, caf::exit_reason::kill); });
  if (!why.ok()) fail(why.code(), std::string(why.text()));
}

int main(int argc, char** argv) try {
  const auto pieces = pieces_of(argc, argv);
  TROUPE_CHECK(pieces, Code::invalid, "usage: example_pipeline [TENSORS] (RANK, WORLD_SIZE=3, ... in the environment)");
  caf::actor_system_config config;
  configure_group(config);
  add_messages(config, MessageName<Piece>{"pipeline.Piece"});
  caf::actor_system system(config);
  auto blocking = Blocking::on_thread("main");

  GroupOptions options = ucx_group_options();
  TROUPE_CHECK(options.place && options.place->world_size == 3, Code::invalid,
               "three processes make this pipeline: set RANK, WORLD_SIZE=3, LOCAL_RANK, MASTER_ADDR and MASTER_PORT");
  options.arena_bytes = kWindow * kNumbers * sizeof(float);
  const auto group = Group::join(blocking, system, std::move(options));

  const std::string name = std::array{"reader", "worker", "writer"}[group->self().value];
  caf::actor stage = spawn_stage(blocking, system, *group, *pieces);
  group->publish(name, stage);
  std::cout << name << ": ready" << std::endl;
  await_end(system, stage, *pieces);
  stage = {};
  const StopReport report = group->stop(blocking, Deadline::after(60s));
  return report.clean() ? 0 : exit_code(Code::peer_lost);
} catch (const Error& error) {
  std::cerr << "example_pipeline: " << error.what() << std::endl;
  return exit_code(error.code());
}
