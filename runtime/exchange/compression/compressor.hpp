#pragma once

#include <cstdint>
#include <memory>

#include "runtime/compute/stream.hpp"
#include "runtime/exchange/compression/compression_settings.hpp"

namespace troupe {

/// Packs numbers into fewer bytes for sending: pack() is called in transports/collectives/detail/call_submitter.cpp,
/// unpack() and unpack_add() where messages arrive (own_work.cpp there). Works on the device, in stream order, on
/// each element by itself, so that any range of packed elements can be sent and unpacked alone. Threads: any, as far as
/// the streams allow.
class Compressor {
 public:
  virtual ~Compressor() = default;
  /// Bytes of one packed element.
  virtual std::uint64_t packed_bytes() const noexcept = 0;
  /// `from` [n] f32, `to` [n] packed. `residual` [n] f32 is added before packing and then becomes the rounding error,
  /// or 0 where that is not finite; empty: there is none.
  virtual void pack(Stream& stream, Memory to, Memory from, Memory residual) const = 0;
  /// `from` [n] packed, `to` [n] f32.
  virtual void unpack(Stream& stream, Memory to, Memory from) const = 0;
  /// The same, added to `to`.
  virtual void unpack_add(Stream& stream, Memory to, Memory from) const = 0;
};

/// Null for Compression::none.
std::unique_ptr<const Compressor> make_compressor(Compression kind);

}  // namespace troupe
