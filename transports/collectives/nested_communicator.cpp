#include "transports/collectives/nested_communicator.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/exchange/exchange.hpp"

namespace troupe {
namespace {

/// How many buckets' parameters are held back for the sums of later ones: while one is on its way between the nodes,
/// another's messages are prepared, and a third one's are still arriving.
constexpr std::size_t kMostBehind = 2;

}  // namespace

/// Told when a bucket was given out. A stream that has failed raises no line, so then the line is poisoned.
struct NestedCommunicator::Failure final : Waker {
  explicit Failure(NestedCommunicator& its_owner) : owner(its_owner) {}
  void reached(Point, Status status) noexcept override {
    if (!status.ok()) owner.end_node(status);
  }

  NestedCommunicator& owner;
};

NestedCommunicator::NestedCommunicator(AddressSpace& space, Stream& node_stream, NestedGroup group,
                                       std::unique_ptr<Communicator> within, std::vector<Counterparts> sets)
    : space_(space),
      node_stream_(node_stream),
      group_(std::move(group)),
      within_(std::move(within)),
      sets_(std::move(sets)),
      roles_(group_.between, group_.members, group_.rank),
      updated_(space.timeline(group_.updated)),
      join_(space),
      failure_(std::make_unique<Failure>(*this)) {
  TROUPE_CHECK(!sets_.empty() && within_->ranks() == group_.members.size(), Code::invalid, "rank ", group_.rank.value,
               " has ", sets_.size(), " sets of counterparts, and a communicator of ", within_->ranks(), " of the ",
               group_.members.size(), " ranks of its node");
  for (const Bucket& bucket : group_.buckets) {
    std::vector<Stripe>& parts = shares_.emplace_back();
    for (const Stripe& stripe : group_.stripes) {
      Stripe part = common_part(stripe, bucket);
      if (part.count == 0) continue;
      part.owner = Rank{roles_.host_of(stripe.owner)};
      parts.push_back(part);
    }
  }
}

NestedCommunicator::~NestedCommunicator() = default;

CommunicatorTraits NestedCommunicator::traits() const noexcept {
  const auto takes_it = [](const Counterparts& set) { return set.communicator->traits().device_memory; };
  return {.rank_ordered = false,
          .device_memory = within_->traits().device_memory && std::all_of(sets_.begin(), sets_.end(), takes_it)};
}

/// After this, the node's stream may read the bucket's gradients and overwrite its parameters.
void NestedCommunicator::take_over(Stream& stream, const BucketWork& work) {
  TROUPE_CHECK(work.bucket.index < shares_.size() && work.bucket == group_.buckets[work.bucket.index], Code::invalid,
               "step ", work.step.value, ", bucket ", work.bucket.index, ": the group has no such bucket");
  node_stream_.about({work.step.value, work.bucket.index});
  node_stream_.wait(stream.mark());
}

/// Adds up the members' `sums`; their counterparts' sums are added in the exchange between nodes.
void NestedCommunicator::sum_up_node(const BucketWork& work, const Memory& sums) {
  BucketWork of_node = work;
  of_node.sums = sums;
  of_node.total = group_.node_sums;
  node_stream_.wait(within_->agree(node_stream_, of_node));
}

/// The members' shares of a bucket, of which `of_bucket` are the f32.
std::vector<OwnedPart> NestedCommunicator::shares(std::uint32_t bucket, const Memory& of_bucket) const {
  std::vector<OwnedPart> parts;
  for (const Stripe& part : shares_[bucket])
    parts.push_back(
        {part.owner, elements(of_bucket, part.first - group_.buckets[bucket].first, part.count, sizeof(float))});
  return parts;
}

/// There may be none.
Point NestedCommunicator::joined(std::vector<Point> points) {
  if (points.empty()) points.push_back(node_stream_.mark());
  return join_.join(points);
}

// ---- Giving out parameters ----

Point NestedCommunicator::give_out_later(const BucketWork& work, std::vector<Point> exchanged) {
  behind_.push_back({{work.step.value, work.bucket.index}, std::move(exchanged)});
  if (++passed_ == group_.buckets.size()) give_out_all();
  for (; behind_.size() > kMostBehind; behind_.pop_front()) give_out(behind_.front());
  return {group_.updated, ++calls_};
}

/// The other members' image in 16 bits follows from their parameters.
void NestedCommunicator::give_out(const Behind& next) {
  const Bucket& bucket = group_.buckets[next.label.bucket];
  node_stream_.about(next.label);
  for (const Point& point : next.exchanged) node_stream_.wait(point);
  within_->all_gather(node_stream_,
                      shares(bucket.index, elements(group_.parameters, bucket.first, bucket.count, sizeof(float))));
  for (const Stripe& part : shares_[bucket.index]) {
    if (group_.half.size_bytes == 0 || part.owner == within_->rank()) continue;
    node_stream_.convert({elements(group_.half, part.first, part.count, size_bytes(group_.copy_type)), group_.copy_type,
                          elements(group_.parameters, part.first, part.count, sizeof(float)), DType::f32});
  }
  node_stream_.signal({group_.updated, ++given_out_});
  const Point done = node_stream_.mark();
  space_.timeline(done.line).wake(done.value, *failure_);
}

void NestedCommunicator::give_out_all() {
  for (; !behind_.empty(); behind_.pop_front()) give_out(behind_.front());
  passed_ = 0;
}

// ---- The synchronous step ----

Point NestedCommunicator::reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  take_over(stream, work);
  if (work.first) sum_up_node(work, work.sums);
  within_->reduce_scatter(node_stream_, shares(work.bucket.index, work.gradients));
  std::vector<Point> exchanged;
  for_each_range(sets_, work, rank(), [&](Counterparts& set, BucketWork& part) {
    part.sums = group_.node_sums;
    exchanged.push_back(set.communicator->reduce_update_gather(node_stream_, part, rule));
  });
  return give_out_later(work, std::move(exchanged));
}

