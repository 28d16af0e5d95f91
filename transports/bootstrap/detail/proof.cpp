#include "transports/bootstrap/detail/proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe::bootstrap {

Nonce fresh_nonce() {
  Nonce nonce;
  TROUPE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) == 1,
               Code::environment, "OpenSSL has no random bytes for a challenge");
  return nonce;
}

Mac prove(std::string_view secret, Role role, const Nonce& listener, const Nonce& connector, std::uint32_t rank) {
  constexpr std::string_view kContext = "troupe bootstrap 1";
  std::array<std::byte, kContext.size() + 1 + 32 + 32 + 4> message;
  auto* end = std::transform(kContext.begin(), kContext.end(), message.begin(), [](char c) { return std::byte(c); });
  *end++ = std::byte{static_cast<std::uint8_t>(role)};
  end = std::copy(listener.begin(), listener.end(), end);
  end = std::copy(connector.begin(), connector.end(), end);
  for (int shift = 0; shift < 32; shift += 8) *end++ = static_cast<std::byte>(rank >> shift);
  Mac mac;
  unsigned length = 0;
  const auto* result = HMAC(EVP_sha256(), secret.data() != nullptr ? secret.data() : "",
                            static_cast<int>(secret.size()), reinterpret_cast<const unsigned char*>(message.data()),
                            message.size(), reinterpret_cast<unsigned char*>(mac.data()), &length);
  TROUPE_CHECK(result != nullptr && length == mac.size(), Code::environment, "OpenSSL cannot compute HMAC-SHA256");
  return mac;
}

bool same(std::span<const std::byte, 32> a, std::span<const std::byte, 32> b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace troupe::bootstrap
