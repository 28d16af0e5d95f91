#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace troupe::bootstrap {

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;

/// Which end of a connection proves something: part of what is proved, so that a proof cannot be sent back as one's
/// own.
enum class Role : std::uint8_t { listens = 1, connects = 2 };

/// 32 bytes that nobody can guess. Throws Error{environment} when the system has none.
Nonce fresh_nonce();

/// HMAC-SHA256 under the job secret over role, both nonces, and the rank of the process that connects.
Mac prove(std::string_view secret, Role role, const Nonce& listener, const Nonce& connector, std::uint32_t rank);

/// Compares in a time that does not depend on where they differ.
bool same(std::span<const std::byte, 32> a, std::span<const std::byte, 32> b) noexcept;

}  // namespace troupe::bootstrap
