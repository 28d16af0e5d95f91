#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace troupe::bootstrap {

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;

/// The end of a connection that proves something. It is part of the proof, so that a process cannot return the other
/// end's proof as its own.
enum class Role : std::uint8_t { listens = 1, connects = 2 };

/// 32 random bytes that cannot be guessed. Throws Error{environment} if the system has none.
Nonce fresh_nonce();

/// HMAC-SHA256 with the job secret over role, both nonces, and the rank of the process that connects.
Mac prove(std::string_view secret, Role role, const Nonce& listener, const Nonce& connector, std::uint32_t rank);

/// Compares in a time that does not depend on where they differ.
bool same(std::span<const std::byte, 32> a, std::span<const std::byte, 32> b) noexcept;

}  // namespace troupe::bootstrap
