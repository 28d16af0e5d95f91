#include "runtime/exchange/compression/compressor.hpp"

namespace troupe {
namespace {

class Bf16Compressor final : public Compressor {
 public:
  std::uint64_t packed_bytes() const noexcept override { return size_bytes(DType::bf16); }
  void pack(Stream& stream, Memory to, Memory from, Memory residual) const override {
    stream.convert({to, DType::bf16, from, DType::f32, residual});
  }
  void unpack(Stream& stream, Memory to, Memory from) const override {
    stream.convert({to, DType::f32, from, DType::bf16});
  }
  void unpack_add(Stream& stream, Memory to, Memory from) const override {
    stream.convert({.to = to, .to_type = DType::f32, .from = from, .from_type = DType::bf16, .adds = true});
  }
};

}  // namespace

std::unique_ptr<const Compressor> make_compressor(Compression kind) {
  return kind == Compression::bf16 ? std::make_unique<Bf16Compressor>() : nullptr;
}

}  // namespace troupe
