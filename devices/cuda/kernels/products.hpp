#pragma once

#include "devices/cuda/kernels/numbers.hpp"

// Products of matrices, and convolutions as such. A block of threads computes a tile of 64 by 64 at a time, over
// stretches of 16 of the inner extent, which it brings to its shared memory; each thread 4 by 4 of it, in registers.
// Sums are in f32 and in one order. Where there are fewer tiles than processors, the inner extent is cut into parts,
// whose sums a second kernel adds up.
namespace troupe::cuda {

inline constexpr unsigned kTileSide = 64, kTileDepth = 16, kTilePart = 4;
static_assert(kTileSide / kTilePart * (kTileSide / kTilePart) == kBlockThreads);

/// Where the sums of a product go.
struct ProductTo {
  void* at;
  const float* bias;    // added to each column; null: none
  float* partial;       // [parts, count], where there are several parts
  std::uint64_t count;  // elements of the whole result
  Stored type;
  std::uint32_t adds;  // to what stands there; 0: it is overwritten
  std::uint32_t parts;
  float scale;
};

/// The extents of a product: `batches` matrices [rows, columns], sums of `inner` terms.
struct ProductExtents {
  std::uint64_t batches, rows, columns, inner;
};

constexpr std::uint64_t tiles_over(std::uint64_t extent) noexcept { return (extent + kTileSide - 1) / kTileSide; }
/// In one part.
constexpr std::uint64_t count_tiles(const ProductExtents& of) noexcept {
  return of.batches * tiles_over(of.rows) * tiles_over(of.columns);
}
/// How many terms of the inner extent a part has; the last one may have fewer.
constexpr std::uint64_t terms_of_part(const ProductExtents& of, std::uint32_t parts) noexcept {
  const std::uint64_t stretches = (of.inner + kTileDepth - 1) / kTileDepth;
  return (stretches + parts - 1) / parts * kTileDepth;
}

struct alignas(16) FourFloats {
  float of[kTilePart];
};
/// A thread's part of a tile.
struct TileSums {
  FourFloats rows[kTilePart];
};
/// A stretch of both operands: for each term 64 elements. The room behind them keeps threads out of each other's bank.
inline constexpr unsigned kTilePitch = kTileSide + kTilePart;

TROUPE_KERNEL_BODY void put_sum(const ProductTo& to, void* at, float* partial, const float* bias, std::uint64_t part,
                                std::uint64_t index, std::uint64_t column, float sum) {
  if (to.parts > 1) {
    partial[part * to.count + index] = sum;
    return;
  }
  float value = sum * to.scale;
  if (bias != nullptr) value += bias[column];
  if (to.adds != 0) value += load(at, to.type, index);
  store(at, to.type, index, value);
}

/// `product` gives the elements of batch b by left(b, row, term) and right(b, term, column), what is next to what in
/// memory by left_by_terms() and right_by_terms(), and where a sum goes by index(b, row, column) and column(b, column).
template <class Product>
TROUPE_KERNEL_BODY void multiply_tiles(const Block& block, const ProductExtents& of, const ProductTo& to,
                                       const Product& product) {
  constexpr unsigned kOperand = kTileDepth * kTilePitch;
  auto* const left = reinterpret_cast<float*>(block.shared<FourFloats, 2 * kOperand / kTilePart>());
  float* const right = left + kOperand;
  void* const at = to.parts > 1 ? nullptr : block.at(to.at);
  float* const partial = block.at(to.partial);
  const float* const bias = block.at(to.bias);
  const std::uint64_t down = tiles_over(of.rows), across = tiles_over(of.columns);
  const std::uint64_t tiles = count_tiles(of) * to.parts, terms = terms_of_part(of, to.parts);
  for (std::uint64_t tile = block.index(); tile < tiles; tile += block.count()) {
    const std::uint64_t first_column = tile % across * kTileSide, first_row = tile / across % down * kTileSide;
    const std::uint64_t part = tile / (across * down) % to.parts, batch = tile / (across * down) / to.parts;
    const std::uint64_t end = (part + 1) * terms < of.inner ? (part + 1) * terms : of.inner;
    OfEachThread<TileSums> all;
    block.for_each_thread([&](unsigned t) { all[t] = TileSums{}; });
    for (std::uint64_t term = part * terms; term < end; term += kTileDepth) {
      block.for_each_thread([&](unsigned t) {
        for (unsigned i = t; i < kTileSide * kTileDepth; i += kBlockThreads) {
          const bool l = product.left_by_terms(), r = product.right_by_terms();
          const unsigned left_row = l ? i / kTileDepth : i % kTileSide, left_term = l ? i % kTileDepth : i / kTileSide;
          const unsigned right_column = r ? i / kTileDepth : i % kTileSide;
          const unsigned right_term = r ? i % kTileDepth : i / kTileSide;
          const bool has_left = first_row + left_row < of.rows && term + left_term < end;
          const bool has_right = first_column + right_column < of.columns && term + right_term < end;
          left[left_term * kTilePitch + left_row] =
              has_left ? product.left(batch, first_row + left_row, term + left_term) : 0.0F;
          right[right_term * kTilePitch + right_column] =
              has_right ? product.right(batch, term + right_term, first_column + right_column) : 0.0F;
        }
      });
      block.barrier();
      block.for_each_thread([&](unsigned t) {
        const unsigned row = t / (kTileSide / kTilePart) * kTilePart, column = t % (kTileSide / kTilePart) * kTilePart;
        if (first_row + row >= of.rows || first_column + column >= of.columns) return;
        TileSums sums = all[t];
        for (unsigned k = 0; k < kTileDepth; ++k) {
          const FourFloats a = *reinterpret_cast<const FourFloats*>(left + k * kTilePitch + row);
          const FourFloats b = *reinterpret_cast<const FourFloats*>(right + k * kTilePitch + column);
          for (unsigned i = 0; i < kTilePart; ++i)
            for (unsigned j = 0; j < kTilePart; ++j)
              sums.rows[i].of[j] = multiply_add(a.of[i], b.of[j], sums.rows[i].of[j]);
        }
        all[t] = sums;
      });
      block.barrier();
    }
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t row = first_row + t / (kTileSide / kTilePart) * kTilePart;
      const std::uint64_t column = first_column + t % (kTileSide / kTilePart) * kTilePart;
      for (unsigned i = 0; i < kTilePart && row + i < of.rows; ++i)
        for (unsigned j = 0; j < kTilePart && column + j < of.columns; ++j)
          put_sum(to, at, partial, bias, part, product.index(batch, row + i, column + j),
                  product.column(batch, column + j), all[t].rows[i].of[j]);
    });
  }
}

