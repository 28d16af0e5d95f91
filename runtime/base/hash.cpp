#include "runtime/base/hash.hpp"

#include <xxhash.h>
#if TROUPE_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // after xxhash.h: its names stand for the functions that choose
#endif

namespace troupe {

std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Xxh3::State {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> xxh{XXH3_createState(), &XXH3_freeState};
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { XXH3_64bits_reset(state_->xxh.get()); }

Xxh3::~Xxh3() = default;

void Xxh3::add(std::span<const std::byte> bytes) noexcept {
  XXH3_64bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}

std::uint64_t Xxh3::value() const noexcept { return XXH3_64bits_digest(state_->xxh.get()); }

}  // namespace troupe
