#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "runtime/base/thread.hpp"
#include "runtime/memory/memory_limit.hpp"
#include "tools/rttopo/bench/measures.hpp"

namespace troupe::rttopo {
namespace {

using topology::CopyFigure;

constexpr std::uint64_t kCacheBlock = std::uint64_t{4} << 20;    // about the size of a core's own caches
constexpr std::uint64_t kMiddleBlock = std::uint64_t{32} << 20;  // fits into a last-level cache that a few cores share
constexpr std::uint64_t kLeastLarge = std::uint64_t{256} << 20;
constexpr std::uint32_t kTimesTheCache = 8;

struct CopyCase {
  std::vector<std::uint32_t> cpus;    // one of each core that copies
  std::vector<std::uint32_t> memory;  // of the memory's node
  std::uint64_t bytes = 0;            // source and target of one core together
};

/// One core's source and target, in the memory of a NUMA node: a thread that runs on that node writes them first.
class Block {
 public:
  Block(std::uint64_t bytes, const std::vector<std::uint32_t>& cpus)
      : half_(bytes / 2),
        from_(std::make_unique_for_overwrite<std::byte[]>(half_)),
        to_(std::make_unique_for_overwrite<std::byte[]>(half_)) {
    std::thread first = start_thread("bench", [this] {
      std::memset(from_.get(), 1, half_);
      std::memset(to_.get(), 2, half_);
    });
    keep_on(first, cpus, "the thread that fills memory");
    first.join();
  }
  void copy() const { std::memcpy(to_.get(), from_.get(), half_); }
  std::uint64_t bytes() const noexcept { return 2 * half_; }

 private:
  std::uint64_t half_;
  std::unique_ptr<std::byte[]> from_;
  std::unique_ptr<std::byte[]> to_;
};

/// The seconds that every core takes to copy its block `times` times, all at the same time.
double seconds_of(const std::vector<std::unique_ptr<Block>>& blocks, const std::vector<std::uint32_t>& cpus,
                  std::uint64_t times) {
  std::barrier together{static_cast<std::ptrdiff_t>(cpus.size())};
  std::vector<Clock::time_point> begun(cpus.size()), ended(cpus.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    threads.push_back(start_thread("bench", [&, i] {
      blocks[i]->copy();  // once to fill caches and page tables, and until the thread is on its CPU
      together.arrive_and_wait();
      begun[i] = Clock::now();
      for (std::uint64_t t = 0; t < times; ++t) blocks[i]->copy();
      ended[i] = Clock::now();
    }));
    keep_on(threads.back(), {&cpus[i], 1}, "a thread that copies");
  }
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(*std::max_element(ended.begin(), ended.end()) -
                                       *std::min_element(begun.begin(), begun.end()))
      .count();
}

topology::Repeats rate_of(const Measuring& how, const CopyCase& what) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::size_t i = 0; i < what.cpus.size(); ++i) blocks.push_back(std::make_unique<Block>(what.bytes, what.memory));
  const double one = std::max(1e-7, seconds_of(blocks, what.cpus, 1));
  const double span = std::chrono::duration<double>(how.span).count();
  const auto times = static_cast<std::uint64_t>(std::clamp(span / one, 1.0, 1e6));
  std::vector<double> rates;
  for (std::uint32_t r = 0; r < how.repeats; ++r) {
    how.check_stop();
    const double bytes = static_cast<double>(blocks.front()->bytes()) * static_cast<double>(times * what.cpus.size());
    rates.push_back(bytes / std::max(1e-9, seconds_of(blocks, what.cpus, times)));
  }
  return topology::repeats_of(rates);
}

std::string in_gigabytes(double rate) { return fmt::format("{:.3g} GB/s", rate / 1e9); }

}  // namespace

std::vector<CopyFigure> measure_copies(const Measuring& how, const Topology& topology) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> cpus;  // the first CPU of each core, by the node's number
  for (const Core& core : topology.cores) {
    if (core.cpus.empty()) continue;
    const std::uint32_t numa = core.numa < topology.numa.size() ? topology.numa[core.numa].os_index : 0;
    cpus[numa].push_back(core.cpus.front());
  }
  std::uint64_t large = std::max<std::uint64_t>(kLeastLarge, kTimesTheCache * topology.l3_bytes);
  const std::uint64_t room = memory_limit_bytes() / 4 / std::max<std::uint64_t>(1, topology.cores.size());
  large = std::max(kMiddleBlock, std::min(large, room));
  std::vector<CopyFigure> figures;
  const auto measure = [&](std::uint32_t of, std::uint32_t in, std::size_t cores, std::uint64_t bytes) {
    CopyCase what{.cpus = cpus[of], .memory = cpus[in], .bytes = bytes};
    what.cpus.resize(cores);
    figures.push_back({of, in, static_cast<std::uint32_t>(cores), bytes, rate_of(how, what)});
    const CopyFigure& figure = figures.back();
    how.say(fmt::format("memory   NUMA {}{}, {} core{}, {} MiB each: {}", of,
                        of == in ? "" : fmt::format(" in the memory of NUMA {}", in), cores, cores == 1 ? "" : "s",
                        bytes >> 20, in_gigabytes(figure.bytes_per_second.median)));
  };
  for (const auto& [numa, own] : cpus) {
    for (const std::uint64_t bytes : {kCacheBlock, kMiddleBlock, large}) {
      measure(numa, numa, 1, bytes);
      if (own.size() > 1) measure(numa, numa, own.size(), bytes);
    }
  }
  for (const auto& [from, mine] : cpus)
    for (const auto& [to, theirs] : cpus)
      if (from != to) measure(from, to, mine.size(), std::max(kMiddleBlock, large / 2));
  return figures;
}

}  // namespace troupe::rttopo