/// What the parts of a product have in sum goes to its place.
struct AddPartsArgs {
  const StreamState* stream;
  ProductTo to;
  std::uint64_t bias_width;  // the bias repeats after so many elements
};
TROUPE_KERNEL_BODY void add_parts(const Block& block, const AddPartsArgs& args) {
  void* const at = block.at(args.to.at);
  const float* const partial = block.at(args.to.partial);
  const float* const bias = block.at(args.to.bias);
  block.for_each(args.to.count, [&](std::uint64_t i) {
    float sum = 0;
    for (std::uint32_t part = 0; part < args.to.parts; ++part) sum += partial[part * args.to.count + i];
    sum *= args.to.scale;
    if (bias != nullptr) sum += bias[i % args.bias_width];
    if (args.to.adds != 0) sum += load(at, args.to.type, i);
    store(at, args.to.type, i, sum);
  });
}

/// Matrices by their strides: element (r, c) of matrix (o, i) is at o * outer + i * inner + r * rows + c * columns.
struct Matrix {
  const void* at;
  std::uint64_t rows;     // elements from one row to the next
  std::uint64_t columns;  // likewise
  std::uint64_t outer;
  std::uint64_t inner;
  Stored type;
  std::uint32_t reserved;

  constexpr std::uint64_t index(std::uint64_t batch, std::uint64_t inner_batches, std::uint64_t row,
                                std::uint64_t column) const noexcept {
    const std::uint64_t of_batch =
        inner_batches == 0 ? 0 : batch / inner_batches * outer + batch % inner_batches * inner;
    return of_batch + row * rows + column * columns;
  }
};

/// to[r, c] = scale times the sum over k of a[r, k] b[k, c], plus bias[c], for each batch.
struct MultiplyArgs {
  const StreamState* stream;
  ProductTo to;
  Matrix place;  // of the result; several parts: it is dense
  Matrix a;
  Matrix b;
  ProductExtents extents;
  std::uint64_t inner_batches;  // batch = o * inner_batches + i; 0: there is one
};

