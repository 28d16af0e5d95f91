#include "devices/cuda/math.hpp"

#include <algorithm>

namespace troupe::cuda {
namespace {

/// Blocks that a processor is to have, at least, where work is cut into parts for it.
constexpr std::uint64_t kBlocksOfProcessor = 2;
/// A part has at least so many terms, or rows: otherwise adding the parts up costs more than it gains.
constexpr std::uint64_t kLeastTerms = 256, kLeastRows = 64;
constexpr std::uint64_t kMostSumBytes = 16;

}  // namespace

std::uint64_t Math::scratch_bytes() const noexcept {
  // Of a product in parts, whose tiles are at most the blocks; of column sums, likewise, or in one part.
  const std::uint64_t blocks = kBlocksOfProcessor * processors_;
  return std::max(blocks * kTileSide * kTileSide * sizeof(float),
                  std::max(widest_, blocks * kSummedColumns) * kMostSumBytes);
}

template <class Args>
void Math::launch(CudaStream& stream, Args& args, const ProductExtents& extents, std::uint64_t bias_width) const {
  const std::uint64_t tiles = count_tiles(extents), most = std::max<std::uint64_t>(extents.inner / kLeastTerms, 1);
  const bool is_dense = args.to.count == extents.batches * extents.rows * extents.columns;
  if (tiles != 0 && is_dense)
    args.to.parts =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kBlocksOfProcessor * processors_ / tiles, 1, most));
  else
    args.to.parts = 1;
  // Rounding to whole stretches may leave the last parts without any.
  const std::uint64_t terms = terms_of_part(extents, args.to.parts);
  if (args.to.parts > 1) args.to.parts = static_cast<std::uint32_t>((extents.inner + terms - 1) / terms);
  args.to.partial = args.to.parts > 1 ? reinterpret_cast<float*>(scratch_) : nullptr;
  stream.launch(args, tiles * args.to.parts * kBlockThreads);
  if (args.to.parts == 1) return;
  AddPartsArgs sum{nullptr, args.to, bias_width};
  stream.launch(sum, args.to.count);
}

void Math::multiply(CudaStream& stream, MultiplyArgs& args) const {
  const std::uint64_t columns = args.extents.columns;
  // Results that lie apart, as those of a head among others, are not added up from parts.
  args.to.count = args.extents.batches == 1 && args.place.rows == columns ? args.extents.rows * columns : 0;
  launch(stream, args, args.extents, columns);
}

void Math::convolve(CudaStream& stream, ConvolveArgs& args) const {
  args.to.count = args.shape.count_out();
  launch(stream, args, extents_of(args), args.shape.filters);
}

void Math::convolve_to_images(CudaStream& stream, ConvolveToImagesArgs& args) const {
  args.to.count = args.shape.count_in();
  launch(stream, args, extents_of(args), 0);
}

void Math::convolve_to_weights(CudaStream& stream, ConvolveToWeightsArgs& args) const {
  args.to.count = args.shape.count_weights();
  launch(stream, args, extents_of(args), 0);
}

void Math::cut(ColumnSums& sums) const noexcept {
  sums.parts = 1;
  const std::uint64_t across = std::max<std::uint64_t>(count_tiles(sums), 1);
  const std::uint64_t most = std::max<std::uint64_t>(sums.count_rows / kLeastRows, 1);
  sums.parts =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kBlocksOfProcessor * processors_ / across, 1, most));
}

void Math::sum_columns(CudaStream& stream, SumColumnsArgs& args, float* to) const {
  cut(args.sums);
  args.partial = reinterpret_cast<float*>(scratch_);
  stream.launch(args, count_tiles(args.sums) * kBlockThreads);
  AddPartsArgs sum{};
  sum.to = {.at = to,
            .bias = nullptr,
            .partial = args.partial,
            .count = args.sums.count_columns,
            .type = Stored::f32,
            .adds = 0,
            .parts = args.sums.parts,
            .scale = 1};
  stream.launch(sum, sum.to.count);
}

}  // namespace troupe::cuda
