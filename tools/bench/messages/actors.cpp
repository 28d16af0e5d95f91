#include <atomic>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/side.hpp"

namespace troupe::bench {
namespace {

std::shared_ptr<Bounce<Tensor>> tensor_bounce(Side& side, const caf::actor& far) {
  auto bounce = std::make_shared<Bounce<Tensor>>();
  bounce->echo = far;
  bounce->first = side.tensor();
  bounce->same = [&side, first = bounce->first](const Tensor& x) { return side.same(x, first); };
  return bounce;
}

Figures tensor_latency(Blocking& blocking, Side& side, const EndCase& what, const caf::actor& far,
                       Clock::duration patience) {
  const auto trips = std::make_shared<RoundTrips>(latency_plan(what));
  const auto bounce = tensor_bounce(side, far);
  // A tensor that came by reference is the other end's: to send that back would lend out what is lent.
  bounce->first_again = what.impl == "arena";
  bounce->again = [trips] { return trips->again(); };
  trips->begin();
  run_bounce(blocking, side.stage(), bounce, patience);
  return latency_figures(*trips);
}

/// What streams beside the small messages.
struct Load {
  std::atomic<std::uint64_t> echoes{0};
  std::atomic<bool> over{false};
};

/// Numbers to one actor while tensors go to another.
Figures mixed_latency(Blocking& blocking, Side& side, const EndCase& what, Clock::duration patience) {
  const caf::actor small = side.find(blocking, "far", patience);
  const auto load = std::make_shared<Load>();
  const auto stream = tensor_bounce(side, side.find(blocking, "bulk", patience));
  stream->again = [load] {
    ++load->echoes;
    return !load->over.load();
  };
  const Ending streaming(side.stage().spawn(bounce<Tensor>, stream));
  caf::anon_send(streaming.get(), Go::value);

  const auto trips = std::make_shared<RoundTrips>(RoundTrips::Plan{1, what.span()});
  const auto bounce = std::make_shared<Bounce<std::uint64_t>>();
  bounce->echo = small;
  bounce->again = [trips] { return trips->again(); };
  bounce->same = [](std::uint64_t x) { return x == 0; };
  const Throughput throughput(load->echoes);
  trips->begin();
  run_bounce(blocking, side.stage(), bounce, patience);
  Figures figures = spread_figures(*trips);
  figures["gb_s"] = throughput.gb_s();
  load->over = true;
  stream->finish.wait(blocking, patience);
  TROUPE_CHECK(stream->intact, Code::corrupt, "a tensor came back with other content");
  return figures;
}

bool has_tensor(const EndCase& what) { return what.impl == "arena" || what.as_tensor(); }

Figures run_client(Blocking& blocking, Side& side, const EndCase& what, Line& line) {
  const Clock::duration patience = line.patience();
  if (what.what == "mixed") return mixed_latency(blocking, side, what, patience);
  const caf::actor far = side.find(blocking, "far", patience);
  if (what.what == "idle") return idle_cores(blocking, what, line);
  if (has_tensor(what)) return tensor_latency(blocking, side, what, far, patience);
  return measure_near(blocking, side.stage(), what, far, patience);
}

}  // namespace

Figures run_actors(Blocking& blocking, const EndCase& what, Line& line) {
  Side side(blocking, what, line);
  Figures figures;
  if (what.client) {
    figures = run_client(blocking, side, what, line);
    line.meet(blocking);
  } else {
    const Stage stage = side.stage();
    const std::optional<Tensor> own = what.impl == "arena" ? std::optional{side.tensor()} : std::nullopt;
    const bool tensors = what.what == "latency" && has_tensor(what);
    const Ending far(tensors ? stage.spawn(echo<Tensor>, own) : spawn_far(stage, what));
    const Ending bulk(stage.spawn(echo<Tensor>, std::optional<Tensor>{}));
    side.publish("far", far.get());
    side.publish("bulk", bulk.get());
    if (what.what == "idle") idle_cores(blocking, what, line);
    line.meet(blocking);
  }
  return figures;
}

}  // namespace troupe::bench