struct MatrixProduct {
  const MultiplyArgs& args;
  const void* a;
  const void* b;

  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return args.a.columns == 1; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return args.b.rows == 1; }
  TROUPE_KERNEL_MEMBER float left(std::uint64_t batch, std::uint64_t row, std::uint64_t term) const {
    return load(a, args.a.type, args.a.index(batch, args.inner_batches, row, term));
  }
  TROUPE_KERNEL_MEMBER float right(std::uint64_t batch, std::uint64_t term, std::uint64_t column) const {
    return load(b, args.b.type, args.b.index(batch, args.inner_batches, term, column));
  }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t batch, std::uint64_t row, std::uint64_t column) const {
    return args.place.index(batch, args.inner_batches, row, column);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t, std::uint64_t column) const { return column; }
};

TROUPE_KERNEL_BODY void multiply(const Block& block, const MultiplyArgs& args) {
  multiply_tiles(block, args.extents, args.to, MatrixProduct{args, block.at(args.a.at), block.at(args.b.at)});
}

/// A convolution's numbers. Images are [image, height, width, channels], weights [filter, height, width, channel of its
/// group], so that neighbours in memory are neighbours here; the gradient to weights is [filter, channel of its group,
/// height, width], as parameters are.
struct ConvolutionShape {
  std::uint32_t images, height, width, channels, out_height, out_width, filters;
  std::uint32_t kernel_height, kernel_width, padding_height, padding_width, dilation_height, dilation_width;
  std::uint32_t stride_height, stride_width, groups;
  Divisor by_image, by_width, by_out_image, by_out_width, by_kernel_width, by_channels, by_filters, by_stride_height,
      by_stride_width;  // channels and filters: of a group

  constexpr std::uint64_t taps() const noexcept { return std::uint64_t{kernel_height} * kernel_width; }
  constexpr std::uint32_t channels_of_group() const noexcept { return by_channels.divisor; }
  constexpr std::uint32_t filters_of_group() const noexcept { return by_filters.divisor; }
  constexpr std::uint64_t count_in() const noexcept { return std::uint64_t{images} * height * width * channels; }
  constexpr std::uint64_t count_out() const noexcept {
    return std::uint64_t{images} * out_height * out_width * filters;
  }
  constexpr std::uint64_t count_weights() const noexcept { return filters * taps() * channels_of_group(); }
};

/// The elements that the three products of a convolution read.
struct ConvolutionReads {
  const ConvolutionShape& shape;

  static constexpr std::uint64_t kOutside = ~std::uint64_t{0};

  /// Of the input, what output pixel `pixel` reads for tap `tap`, channel `channel` of the group.
  TROUPE_KERNEL_MEMBER std::uint64_t input(std::uint64_t group, std::uint32_t pixel, std::uint32_t tap,
                                           std::uint32_t channel) const {
    const std::uint32_t image = divide(pixel, shape.by_out_image), row = divide(pixel, shape.by_out_width);
    const std::uint32_t tap_row = divide(tap, shape.by_kernel_width);
    // Wraps around where it is outside.
    const std::uint32_t y = row * shape.stride_height + tap_row * shape.dilation_height - shape.padding_height;
    const std::uint32_t x = pixel * shape.stride_width + tap * shape.dilation_width - shape.padding_width;
    if (y >= shape.height || x >= shape.width) return kOutside;
    return ((std::uint64_t{image} * shape.height + y) * shape.width + x) * shape.channels +
           group * shape.channels_of_group() + channel;
  }
  /// Of the output, what reads input pixel `pixel` for tap `tap`, filter `filter` of the group.
  TROUPE_KERNEL_MEMBER std::uint64_t output(std::uint64_t group, std::uint32_t pixel, std::uint32_t tap,
                                            std::uint32_t filter) const {
    const std::uint32_t image = divide(pixel, shape.by_image), row = divide(pixel, shape.by_width);
    const std::uint32_t tap_row = divide(tap, shape.by_kernel_width);
    std::uint32_t y = row + shape.padding_height - tap_row * shape.dilation_height;
    std::uint32_t x = pixel + shape.padding_width - tap * shape.dilation_width;
    if ((y | x) >> 31 != 0) return kOutside;  // below 0
    const std::uint32_t h = divide(y, shape.by_stride_height), w = divide(x, shape.by_stride_width);
    if (y != 0 || x != 0 || h >= shape.out_height || w >= shape.out_width) return kOutside;
    return ((std::uint64_t{image} * shape.out_height + h) * shape.out_width + w) * shape.filters +
           group * shape.filters_of_group() + filter;
  }
};
TROUPE_KERNEL_BODY float load_inside(const void* from, Stored type, std::uint64_t index) {
  return index == ConvolutionReads::kOutside ? 0.0F : load(from, type, index);
}

