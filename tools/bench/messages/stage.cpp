#include "tools/bench/messages/stage.hpp"
#include "tools/bench/messages/block.hpp"

namespace troupe::bench {
namespace {

template <class Payload>
Figures measure_latency(Blocking& blocking, const Stage& stage, const EndCase& what, const caf::actor& far,
                        Payload first, Clock::duration patience) {
  const auto trips = std::make_shared<RoundTrips>(latency_plan(what));
  auto bounce = std::make_shared<Bounce<Payload>>();
  bounce->echo = far;
  bounce->first = first;
  bounce->again = [trips] { return trips->again(); };
  bounce->same = [first](const Payload& x) { return x == first; };
  trips->begin();
  run_bounce(blocking, stage, bounce, patience);
  return latency_figures(*trips);
}

Figures measure_rate(Blocking& blocking, const Stage& stage, const EndCase& what, const caf::actor& far,
                     Clock::duration patience) {
  const auto counting = std::make_shared<Count>(far, Rate(what.span()));
  const Ending near(stage.spawn(count, counting));
  counting->rate.begin();
  caf::anon_send(near.get(), Go::value);
  counting->finish.wait(blocking, patience);
  return {{"kps", counting->rate.thousand_a_second()}};
}

Bytes bytes_of(const EndCase& what) {
  Bytes bytes(what.bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 167);
  return bytes;
}

Block block() {
  Block block;
  for (std::size_t i = 0; i < block.bytes.size(); ++i) block.bytes[i] = static_cast<char>(i * 167);
  return block;
}

bool is_number(const EndCase& what) { return what.bytes == sizeof(std::uint64_t); }
bool is_block(const EndCase& what) { return what.bytes == sizeof(Block); }

}  // namespace

void configure_one_worker(caf::actor_system_config& config) {
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{1});
  config.set("middleman.workers", std::size_t{1});
  config.set("logger.verbosity", caf::atom("quiet"));
}

caf::actor spawn_far(const Stage& stage, const EndCase& what) {
  if (what.what == "rate") return stage.spawn(counter);
  if (is_number(what)) return stage.spawn(echo<std::uint64_t>, std::optional<std::uint64_t>{});
  if (is_block(what)) return stage.spawn(echo<Block>, std::optional<Block>{});
  return stage.spawn(echo<Bytes>, std::optional<Bytes>{});
}

Figures measure_near(Blocking& blocking, const Stage& stage, const EndCase& what, const caf::actor& far,
                     Clock::duration patience) {
  if (what.what == "rate") return measure_rate(blocking, stage, what, far, patience);
  if (is_number(what)) return measure_latency(blocking, stage, what, far, std::uint64_t{42}, patience);
  if (is_block(what)) return measure_latency(blocking, stage, what, far, block(), patience);
  return measure_latency(blocking, stage, what, far, bytes_of(what), patience);
}

}  // namespace troupe::bench
