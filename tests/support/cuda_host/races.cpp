#include "tests/support/cuda_host/races.hpp"

#include <algorithm>
#include <sstream>

namespace troupe::cuda::host {

/// After it no segment lies across `at`. The first that begins at or behind it.
Races::Segments::iterator Races::cut_at(Address at) {
  auto next = segments_.lower_bound(at);
  if (next == segments_.begin()) return next;
  auto& [begin, segment] = *std::prev(next);
  if (segment.end <= at) return next;
  Segment rest = segment;
  segment.end = at;
  return segments_.emplace(at, std::move(rest)).first;
}

template <class Act>
void Races::for_each_piece(Range range, Act act) {
  cut_at(range.end());
  auto segment = cut_at(range.begin);
  for (Address at = range.begin; at < range.end();) {
    if (segment == segments_.end() || segment->first > at) {
      const Address end = segment == segments_.end() ? range.end() : std::min(range.end(), segment->first);
      segment = segments_.emplace(at, Segment{end, {}, {}}).first;
    }
    act(segment->second);
    at = segment->second.end;
    ++segment;
  }
}

void Races::check(const char* kind, const Use& past, Range range, const Clock& clock, const PlacePtr& place) {
  if (past.place == nullptr || clock.sees(past.moment)) return;
  std::ostringstream text;
  text << place->text() << " is not ordered behind " << past.place->text() << ", which used the same memory ("
       << range.size_bytes << " bytes at 0x" << std::hex << range.begin << ")";
  reports().add(kind, text.str());
}

void Races::reads(Range range, Moment now, const Clock& clock, const PlacePtr& place) {
  for_each_piece(range, [&](Segment& segment) {
    check("race, read after write", segment.write, range, clock, place);
    std::erase_if(segment.reads, [&](const Use& past) { return clock.sees(past.moment); });
    segment.reads.push_back({now, place});
  });
}

void Races::writes(Range range, Moment now, const Clock& clock, const PlacePtr& place) {
  for_each_piece(range, [&](Segment& segment) {
    check("race, write after write", segment.write, range, clock, place);
    for (const Use& past : segment.reads) check("race, write after read", past, range, clock, place);
    segment.write = {now, place};
    segment.reads.clear();
  });
  // A large range that is written again and again stays one segment.
  const auto first = segments_.lower_bound(range.begin);
  first->second.end = range.end();
  segments_.erase(std::next(first), segments_.lower_bound(range.end()));
}

void Races::reads_in_vain(Range range, Moment now, const PlacePtr& place) {
  vain_reads_.push_back({range, {now, place}});
}

void Races::frees(Range range, Moment now, const Clock& clock, const PlacePtr& place) {
  writes(range, now, clock, place);
  std::erase_if(vain_reads_, [&](const VainRead& past) {
    const bool overlaps = past.range.begin < range.end() && range.begin < past.range.end();
    if (overlaps) check("race, write after read", past.use, range, clock, place);
    return overlaps;
  });
  cut_at(range.end());
  segments_.erase(cut_at(range.begin), segments_.lower_bound(range.end()));
}

}  // namespace troupe::cuda::host