/// The output of a convolution.
struct ConvolveArgs {
  const StreamState* stream;
  ProductTo to;
  const void* images;
  const void* weights;
  Stored images_type;
  Stored weights_type;
  ConvolutionShape shape;
  std::uint32_t reserved;
};
constexpr ProductExtents extents_of(const ConvolveArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, std::uint64_t{s.images} * s.out_height * s.out_width, s.filters_of_group(),
          s.taps() * s.channels_of_group()};
}

/// Rows: the pixels of the output; terms: taps, and channels in each.
struct ConvolutionProduct {
  const ConvolveArgs& args;
  ConvolutionReads reads;
  const void* images;
  const void* weights;

  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return true; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return true; }
  TROUPE_KERNEL_MEMBER float left(std::uint64_t group, std::uint64_t row, std::uint64_t term) const {
    auto channel = static_cast<std::uint32_t>(term);
    const std::uint32_t tap = divide(channel, args.shape.by_channels);
    return load_inside(images, args.images_type, reads.input(group, static_cast<std::uint32_t>(row), tap, channel));
  }
  TROUPE_KERNEL_MEMBER float right(std::uint64_t group, std::uint64_t term, std::uint64_t filter) const {
    const std::uint64_t terms = args.shape.taps() * args.shape.channels_of_group();
    return load(weights, args.weights_type, column(group, filter) * terms + term);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t group, std::uint64_t column) const {
    return group * args.shape.filters_of_group() + column;
  }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t group, std::uint64_t row, std::uint64_t filter) const {
    return row * args.shape.filters + column(group, filter);
  }
};
TROUPE_KERNEL_BODY void convolve(const Block& block, const ConvolveArgs& args) {
  multiply_tiles(block, extents_of(args), args.to,
                 ConvolutionProduct{args, {args.shape}, block.at(args.images), block.at(args.weights)});
}

/// The gradient to the images of a convolution.
struct ConvolveToImagesArgs {
  const StreamState* stream;
  ProductTo to;
  const void* gradient;  // to the output
  const void* weights;
  Stored gradient_type;
  Stored weights_type;
  ConvolutionShape shape;
  std::uint32_t reserved;
};
constexpr ProductExtents extents_of(const ConvolveToImagesArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, std::uint64_t{s.images} * s.height * s.width, s.channels_of_group(),
          s.taps() * s.filters_of_group()};
}

/// Rows: the pixels of the images; terms: taps, and filters in each.
struct ToImagesProduct {
  const ConvolveToImagesArgs& args;
  ConvolutionReads reads;
  const void* gradient;
  const void* weights;

  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return true; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return false; }
  TROUPE_KERNEL_MEMBER float left(std::uint64_t group, std::uint64_t row, std::uint64_t term) const {
    auto filter = static_cast<std::uint32_t>(term);
    const std::uint32_t tap = divide(filter, args.shape.by_filters);
    return load_inside(gradient, args.gradient_type, reads.output(group, static_cast<std::uint32_t>(row), tap, filter));
  }
  TROUPE_KERNEL_MEMBER float right(std::uint64_t group, std::uint64_t term, std::uint64_t channel) const {
    auto filter = static_cast<std::uint32_t>(term);
    const std::uint32_t tap = divide(filter, args.shape.by_filters);
    const std::uint64_t row = (group * args.shape.filters_of_group() + filter) * args.shape.taps() + tap;
    return load(weights, args.weights_type, row * args.shape.channels_of_group() + channel);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t group, std::uint64_t column) const {
    return group * args.shape.channels_of_group() + column;
  }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t group, std::uint64_t row, std::uint64_t channel) const {
    return row * args.shape.channels + column(group, channel);
  }
};
TROUPE_KERNEL_BODY void convolve_to_images(const Block& block, const ConvolveToImagesArgs& args) {
  multiply_tiles(block, extents_of(args), args.to,
                 ToImagesProduct{args, {args.shape}, block.at(args.gradient), block.at(args.weights)});
}

/// The gradient to the weights of a convolution.
struct ConvolveToWeightsArgs {
  const StreamState* stream;
  ProductTo to;
  const void* gradient;  // to the output
  const void* images;
  Stored gradient_type;
  Stored images_type;
  ConvolutionShape shape;
  std::uint32_t reserved;
};
constexpr ProductExtents extents_of(const ConvolveToWeightsArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, s.filters_of_group(), s.taps() * s.channels_of_group(),
          std::uint64_t{s.images} * s.out_height * s.out_width};
}

