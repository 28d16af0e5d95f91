#include "devices/cpu/places.hpp"

#include <algorithm>

namespace troupe::cpu {

using dnnl::memory;

memory Places::take(const memory::desc& desc) {
  const std::size_t index = taken_.size();
  const bool serves =
      room_ != nullptr && index < room_->taken_.size() && room_->taken_[index].get_desc().get_size() >= desc.get_size();
  return taken_.emplace_back(serves ? memory{desc, engine_, room_->taken_[index].get_data_handle()}
                                    : memory{desc, engine_});
}

memory Places::share(SharedUse use, const memory::desc& desc) {
  return shared_[static_cast<std::size_t>(use)].parts.emplace_back(desc, engine_, nullptr);
}

memory Places::field(std::size_t index, const memory::desc& desc) {
  if (fields_.size() <= index) fields_.resize(index + 1);
  return fields_[index].emplace_back(desc, engine_, nullptr);
}

void Places::set_field(std::size_t index, void* first) {
  if (index >= fields_.size()) return;
  for (const memory& part : fields_[index]) part.set_data_handle(first);
}

void Places::settle() {
  for (std::size_t use = 0; use < kUses; ++use) {
    Shared& shared = shared_[use];
    for (const memory& part : shared.parts) shared.size_bytes = std::max(shared.size_bytes, part.get_desc().get_size());
    if (shared.size_bytes == 0) continue;
    if (room_ != nullptr && room_->shared_[use].size_bytes >= shared.size_bytes) {
      shared.first = room_->shared_[use].first;
    } else {
      const memory::desc bytes{
          {static_cast<memory::dim>(shared.size_bytes)}, memory::data_type::u8, memory::format_tag::a};
      shared.whole = memory{bytes, engine_};
      shared.first = shared.whole.get_data_handle();
    }
    for (const memory& part : shared.parts) part.set_data_handle(shared.first);
  }
}

}  // namespace troupe::cpu
