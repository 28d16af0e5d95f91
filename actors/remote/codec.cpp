#include <caf/actor_system.hpp>
#include <caf/uniform_type_info_map.hpp>
#include <cstring>
#include <exception>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/bounded_reader.hpp"
#include "actors/remote/detail/codec.hpp"
#include "actors/remote/detail/exact_writer.hpp"

#include <cxxabi.h>

namespace troupe::remote {
namespace {

/// The head has space for more, but a tensor with more extents needs no fast path.
constexpr std::size_t kMostLoneExtents = 64;

std::string readable(const std::type_info& type) {
  int failed = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &failed),
                                                    std::free);
  return failed == 0 ? name.get() : type.name();
}

/// Runs user code (an inspect) and turns everything that it throws into a status: no exception may pass through the
/// transport's frames.
template <class Work>
Status guarded(const char* what, Work work) {
  try {
    if (const caf::error error = work()) return from_caf(error);
    return {};
  } catch (const Error& error) {
    return error.status();
  } catch (const std::exception& error) {
    return {Code::invalid, text(what, " a message failed: ", error.what())};
  } catch (...) {
    return {Code::invalid, text(what, " a message failed with an exception of unknown type")};
  }
}

}  // namespace

Status Codec::check(const caf::type_erased_tuple& content) {
  const auto& types = unit_.system().types();
  for (std::size_t i = 0; i < content.size(); ++i) {
    const caf::rtti_pair type = content.type(i);
    if (type.first != 0) continue;  // a type of CAF's
    const auto [entry, fresh] = known_.try_emplace(type.second, false);
    if (fresh) entry->second = types.portable_name(type) != types.default_type_name();
    if (!entry->second) {
      return {Code::unsupported,
              text("a message with a ", readable(*type.second),
                   " cannot leave this process: the type is not registered under a name (or stays in its "
                   "process); add it to the list given to add_messages in every process")};
    }
  }
  return {};
}

bool Codec::encode_plain(const caf::mailbox_element& message, std::vector<char>& bytes) {
  const caf::type_erased_tuple& content = message.content();
  if (content.size() != 1 || !message.stages.empty()) return false;
  const caf::rtti_pair type = content.type(0);
  const auto key = type.first != 0 ? type.first : reinterpret_cast<std::uintptr_t>(type.second);
  if (key != last_type_) {
    const auto [entry, fresh] = plain_types_.try_emplace(key, nullptr);
    if (fresh) entry->second = find_plain(type);
    last_type_ = key;
    last_sent_ = entry->second;
  }
  const PlainMessage* const plain = last_sent_;
  if (plain == nullptr) return false;
  const std::span<const std::byte> value = plain->view(content.get(0));
  const std::size_t begin = bytes.size();
  bytes.resize(begin + sizeof plain->id + value.size());
  std::memcpy(bytes.data() + begin, &plain->id, sizeof plain->id);
  if (!value.empty()) std::memcpy(bytes.data() + begin + sizeof plain->id, value.data(), value.size());
  return true;
}

Status Codec::decode_plain(std::span<const std::byte> bytes, caf::strong_actor_ptr sender, caf::message_id id,
                           troupe::detail::Receipt&& receipt, caf::mailbox_element_ptr& to) {
  std::uint32_t name = 0;
  if (bytes.size() < sizeof name) return {Code::corrupt, "a plain message without a type"};
  std::memcpy(&name, bytes.data(), sizeof name);
  if (last_arrived_ == nullptr || last_arrived_->id != name) {
    const auto found = plain_ids_.find(name);
    last_arrived_ = found != plain_ids_.end() ? found->second : find_plain(name);
    if (last_arrived_ != nullptr) plain_ids_.emplace(name, last_arrived_);
  }
  const PlainMessage* const plain = last_arrived_;
  if (plain == nullptr) {
    return {Code::unsupported,
            "a plain message of a type that is not registered here; give add_plain_messages the same list in every "
            "process"};
  }
  if (plain->size_bytes != PlainMessage::kAnySize && bytes.size() != sizeof name + plain->size_bytes) {
    return {Code::corrupt, text("a plain message of ", bytes.size() - sizeof name, " bytes instead of ",
                                plain->size_bytes, ": its sender is of another build")};
  }
  return guarded("reading", [&]() -> caf::error {  // reading a large message may fail to allocate
    to = plain->make(std::move(sender), id, bytes.subspan(sizeof name), std::move(receipt));
    return {};
  });
}