/// Rows: filters; columns: taps, and channels in each; terms: the pixels of the output.
struct ToWeightsProduct {
  const ConvolveToWeightsArgs& args;
  ConvolutionReads reads;
  const void* gradient;
  const void* images;

  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return false; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return false; }
  TROUPE_KERNEL_MEMBER float left(std::uint64_t group, std::uint64_t row, std::uint64_t term) const {
    return load(gradient, args.gradient_type, term * args.shape.filters + group * args.shape.filters_of_group() + row);
  }
  TROUPE_KERNEL_MEMBER float right(std::uint64_t group, std::uint64_t term, std::uint64_t column) const {
    auto channel = static_cast<std::uint32_t>(column);
    const std::uint32_t tap = divide(channel, args.shape.by_channels);
    return load_inside(images, args.images_type, reads.input(group, static_cast<std::uint32_t>(term), tap, channel));
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t, std::uint64_t column) const { return column; }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t group, std::uint64_t row, std::uint64_t column) const {
    auto channel = static_cast<std::uint32_t>(column);
    const std::uint32_t tap = divide(channel, args.shape.by_channels);
    const std::uint64_t filter = group * args.shape.filters_of_group() + row;
    return (filter * args.shape.channels_of_group() + channel) * args.shape.taps() + tap;
  }
};
TROUPE_KERNEL_BODY void convolve_to_weights(const Block& block, const ConvolveToWeightsArgs& args) {
  multiply_tiles(block, extents_of(args), args.to,
                 ToWeightsProduct{args, {args.shape}, block.at(args.gradient), block.at(args.images)});
}

#if !defined(__CUDACC__)
/// The bias has `width` elements. Of a result with strides, everything between its first and its last element.
inline void declare(Accesses& touched, const ProductTo& to, std::uint64_t width, std::uint64_t span) {
  touched.reads(to.bias, width * sizeof(float));
  if (to.parts > 1)
    touched.writes(to.partial, to.parts * to.count * sizeof(float));
  else
    touched.writes(to.at, span * bytes_of(to.type));
}
inline void declare(Accesses& touched, const AddPartsArgs& args) {
  touched.reads(args.to.partial, args.to.parts * args.to.count * sizeof(float));
  touched.reads(args.to.bias, args.bias_width * sizeof(float));
  touched.writes(args.to.at, args.to.count * bytes_of(args.to.type));
}
inline void declare(Accesses& touched, const MultiplyArgs& args) {
  const ProductExtents& e = args.extents;
  const auto span = [&](const Matrix& of, std::uint64_t rows, std::uint64_t columns) {
    if (e.batches == 0 || rows == 0 || columns == 0) return std::uint64_t{0};
    const std::uint64_t inner = args.inner_batches == 0 ? 1 : args.inner_batches;
    return (e.batches / inner - 1) * of.outer + (inner - 1) * of.inner + (rows - 1) * of.rows +
           (columns - 1) * of.columns + 1;
  };
  touched.reads(args.a.at, span(args.a, e.rows, e.inner) * bytes_of(args.a.type));
  touched.reads(args.b.at, span(args.b, e.inner, e.columns) * bytes_of(args.b.type));
  declare(touched, args.to, e.columns, span(args.place, e.rows, e.columns));
}
inline void declare(Accesses& touched, const ConvolveArgs& args) {
  touched.reads(args.images, args.shape.count_in() * bytes_of(args.images_type));
  touched.reads(args.weights, args.shape.count_weights() * bytes_of(args.weights_type));
  declare(touched, args.to, args.shape.filters, args.to.count);
}
inline void declare(Accesses& touched, const ConvolveToImagesArgs& args) {
  touched.reads(args.gradient, args.shape.count_out() * bytes_of(args.gradient_type));
  touched.reads(args.weights, args.shape.count_weights() * bytes_of(args.weights_type));
  declare(touched, args.to, 0, args.to.count);
}
inline void declare(Accesses& touched, const ConvolveToWeightsArgs& args) {
  touched.reads(args.gradient, args.shape.count_out() * bytes_of(args.gradient_type));
  touched.reads(args.images, args.shape.count_in() * bytes_of(args.images_type));
  declare(touched, args.to, 0, args.to.count);
}
#endif

}  // namespace troupe::cuda
