#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>

#include "runtime/planning/detail/exchange_timeline.hpp"

namespace troupe::detail {
namespace {

/// A part of a bucket that is being sent. The part that the next step reads first is sent first.
struct Piece {
  std::size_t bucket = 0;
  std::size_t order = 0;  // position in the order in which the next step reads
  std::uint64_t elements = 0;
  double since_s = 0;  // the earliest time at which it may be sent
};
struct Later {
  bool operator()(const Piece& a, const Piece& b) const { return a.since_s > b.since_s; }
};
struct LessUrgent {
  bool operator()(const Piece& a, const Piece& b) const { return a.order > b.order; }
};

/// Pieces of one kind: later ones by time, and those that may be sent now by urgency.
class Waiting {
 public:
  void add(const Piece& piece) { coming_.push(piece); }
  bool empty() const { return coming_.empty() && ready_.empty(); }
  bool has_ready(double now) {
    for (; !coming_.empty() && coming_.top().since_s <= now; coming_.pop()) ready_.push(coming_.top());
    return !ready_.empty();
  }
  double next_s() const { return coming_.empty() ? std::numeric_limits<double>::infinity() : coming_.top().since_s; }
  Piece take() {
    const Piece piece = ready_.top();
    ready_.pop();
    return piece;
  }

 private:
  std::priority_queue<Piece, std::vector<Piece>, Later> coming_;
  std::priority_queue<Piece, std::vector<Piece>, LessUrgent> ready_;
};

double compute_s(std::span<const LayerTime> layers) {
  double seconds = 0;
  for (const LayerTime& layer : layers) seconds += layer.forward_s + layer.backward_s;
  return seconds;
}

/// The times at which each bucket's gradients, or deltas, are written.
template <class B>
std::vector<double> written_s(std::span<const LayerTime> layers, std::span<const B> buckets, double step_end_s) {
  std::vector<double> at_layer(layers.size());  // when the backward pass has passed it
  double now = 0;
  for (const LayerTime& layer : layers) now += layer.forward_s;
  for (std::size_t l = layers.size(); l-- > 0;) at_layer[l] = now += layers[l].backward_s;
  std::vector<double> when;
  for (const B& bucket : buckets)
    when.push_back(bucket.at_end || bucket.first_layer >= layers.size() ? step_end_s : at_layer[bucket.first_layer]);
  return when;
}

void cut(Waiting& into, const Piece& whole, std::uint64_t most) {
  for (std::uint64_t done = 0; done < whole.elements; done += most) {
    Piece piece = whole;
    piece.elements = std::min(most, whole.elements - done);
    into.add(piece);
  }
}

}  // namespace

ExchangeTimeline exchange_timeline(std::span<const LayerTime> layers, std::span<const ExchangedBucket> buckets,
                                   const ExchangeLink& link, double tail_s) {
  if (link.nodes < 2 || buckets.empty()) return {};
  const double step_end_s = compute_s(layers) + tail_s;

  std::vector<std::size_t> order(buckets.size());
  for (std::size_t b = 0; b < buckets.size(); ++b)
    order[b] =
        static_cast<std::size_t>(std::count_if(buckets.begin(), buckets.end(), [&](const ExchangedBucket& other) {
          return other.first_layer < buckets[b].first_layer;
        }));
  Waiting contributions, results;
  const std::vector<double> written = written_s(layers, buckets, step_end_s);
  for (std::size_t b = 0; b < buckets.size(); ++b)
    cut(contributions,
        {b, order[b], buckets[b].elements,
         written[b] + link.reduce_s_per_element * static_cast<double>(buckets[b].elements)},
        std::max<std::uint64_t>(1, link.chunk_elements));

  // A node owns 1/n of each chunk; it sends the other parts as contributions, and its own part as the result.
  const double others = static_cast<double>(link.nodes - 1) / link.nodes;
  ExchangeTimeline timeline;
  std::vector<double> arrived(buckets.size(), 0);
  // Two resources: the link sends one piece at a time, and the updater updates one at a time. A contribution is sent
  // before a result, because without it the owner cannot update; a result may be sent once it is updated.
  double now = 0, updater_free_s = 0;
  while (!contributions.empty() || !results.empty()) {
    const bool sends_contribution = contributions.has_ready(now);
    if (!sends_contribution && !results.has_ready(now)) {
      now = std::min(contributions.next_s(), results.next_s());
      continue;
    }
    Piece piece = sends_contribution ? contributions.take() : results.take();
    const double elements = static_cast<double>(piece.elements) * others;
    const double span =
        elements * (sends_contribution ? link.sent_bytes_per_element : sizeof(float)) / link.bytes_per_second;
    now += span;
    timeline.link_busy_s += span;
    const double there = now + link.latency_s;
    if (!sends_contribution) {
      arrived[piece.bucket] = std::max(arrived[piece.bucket], there);
      continue;
    }
    updater_free_s =
        std::max(updater_free_s, there) + link.update_s_per_element * static_cast<double>(piece.elements) / link.nodes;
    piece.since_s = updater_free_s;
    results.add(piece);
  }

  double next = step_end_s;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (std::size_t b = 0; b < buckets.size(); ++b)
      if (buckets[b].first_layer == l) next = std::max(next, arrived[b]);
    next += layers[l].forward_s;
  }
  double forward_s = 0;
  for (const LayerTime& layer : layers) forward_s += layer.forward_s;
  timeline.exposed_s = next - step_end_s - forward_s;
  return timeline;
}

double exposed_calls_s(std::span<const LayerTime> layers, std::span<const TimedBucket> buckets) {
  const double pass_end_s = compute_s(layers);
  const std::vector<double> written = written_s(layers, buckets, pass_end_s);
  std::vector<std::size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t b) { return written[b]; });
  double end_s = pass_end_s, free_s = 0;
  for (const std::size_t b : order) end_s = std::max(end_s, free_s = std::max(free_s, written[b]) + buckets[b].seconds);
  return end_s - pass_end_s;
}

}  // namespace troupe::detail
