#include "actors/plain_messages.hpp"

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

std::uint32_t id_of(std::string_view name) {
  std::uint32_t hash = 0x811c9dc5;  // FNV-1a, 32 bits: the same in every build and on every machine
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x01000193;
  return hash;
}

template <class T>
caf::mailbox_element_ptr make_container(caf::strong_actor_ptr sender, caf::message_id id,
                                        std::span<const std::byte> bytes, detail::Receipt&& receipt) {
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  return caf::mailbox_element_ptr{
      new detail::PlainElement<T>(std::move(sender), id, T(begin, begin + bytes.size()), std::move(receipt))};
}

template <class T>
std::span<const std::byte> view_container(const void* value) {
  return std::as_bytes(std::span(*static_cast<const T*>(value)));
}

/// All plain messages of the process. Actor systems share the registry, since types belong to the process.
class Registry {
 public:
  Registry() {
    add<std::uint64_t>("u64");
    add<std::int64_t>("i64");
    add<std::uint32_t>("u32");
    add<std::int32_t>("i32");
    add<double>("f64");
    add<float>("f32");
    add_container<std::string>("string");
    add_container<std::vector<char>>("bytes");
  }

  void add(std::string_view name, const caf::rtti_pair& type, std::uint32_t size_bytes, PlainMessage::Make make,
           PlainMessage::View view) {
    const std::scoped_lock hold(mutex_);
    const std::uint32_t id = id_of(name);
    const auto [entry, fresh] = by_id_.try_emplace(id, Named{std::string{name}, {id, size_bytes, make, view}});
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
    add(name, caf::make_rtti_pair<T>(), sizeof(T), &detail::make_plain<T>, &detail::view_plain<T>);
  }
  template <class T>
  void add_container(std::string_view name) {
    add(name, caf::make_rtti_pair<T>(), PlainMessage::kAnySize, &make_container<T>, &view_container<T>);
  }

  std::mutex mutex_;  // guards the members below; the entries themselves never change or move
  std::map<std::uint32_t, Named> by_id_;
  std::map<caf::rtti_pair, const PlainMessage*> by_type_;
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void detail::add_plain(std::string_view name, const caf::rtti_pair& type, std::uint32_t size_bytes,
                       PlainMessage::Make make, PlainMessage::View view) {
  registry().add(name, type, size_bytes, make, view);
}

const PlainMessage* find_plain(const caf::rtti_pair& type) { return registry().find(type); }
const PlainMessage* find_plain(std::uint32_t id) { return registry().find(id); }

}  // namespace troupe
