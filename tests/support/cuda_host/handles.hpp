#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tests/support/cuda_host/reports.hpp"

namespace troupe::cuda::host {

/// What stands behind the handles of one kind. A handle is a number that is never given twice, so one that has ended is
/// told from one that never was. Guarded by Process::mutex.
template <class T, class Handle>
class Handles {
 public:
  struct Entry {
    std::shared_ptr<T> object;  // null: ended
    PlacePtr made;
    PlacePtr ended;
  };

  explicit Handles(const char* name) : name_(name) {}

  Handle add(std::shared_ptr<T> object, const PlacePtr& place) {
    last_ += 64;
    entries_[last_] = {std::move(object), place, nullptr};
    return reinterpret_cast<Handle>(last_);
  }
  /// Null: there is none, which is a report.
  std::shared_ptr<T> find(Handle handle, const PlacePtr& place) {
    const auto found = entries_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found != entries_.end() && found->second.object != nullptr) return found->second.object;
    if (found == entries_.end())
      reports().add("unknown handle", place->text() + " was given what is not " + name_);
    else
      reports().add("use after destruction", place->text() + " was given " + name_ + " from " +
                                                 found->second.made->text() + ", which " + found->second.ended->text() +
                                                 " has destroyed");
    return nullptr;
  }
  /// find(), and its end.
  std::shared_ptr<T> end(Handle handle, const PlacePtr& place) {
    std::shared_ptr<T> object = find(handle, place);
    if (object == nullptr) return nullptr;
    Entry& entry = entries_[reinterpret_cast<std::uintptr_t>(handle)];
    entry.object = nullptr;
    entry.ended = place;
    return object;
  }
  template <class Act>
  void for_each(Act&& act) {
    for (auto& [handle, entry] : entries_)
      if (entry.object != nullptr) act(*entry.object);
  }
  void report_leaks() const {
    for (const auto& [handle, entry] : entries_)
      if (entry.object != nullptr)
        reports().add("leak", std::string{"the process ends with "} + name_ + " from " + entry.made->text());
  }

 private:
  const char* const name_;
  std::uintptr_t last_ = 0xcda000000000;  // looks like no address that there is
  std::map<std::uintptr_t, Entry> entries_;
};

}  // namespace troupe::cuda::host