const Tensor* Codec::encode_lone(const caf::mailbox_element& message, std::vector<char>& bytes) {
  const caf::type_erased_tuple& content = message.content();
  if (content.size() != 1 || !message.stages.empty()) return nullptr;
  const caf::rtti_pair type = content.type(0);
  if (type.first != 0 || *type.second != typeid(Tensor)) return nullptr;
  const auto* const tensor = static_cast<const Tensor*>(content.get(0));
  const Tensor::Extents& extents = tensor->extents();
  if (!*tensor || extents.size() > kMostLoneExtents) return nullptr;
  const auto dtype = static_cast<std::uint64_t>(tensor->dtype());
  const std::size_t begin = bytes.size();
  bytes.resize(begin + sizeof dtype * (1 + extents.size()));
  std::memcpy(bytes.data() + begin, &dtype, sizeof dtype);
  if (!extents.empty()) std::memcpy(bytes.data() + begin + sizeof dtype, extents.data(), sizeof dtype * extents.size());
  return tensor;
}

Status Codec::decode_lone(std::span<const std::byte> bytes, detail::TensorSlots::Landed&& landed, Tensor& to) {
  std::uint64_t dtype = 0;
  const bool whole = bytes.size() >= sizeof dtype && bytes.size() % sizeof dtype == 0;
  if (whole) std::memcpy(&dtype, bytes.data(), sizeof dtype);
  if (!whole || !is_dtype(dtype)) return {Code::corrupt, "a tensor without a data type"};
  Tensor::Extents extents(bytes.size() / sizeof dtype - 1);
  if (!extents.empty()) std::memcpy(extents.data(), bytes.data() + sizeof dtype, bytes.size() - sizeof dtype);
  return guarded("reading", [&]() -> caf::error {
    to = Tensor{landed.memory,     std::move(extents),      static_cast<DType>(dtype),
                landed.valid_from, std::move(landed.owner), landed.kind};
    return {};
  });
}

Status Codec::encode(caf::mailbox_element& message, std::vector<char>& bytes) {
  if (Status wrong = check(message.content()); !wrong.ok()) return wrong;
  return guarded("writing", [&]() -> caf::error {
    ExactWriter sink(&unit_, bytes);
    if (!message.stages.empty()) {
      if (auto error = sink(message.stages)) return error;
    }
    return caf::message::save(sink, message.content());
  });
}

void Codec::encode(const caf::error& error, std::vector<char>& bytes) {
  const std::size_t begin = bytes.size();
  const auto write = [&](caf::error value) {
    return guarded("writing", [&] {
      bytes.resize(begin);
      ExactWriter sink(&unit_, bytes);
      return sink(value);
    });
  };
  if (!write(error).ok()) write(caf::error(error.code(), error.category()));
}

Status Codec::decode(std::span<const std::byte> bytes, bool has_stages, Decoded& to) {
  return guarded("reading", [&]() -> caf::error {
    BoundedReader source(unit_, bytes, own_node_);
    if (has_stages) {
      if (auto error = source(to.stages)) return error;
    }
    if (auto error = to.content.load(source)) return error;  // source(to.content) would hide it
    return source.refusal();
  });
}

Status Codec::decode(std::span<const std::byte> bytes, caf::error& to) {
  return guarded("reading", [&]() -> caf::error {
    BoundedReader source(unit_, bytes, own_node_);
    if (auto error = source(to)) return error;
    return source.refusal();
  });
}

}  // namespace troupe::remote
