#include "runtime/exchange/policies/hosted_worker.hpp"

#include <algorithm>
#include <functional>

#include "runtime/base/error.hpp"

namespace troupe {

HostedWorker::HostedWorker(Rank self, std::size_t shards, std::uint64_t clock, std::uint64_t sequence,
                           std::uint64_t barriers)
    : self_(self), sequence_(sequence), barriers_(barriers), answered_(shards), content_(shards) {
  TROUPE_CHECK(shards > 0, Code::invalid, "rank ", self.value, " has no shards to read from");
  pulled_.clock = clock;
  pulled_.versions.resize(shards);
}

HostedRead HostedWorker::await(std::uint64_t clock, bool is_barrier) {
  pulled_.clock = clock;
  left_ = answered_.size();
  std::fill(answered_.begin(), answered_.end(), false);
  barrier_ = is_barrier ? ++barriers_ : 0;
  return {self_, clock, barrier_};
}

void HostedWorker::check_idle(const char* what) const {
  TROUPE_CHECK(begun_ && left_ == 0, Code::invalid, "rank ", self_.value, " ", what, " while ",
               begun_ ? left_ : answered_.size(), " shards have not answered its read at clock ", pulled_.clock);
}

HostedRead HostedWorker::begin() {
  TROUPE_CHECK(!begun_, Code::invalid, "rank ", self_.value, " begins a second time, at clock ", pulled_.clock);
  begun_ = true;
  return await(pulled_.clock, false);
}

HostedRead HostedWorker::read_at_barrier() {
  check_idle("reads at a barrier");
  looks_ = true;
  return await(pulled_.clock, true);
}

HostedWorker::Round HostedWorker::contribute(bool is_barrier) {
  check_idle("contributes");
  looks_ = false;
  Round round;
  ++sequence_;
  for (const std::uint64_t version : pulled_.versions)
    round.pushes.push_back({self_, sequence_, pulled_.clock, version});
  round.read = await(pulled_.clock + 1, is_barrier);
  return round;
}

bool HostedWorker::answered(std::size_t shard, const AnswerRead& answer) {
  TROUPE_CHECK(shard < answered_.size() && answer.worker == self_ && answer.clock <= pulled_.clock, Code::invalid,
               "shard ", shard, " of ", answered_.size(), " answers rank ", answer.worker.value, " at clock ",
               answer.clock, "; rank ", self_.value, " reads at clock ", pulled_.clock);
  if (left_ == 0 || answered_[shard] || answer.clock != pulled_.clock || answer.barrier != barrier_) return false;
  answered_[shard] = true;
  if (!looks_) pulled_.versions[shard] = answer.version;
  content_[shard] = answer.content;
  if (--left_ > 0) return false;
  pulled_.one_version = std::adjacent_find(content_.begin(), content_.end(), std::not_equal_to<>{}) == content_.end();
  return true;
}

std::vector<std::size_t> HostedWorker::missing() const {
  std::vector<std::size_t> shards;
  for (std::size_t s = 0; left_ > 0 && s < answered_.size(); ++s)
    if (!answered_[s]) shards.push_back(s);
  return shards;
}

}  // namespace troupe