/// Each rank's gradient is available only here, so here it is found whose gradient is not finite. Squares are added up
/// by the owners of the whole sum.
Point NestedCommunicator::gather_gradients(Stream& stream, const BucketWork& work) {
  give_out_all();
  take_over(stream, work);
  if (work.first) node_stream_.clear(group_.found);
  node_stream_.reduce(work.gradients, {&work.gradients, 1},
                      {group_.found, work.bucket.first, {&group_.rank, 1}, /*squares=*/false});
  within_->reduce_scatter(node_stream_, shares(work.bucket.index, work.gradients));
  std::vector<Point> gathered;
  for_each_range(sets_, work, rank(), [&](Counterparts& set, BucketWork& part) {
    gathered.push_back(set.communicator->gather_gradients(node_stream_, part));
  });
  measured_.push_back(joined(std::move(gathered)));
  return measured_.back();
}

Point NestedCommunicator::agree(Stream& stream, const BucketWork& work) {
  give_out_all();
  node_stream_.about({.step = work.step.value});
  node_stream_.wait(stream.mark());
  for (const Point& point : std::exchange(measured_, {})) node_stream_.wait(point);
  node_stream_.sum_up(group_.verdict, std::array{work.sums, group_.found});
  sum_up_node(work, group_.verdict);
  std::vector<Point> agreed;
  for (Counterparts& set : sets_) {
    BucketWork part = work;
    part.bucket = set.group.ranges_of(work.bucket.index).front();
    part.sums = group_.node_sums;
    agreed.push_back(set.communicator->agree(node_stream_, part));
  }
  return joined(std::move(agreed));
}

Point NestedCommunicator::update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  take_over(stream, work);
  std::vector<Point> exchanged;
  for_each_range(sets_, work, rank(), [&](Counterparts& set, BucketWork& part) {
    exchanged.push_back(set.communicator->update_gather(node_stream_, part, rule));
  });
  return give_out_later(work, std::move(exchanged));
}

// ---- Plain operations ----

/// On the node's stream, because the calls of its communicator have one order.
template <class Operation>
void NestedCommunicator::on_node(Stream& stream, Operation&& operation) {
  give_out_all();
  node_stream_.wait(stream.mark());
  operation();
  stream.wait(node_stream_.mark());
}

void NestedCommunicator::reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) {
  on_node(stream, [&] {
    within_->reduce_scatter(node_stream_, roles_.within_node(parts));
    for (Counterparts& set : sets_) set.communicator->reduce_scatter(node_stream_, roles_.between_nodes(set, parts));
  });
}

void NestedCommunicator::all_gather(Stream& stream, std::span<const OwnedPart> parts) {
  on_node(stream, [&] {
    for (Counterparts& set : sets_) set.communicator->all_gather(node_stream_, roles_.between_nodes(set, parts));
    within_->all_gather(node_stream_, roles_.within_node(parts));
  });
}

void NestedCommunicator::barrier(Stream& stream) {
  on_node(stream, [&] {
    within_->barrier(node_stream_);
    for (Counterparts& set : sets_) set.communicator->barrier(node_stream_);
    within_->barrier(node_stream_);
  });
}

// ---- The end ----

void NestedCommunicator::abort(const Status& why) noexcept {
  for (const Counterparts& set : sets_) set.communicator->abort(why);
  end_node(why);
}

/// May be called while another communicator reports its failure, so it leaves those between nodes alone.
void NestedCommunicator::end_node(const Status& why) noexcept {
  within_->abort(why);
  updated_.poison(why);
}

}  // namespace troupe
