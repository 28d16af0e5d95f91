#include "actors/plain_messages.hpp"

#include <map>
#include <mutex>
#include <string>

#include "runtime/error.hpp"

namespace troupe {
namespace {

std::uint32_t id_of(std::string_view name) {
  std::uint32_t hash = 0x811c9dc5;  // FNV-1a, 32 bits: the same in every build and on every machine
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x01000193;
  return hash;
}

/// All plain messages of the process; systems share it, as types are the process's.
class Registry {
 public:
  Registry() {
    add<std::uint64_t>("u64");
    add<std::int64_t>("i64");
    add<std::uint32_t>("u32");
    add<std::int32_t>("i32");
    add<double>("f64");
    add<float>("f32");
  }

  void add(std::string_view name, const caf::rtti_pair& type, std::uint32_t size_bytes, PlainMessage::Make make) {
    const std::scoped_lock hold(mutex_);
    const std::uint32_t id = id_of(name);
    const auto [entry, fresh] = by_id_.try_emplace(id, Named{std::string{name}, {id, size_bytes, make}});
    TROUPE_CHECK(entry->second.name == name && entry->second.message.size_bytes == size_bytes, Code::invalid,
                 "the plain messages \"", name, "\" (", size_bytes, " bytes) and \"", entry->second.name, "\" (",
                 entry->second.message.size_bytes, " bytes) have one id; give one of them another name");
    const auto known = by_type_.try_emplace(type, &entry->second.message).first;
    TROUPE_CHECK(known->second->id == id, Code::invalid, "\"", name, "\" is the second name of a plain message");
  }
  const PlainMessage* find(const caf::rtti_pair& type) {
    const std::scoped_lock hold(mutex_);
    const auto found = by_type_.find(type);
    return found == by_type_.end() ? nullptr : found->second;
  }
  const PlainMessage* find(std::uint32_t id) {
    const std::scoped_lock hold(mutex_);
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &found->second.message;
  }

 private:
  struct Named {
    std::string name;
    PlainMessage message;
  };
  template <class T>
  void add(std::string_view name) {
    add(name, caf::make_rtti_pair<T>(), sizeof(T), &detail::make_plain<T>);
  }

  std::mutex mutex_;  // guards what follows; entries themselves never change or move
  std::map<std::uint32_t, Named> by_id_;
  std::map<caf::rtti_pair, const PlainMessage*> by_type_;
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void detail::add_plain(std::string_view name, const caf::rtti_pair& type, std::uint32_t size_bytes,
                       PlainMessage::Make make) {
  registry().add(name, type, size_bytes, make);
}

const PlainMessage* find_plain(const caf::rtti_pair& type) { return registry().find(type); }
const PlainMessage* find_plain(std::uint32_t id) { return registry().find(id); }

}  // namespace troupe
