#pragma once

#include "devices/cuda/kernels/elements.hpp"

// Pools: windows over images [image, height, width, channels]. A thread computes neighbouring channels of one pixel,
// which it reads and writes at once; neighbours in memory belong to neighbouring threads.
namespace troupe::cuda {

struct PoolShape {
  std::uint32_t images, height, width, channels, out_height, out_width;
  std::uint32_t kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;
  Divisor by_height, by_width, by_out_height, by_out_width, by_stride_height, by_stride_width;  // find_divisors()

  constexpr std::uint64_t count_in() const noexcept { return std::uint64_t{images} * height * width * channels; }
  constexpr std::uint64_t count_out() const noexcept {
    return std::uint64_t{images} * out_height * out_width * channels;
  }
  constexpr std::uint64_t count_window() const noexcept { return std::uint64_t{kernel_height} * kernel_width; }
  /// The window is the whole image: a global pool.
  constexpr bool is_global() const noexcept {
    return out_height == 1 && out_width == 1 && kernel_height == height && kernel_width == width &&
           padding_height == 0 && padding_width == 0;
  }
};
inline void find_divisors(PoolShape& s) {
  s.by_height = divisor_of(s.height), s.by_width = divisor_of(s.width);
  s.by_out_height = divisor_of(s.out_height), s.by_out_width = divisor_of(s.out_width);
  s.by_stride_height = divisor_of(s.stride_height), s.by_stride_width = divisor_of(s.stride_width);
}

/// How the threads of a pool are divided: each has `lanes` neighbouring channels of one type, and all are counted in 31
/// bits. 0: it has one channel, of any type, counted in 64 bits.
struct PoolLanes {
  std::uint32_t lanes;
  Divisor by_groups;  // of a pixel's channels

  constexpr std::uint64_t count_groups(std::uint64_t elements) const noexcept {
    return lanes == 0 ? elements : elements / lanes;
  }
};

/// A max pool in training writes an index for each element of the output: where in its window, row by row, the largest
/// element is, the first one of several. It has one byte, or four for windows of more elements than a byte counts.
constexpr std::uint64_t index_bytes_of(std::uint64_t count_window) noexcept { return count_window <= 256 ? 1 : 4; }

/// `types`, `at`: of all tensors; `index`: null: there is none.
template <std::size_t kTensors>
PoolLanes lanes_for(const PoolShape& shape, const Stored (&types)[kTensors], const void* const (&at)[kTensors],
                    const std::byte* index) {
  std::uintptr_t addresses = 0;
  bool has_one_type = true;
  for (std::size_t n = 0; n < kTensors; ++n) {
    addresses |= reinterpret_cast<std::uintptr_t>(at[n]);
    has_one_type = has_one_type && types[n] == types[0];
  }
  PoolLanes found{0, divisor_of(shape.channels)};
  const std::uint64_t most = shape.count_in() > shape.count_out() ? shape.count_in() : shape.count_out();
  if (!has_one_type || (index != nullptr && index_bytes_of(shape.count_window()) != 1)) return found;
  for (const std::uint32_t bytes : {16U, 8U, static_cast<std::uint32_t>(bytes_of(types[0]))}) {
    const auto lanes = static_cast<std::uint32_t>(bytes / bytes_of(types[0]));
    const bool is_aligned = addresses % bytes == 0 && reinterpret_cast<std::uintptr_t>(index) % lanes == 0;
    if (shape.channels % lanes != 0 || !is_aligned || most / lanes >= std::uint64_t{1} << 31) continue;
    return {lanes, divisor_of(shape.channels / lanes)};
  }
  return found;
}

// ---- What a thread reads and writes at once ----

/// kLanes neighbouring elements of kBytes each.
template <unsigned kBytes, unsigned kLanes>
class alignas(kBytes* kLanes) Lanes {
 public:
  TROUPE_KERNEL_MEMBER std::uint32_t bits(unsigned lane) const {
    const std::uint32_t word = words_[lane / kInWord];
    return kInWord == 1 ? word : word >> (lane % kInWord * kBytes * 8) & kMask;
  }
  /// Of a lane that is 0.
  TROUPE_KERNEL_MEMBER void set(unsigned lane, std::uint32_t bits) {
    words_[lane / kInWord] =
        static_cast<Word>(words_[lane / kInWord] | static_cast<Word>(bits << (lane % kInWord * kBytes * 8)));
  }

 private:
  static constexpr unsigned kAll = kBytes * kLanes;
  using Word =
      std::conditional_t<kAll % 4 == 0, std::uint32_t, std::conditional_t<kAll % 2 == 0, std::uint16_t, std::uint8_t>>;
  static constexpr unsigned kInWord = sizeof(Word) / kBytes;
  static constexpr std::uint32_t kMask = kBytes == 1 ? 0xffU : 0xffffU;

  Word words_[kAll / sizeof(Word)] = {};
};

/// Elements of one type, kLanes channels at a time.
template <Stored kType, unsigned kLaneCount>
struct ChannelLanes {
  using Index = std::uint32_t;
  static constexpr unsigned kLanes = kLaneCount;
  using Packed = Lanes<kType == Stored::f32 ? 4 : 2, kLanes>;
  using Places = Lanes<1, kLanes>;

  TROUPE_KERNEL_MEMBER Packed read(const void* from, Stored, Index i) const { return word_at<Packed>(from, i); }
  TROUPE_KERNEL_MEMBER float value(const Packed& packed, unsigned lane) const {
    if constexpr (kType == Stored::f32) return float_of(packed.bits(lane));
    const auto bits = static_cast<std::uint16_t>(packed.bits(lane));
    return kType == Stored::f16 ? from_f16(bits) : widened(bits);
  }
  TROUPE_KERNEL_MEMBER void write(void* to, Stored, Index i, const float (&values)[kLanes]) const {
    Packed packed{};
    for (unsigned lane = 0; lane < kLanes; ++lane)
      packed.set(lane, kType == Stored::f32 ? bits_of(values[lane]) : rounded(values[lane], kType));
    put_word(to, i, packed);
  }
  TROUPE_KERNEL_MEMBER Places read_places(const std::byte* index, Index i) const { return word_at<Places>(index, i); }
  TROUPE_KERNEL_MEMBER std::uint32_t place(const Places& places, unsigned lane) const { return places.bits(lane); }
  TROUPE_KERNEL_MEMBER void write_places(std::byte* index, Index i, const std::uint32_t (&places)[kLanes]) const {
    Places packed{};
    for (unsigned lane = 0; lane < kLanes; ++lane) packed.set(lane, places[lane]);
    put_word(index, i, packed);
  }
};

/// One channel at a time, of tensors of any types.
struct AnyChannel {
  using Index = std::uint64_t;
  static constexpr unsigned kLanes = 1;
  using Packed = float;
  using Places = std::uint32_t;
  bool has_wide_index;

  TROUPE_KERNEL_MEMBER float read(const void* from, Stored type, Index i) const { return load(from, type, i); }
  TROUPE_KERNEL_MEMBER float value(float packed, unsigned) const { return packed; }
  TROUPE_KERNEL_MEMBER void write(void* to, Stored type, Index i, const float (&values)[1]) const {
    store(to, type, i, values[0]);
  }
  TROUPE_KERNEL_MEMBER std::uint32_t read_places(const std::byte* index, Index i) const {
    return has_wide_index ? word_at<std::uint32_t>(index, i) : static_cast<std::uint32_t>(index[i]);
  }
  TROUPE_KERNEL_MEMBER std::uint32_t place(std::uint32_t places, unsigned) const { return places; }
  TROUPE_KERNEL_MEMBER void write_places(std::byte* index, Index i, const std::uint32_t (&places)[1]) const {
    if (has_wide_index)
      put_word(index, i, places[0]);
    else
      index[i] = static_cast<std::byte>(places[0]);
  }
};

/// Calls act(elements) with what reads and writes the tensors, whose type is `type` where they have one.
template <Stored kType, class Act>
TROUPE_KERNEL_BODY void with_lanes_of(std::uint32_t lanes, Act&& act) {
  constexpr unsigned kMost = kType == Stored::f32 ? 4 : 8;
  if (lanes == kMost) return act(ChannelLanes<kType, kMost>{});
  if (lanes == kMost / 2) return act(ChannelLanes<kType, kMost / 2>{});
  act(ChannelLanes<kType, 1>{});
}
template <class Act>
TROUPE_KERNEL_BODY void with_lanes(const PoolLanes& of, const PoolShape& shape, Stored type, Act&& act) {
  if (of.lanes == 0) return act(AnyChannel{index_bytes_of(shape.count_window()) != 1});
  if (type == Stored::f32) return with_lanes_of<Stored::f32>(of.lanes, act);
  if (type == Stored::bf16) return with_lanes_of<Stored::bf16>(of.lanes, act);
  with_lanes_of<Stored::f16>(of.lanes, act);
}

// ---- Windows ----

/// divide() for numbers of 64 bits.
TROUPE_KERNEL_BODY std::uint64_t divide(std::uint64_t& number, const Divisor& by) {
  const std::uint64_t found = number / by.divisor;
  number -= found * by.divisor;
  return found;
}

/// What a thread computes: neighbouring channels of a pixel.
template <class Index>
struct PoolPlace {
  Index image;
  std::uint32_t y, x;
  Index group;
};
template <class Index>
TROUPE_KERNEL_BODY PoolPlace<Index> place_of(Index index, const Divisor& by_height, const Divisor& by_width,
                                             const Divisor& by_groups) {
  PoolPlace<Index> place{};
  Index pixel = divide(index, by_groups);
  place.group = index;
  Index row = divide(pixel, by_width);
  place.x = static_cast<std::uint32_t>(pixel);
  place.image = divide(row, by_height);
  place.y = static_cast<std::uint32_t>(row);
  return place;
}

struct PoolSpan {
  std::uint32_t first, end;
  TROUPE_KERNEL_MEMBER std::uint32_t count() const { return end - first; }
};
/// The part of a side that window `index` covers.
TROUPE_KERNEL_BODY PoolSpan covered(std::uint32_t index, std::uint32_t side, std::uint32_t kernel, std::uint32_t stride,
                                    std::uint32_t padding) {
  const std::uint32_t first = index * stride, end = first + kernel;  // from the padding's start
  return {first > padding ? first - padding : 0, end - padding < side ? end - padding : side};
}
/// The windows that cover place `at` of a side.
TROUPE_KERNEL_BODY PoolSpan covering(std::uint32_t at, std::uint32_t count, std::uint32_t kernel, const Divisor& stride,
                                     std::uint32_t padding) {
  const std::uint32_t from = at + padding, last = quotient(from, stride);
  return {from < kernel ? 0 : quotient(from - kernel, stride) + 1, last < count ? last + 1 : count};
}

/// A rectangle of pixels or windows, row by row: where its first one lies in memory, its place in a window, and by how
/// much both change.
template <class Index>
struct PoolWalk {
  std::uint32_t rows, columns;
  Index at, to_column, to_row;  // from one column, and from the start of one row, to the next
  std::uint32_t place, place_to_column, place_to_row;
};
/// Calls act(place, what read(at) gave) for all, in order. kAhead are read before the first one is waited for: more of
/// them leave registers for fewer threads.
template <std::uint32_t kAhead, class Index, class Read, class Act>
TROUPE_KERNEL_BODY void walk(const PoolWalk<Index>& over, Read&& read, Act&& act) {
  using Found = decltype(read(over.at));
  Index at = over.at;
  std::uint32_t place = over.place, column = 0;
  for (std::uint32_t left = over.rows * over.columns; left != 0; left -= left < kAhead ? left : kAhead) {
    Found found[kAhead] = {};
    std::uint32_t places[kAhead] = {};
    for (std::uint32_t n = 0; n < kAhead; ++n) {
      if (n >= left) break;
      found[n] = read(at), places[n] = place;
      const bool is_last = ++column == over.columns;
      at += over.to_column, place += over.place_to_column;
      if (!is_last) continue;
      at += over.to_row - over.columns * over.to_column;
      place += over.place_to_row - over.columns * over.place_to_column;
      column = 0;
    }
    for (std::uint32_t n = 0; n < kAhead; ++n)
      if (n < left) act(places[n], found[n]);
  }
}

/// The elements of window (y, x).
template <class Index>
TROUPE_KERNEL_BODY PoolWalk<Index> elements_of_window(const PoolShape& s, const PoolPlace<Index>& of, Index groups) {
  const PoolSpan rows = covered(of.y, s.height, s.kernel_height, s.stride_height, s.padding_height);
  const PoolSpan columns = covered(of.x, s.width, s.kernel_width, s.stride_width, s.padding_width);
  PoolWalk<Index> over{};
  over.rows = rows.count(), over.columns = columns.count();
  over.at = ((of.image * s.height + rows.first) * s.width + columns.first) * groups + of.group;
  over.to_column = groups, over.to_row = s.width * groups;
  over.place = (rows.first + s.padding_height - of.y * s.stride_height) * s.kernel_width + columns.first +
               s.padding_width - of.x * s.stride_width;
  over.place_to_column = 1, over.place_to_row = s.kernel_width;
  return over;
}
/// The windows that cover pixel (y, x), and its place in each.
template <class Index>
TROUPE_KERNEL_BODY PoolWalk<Index> windows_of_element(const PoolShape& s, const PoolPlace<Index>& of, Index groups) {
  const PoolSpan down = covering(of.y, s.out_height, s.kernel_height, s.by_stride_height, s.padding_height);
  const PoolSpan across = covering(of.x, s.out_width, s.kernel_width, s.by_stride_width, s.padding_width);
  PoolWalk<Index> over{};
  over.rows = down.count(), over.columns = across.count();
  over.at = ((of.image * s.out_height + down.first) * s.out_width + across.first) * groups + of.group;
  over.to_column = groups, over.to_row = s.out_width * groups;
  over.place = (of.y + s.padding_height - down.first * s.stride_height) * s.kernel_width + of.x + s.padding_width -
               across.first * s.stride_width;
  over.place_to_column = 0 - s.stride_width, over.place_to_row = 0 - s.stride_height * s.kernel_width;
  return over;
}

/// Writes a gradient, or adds it to what is there.
template <class Elements>
TROUPE_KERNEL_BODY void put_lanes(const Elements& elements, const GradientTo& to, void* at,
                                  typename Elements::Index index, float (&values)[Elements::kLanes]) {
  if (to.adds != 0) {
    const auto before = elements.read(at, to.type, index);
    for (unsigned lane = 0; lane < Elements::kLanes; ++lane) values[lane] = elements.value(before, lane) + values[lane];
  }
  elements.write(at, to.type, index, values);
}

// ---- Max pools ----

/// None of the three curves falls anywhere: what it makes of the largest element is the largest of all that it makes.
template <unsigned kLanes>
TROUPE_KERNEL_BODY void apply(Curve curve, float (&values)[kLanes]) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    float& value = values[lane];
    if (curve == Curve::relu)
      value = value_of(Curve::relu, value);
    else
      value = curve == Curve::tanh ? value_of(Curve::tanh, value) : value_of(Curve::sigmoid, value);
  }
}

struct MaxPoolArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  std::byte* index;  // null: none is written
  PoolShape shape;
  PoolLanes lanes;
  Stored to_type;
  Stored from_type;
  Curve curve;              // of the three that follow from what they put out
  std::uint32_t has_curve;  // is applied to what the pool puts out
};
inline void divide_among_threads(MaxPoolArgs& args) {
  args.lanes = lanes_for(args.shape, {args.to_type, args.from_type}, {args.to, args.from}, args.index);
}
/// What its threads divide among them.
constexpr std::uint64_t count_items(const MaxPoolArgs& args) noexcept {
  return args.lanes.count_groups(args.shape.count_out());
}
TROUPE_KERNEL_BODY void max_pool(const Block& block, const MaxPoolArgs& args) {
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  std::byte* const index = block.at(args.index);
  const PoolShape& s = args.shape;
  with_lanes(args.lanes, s, args.to_type, [&](const auto& elements) {
    using Elements = std::decay_t<decltype(elements)>;
    using Index = typename Elements::Index;
    const Index groups = args.lanes.by_groups.divisor;
    block.for_each(s.count_out() / Elements::kLanes, [&](std::uint64_t i) {
      const auto item = static_cast<Index>(i);
      const auto window =
          elements_of_window(s, place_of(item, s.by_out_height, s.by_out_width, args.lanes.by_groups), groups);
      float found[Elements::kLanes];
      std::uint32_t places[Elements::kLanes];
      for (unsigned lane = 0; lane < Elements::kLanes; ++lane) found[lane] = -INFINITY, places[lane] = window.place;
      walk<4>(
          window, [&](Index at) { return elements.read(from, args.from_type, at); },
          [&](std::uint32_t place, const auto& packed) {
            for (unsigned lane = 0; lane < Elements::kLanes; ++lane) {
              const float value = elements.value(packed, lane);
              if (value > found[lane] || value != value) found[lane] = value, places[lane] = place;
            }
          });
      if (args.has_curve != 0) apply<Elements::kLanes>(args.curve, found);
      elements.write(to, args.to_type, item, found);
      if (index != nullptr) elements.write_places(index, item, places);
    });
  });
}

/// Of the curve that the forward pass applied.
struct CurveSlopes {
  const void* output;  // what the pool put out; null: there is no curve
  Stored type;
  Curve curve;
};
/// Of a ReLU, tanh or sigmoid, from what it put out.
TROUPE_KERNEL_BODY float behind_curve(float gradient, Curve curve, float output) {
  if (curve == Curve::relu) return output > 0 ? gradient : 0.0F;
  const float slope = curve == Curve::tanh ? slope_of(Curve::tanh, output) : slope_of(Curve::sigmoid, output);
  return slope == 0 ? 0.0F : gradient * slope;
}

struct MaxPoolBackArgs {
  const StreamState* stream;
  GradientTo to;           // the input
  const void* gradient;    // to the output
  const std::byte* index;  // of the forward pass
  CurveSlopes slopes;
  PoolShape shape;
  PoolLanes lanes;
  Stored gradient_type;
  std::uint32_t reserved;
};
inline void divide_among_threads(MaxPoolBackArgs& args) {
  args.lanes = lanes_for(
      args.shape, {args.to.type, args.gradient_type, args.slopes.output == nullptr ? args.to.type : args.slopes.type},
      {args.to.at, args.gradient, args.slopes.output}, args.index);
}
constexpr std::uint64_t count_items(const MaxPoolBackArgs& args) noexcept {
  return args.lanes.count_groups(args.shape.count_in());
}
/// Each element of the input takes from all windows that cover it, row by row.
TROUPE_KERNEL_BODY void max_pool_back(const Block& block, const MaxPoolBackArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const gradient = block.at(args.gradient);
  const void* const output = block.at(args.slopes.output);
  const std::byte* const index = block.at(args.index);
  const PoolShape& s = args.shape;
  with_lanes(args.lanes, s, args.to.type, [&](const auto& elements) {
    using Elements = std::decay_t<decltype(elements)>;
    using Index = typename Elements::Index;
    struct Window {
      typename Elements::Packed gradient, output;
      typename Elements::Places places;
    };
    const Index groups = args.lanes.by_groups.divisor;
    block.for_each(s.count_in() / Elements::kLanes, [&](std::uint64_t i) {
      const auto item = static_cast<Index>(i);
      const auto windows = windows_of_element(s, place_of(item, s.by_height, s.by_width, args.lanes.by_groups), groups);
      float sums[Elements::kLanes] = {};
      walk<2>(
          windows,
          [&](Index at) {
            Window found{elements.read(gradient, args.gradient_type, at), {}, elements.read_places(index, at)};
            if (output != nullptr) found.output = elements.read(output, args.slopes.type, at);
            return found;
          },
          [&](std::uint32_t place, const Window& window) {
            for (unsigned lane = 0; lane < Elements::kLanes; ++lane) {
              if (elements.place(window.places, lane) != place) continue;
              const float found = elements.value(window.gradient, lane);
              sums[lane] += output == nullptr
                                ? found
                                : behind_curve(found, args.slopes.curve, elements.value(window.output, lane));
            }
          });
      put_lanes(elements, args.to, to, item, sums);
    });
  });
}

// ---- Average pools ----

/// The mean over the elements of the image alone.
struct AveragePoolArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  PoolShape shape;
  PoolLanes lanes;
  Stored to_type;
  Stored from_type;
};
inline void divide_among_threads(AveragePoolArgs& args) {
  args.lanes = lanes_for(args.shape, {args.to_type, args.from_type}, {args.to, args.from}, nullptr);
}

/// A global pool is divided among so many threads, each of which adds up every kAveragingThreads-th pixel. The order
/// follows from the shape alone.
inline constexpr unsigned kAveragingThreads = 8, kAveragedGroups = kBlockThreads / kAveragingThreads;
constexpr bool is_divided(const PoolShape& shape) noexcept {
  return shape.is_global() && shape.count_window() >= std::uint64_t{2} * kAveragingThreads;
}
constexpr std::uint64_t count_items(const AveragePoolArgs& args) noexcept {
  const std::uint64_t groups = args.lanes.count_groups(args.shape.count_out());
  return is_divided(args.shape) ? (groups + kAveragedGroups - 1) / kAveragedGroups * kBlockThreads : groups;
}

/// kAveragedGroups groups of channels at a time, so that neighbours in memory are read by neighbouring threads.
template <class Elements>
TROUPE_KERNEL_BODY void average_images(const Block& block, const AveragePoolArgs& args, const Elements& elements) {
  using Index = typename Elements::Index;
  constexpr unsigned kLanes = Elements::kLanes, kMostLanes = 8;
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  float* const sums = block.shared<float, kMostLanes * kBlockThreads>();
  const auto pixels = static_cast<std::uint32_t>(args.shape.count_window());
  const Index groups = args.lanes.by_groups.divisor, count = static_cast<Index>(args.shape.count_out() / kLanes);
  for (Index first = static_cast<Index>(block.index()) * kAveragedGroups; first < count;
       first += static_cast<Index>(block.count()) * kAveragedGroups) {
    block.for_each_thread([&](unsigned t) {
      Index group = first + t % kAveragedGroups;
      const std::uint32_t before = t / kAveragedGroups;
      float sum[kLanes] = {};
      if (group < count) {
        const Index image = divide(group, args.lanes.by_groups);
        const PoolWalk<Index> own{1,
                                  (pixels - before + kAveragingThreads - 1) / kAveragingThreads,
                                  (image * pixels + before) * groups + group,
                                  kAveragingThreads * groups,
                                  0,
                                  0,
                                  0,
                                  0};
        walk<4>(
            own, [&](Index at) { return elements.read(from, args.from_type, at); },
            [&](std::uint32_t, const auto& packed) {
              for (unsigned lane = 0; lane < kLanes; ++lane) sum[lane] += elements.value(packed, lane);
            });
      }
      for (unsigned lane = 0; lane < kLanes; ++lane) sums[lane * kBlockThreads + t] = sum[lane];
    });
    block.barrier();
    block.for_each_thread([&](unsigned t) {
      if (t >= kAveragedGroups || first + t >= count) return;
      const float share = 1 / static_cast<float>(pixels);
      float mean[kLanes];
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        float sum = sums[lane * kBlockThreads + t];
        for (unsigned other = 1; other < kAveragingThreads; ++other)
          sum += sums[lane * kBlockThreads + other * kAveragedGroups + t];
        mean[lane] = sum * share;
      }
      elements.write(to, args.to_type, first + t, mean);
    });
    block.barrier();
  }
}
template <class Elements>
TROUPE_KERNEL_BODY void average_windows(const Block& block, const AveragePoolArgs& args, const Elements& elements) {
  using Index = typename Elements::Index;
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  const PoolShape& s = args.shape;
  const Index groups = args.lanes.by_groups.divisor;
  block.for_each(s.count_out() / Elements::kLanes, [&](std::uint64_t i) {
    const auto item = static_cast<Index>(i);
    const auto window =
        elements_of_window(s, place_of(item, s.by_out_height, s.by_out_width, args.lanes.by_groups), groups);
    float mean[Elements::kLanes] = {};
    walk<4>(
        window, [&](Index at) { return elements.read(from, args.from_type, at); },
        [&](std::uint32_t, const auto& packed) {
          for (unsigned lane = 0; lane < Elements::kLanes; ++lane) mean[lane] += elements.value(packed, lane);
        });
    const float share = 1 / static_cast<float>(window.rows * window.columns);
    for (unsigned lane = 0; lane < Elements::kLanes; ++lane) mean[lane] *= share;
    elements.write(to, args.to_type, item, mean);
  });
}
TROUPE_KERNEL_BODY void average_pool(const Block& block, const AveragePoolArgs& args) {
  with_lanes(args.lanes, args.shape, args.to_type, [&](const auto& elements) {
    if (is_divided(args.shape))
      average_images(block, args, elements);
    else
      average_windows(block, args, elements);
  });
}

struct AveragePoolBackArgs {
  const StreamState* stream;
  GradientTo to;         // the input
  const void* gradient;  // to the output
  PoolShape shape;
  PoolLanes lanes;
  Stored gradient_type;
  std::uint32_t reserved;
};
inline void divide_among_threads(AveragePoolBackArgs& args) {
  args.lanes = lanes_for(args.shape, {args.to.type, args.gradient_type}, {args.to.at, args.gradient}, nullptr);
}
constexpr std::uint64_t count_items(const AveragePoolBackArgs& args) noexcept {
  return args.lanes.count_groups(args.shape.count_in());
}
/// As max_pool_back().
TROUPE_KERNEL_BODY void average_pool_back(const Block& block, const AveragePoolBackArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const gradient = block.at(args.gradient);
  const PoolShape& s = args.shape;
  with_lanes(args.lanes, s, args.to.type, [&](const auto& elements) {
    using Elements = std::decay_t<decltype(elements)>;
    using Index = typename Elements::Index;
    const Index groups = args.lanes.by_groups.divisor;
    block.for_each(s.count_in() / Elements::kLanes, [&](std::uint64_t i) {
      const auto item = static_cast<Index>(i);
      const PoolPlace<Index> of = place_of(item, s.by_height, s.by_width, args.lanes.by_groups);
      const PoolSpan down = covering(of.y, s.out_height, s.kernel_height, s.by_stride_height, s.padding_height);
      const PoolSpan across = covering(of.x, s.out_width, s.kernel_width, s.by_stride_width, s.padding_width);
      float sums[Elements::kLanes] = {};
      for (std::uint32_t h = down.first; h < down.end; ++h) {
        const PoolSpan rows = covered(h, s.height, s.kernel_height, s.stride_height, s.padding_height);
        for (std::uint32_t w = across.first; w < across.end; ++w) {
          const PoolSpan columns = covered(w, s.width, s.kernel_width, s.stride_width, s.padding_width);
          const float share = 1 / static_cast<float>(rows.count() * columns.count());
          const auto slopes = elements.read(gradient, args.gradient_type,
                                            ((of.image * s.out_height + h) * s.out_width + w) * groups + of.group);
          for (unsigned lane = 0; lane < Elements::kLanes; ++lane) sums[lane] += elements.value(slopes, lane) * share;
        }
      }
      put_lanes(elements, args.to, to, item, sums);
    });
  });
}

#if !defined(__CUDACC__)
inline std::uint64_t index_bytes(const PoolShape& shape) {
  return shape.count_out() * index_bytes_of(shape.count_window());
}
inline void declare(Accesses& touched, const MaxPoolArgs& args) {
  touched.reads(args.from, args.shape.count_in() * bytes_of(args.from_type));
  touched.writes(args.to, args.shape.count_out() * bytes_of(args.to_type));
  touched.writes(args.index, index_bytes(args.shape));
}
inline void declare(Accesses& touched, const MaxPoolBackArgs& args) {
  touched.reads(args.gradient, args.shape.count_out() * bytes_of(args.gradient_type));
  touched.reads(args.index, index_bytes(args.shape));
  touched.reads(args.slopes.output, args.shape.count_out() * bytes_of(args.slopes.type));
  touched.writes(args.to.at, args.shape.count_in() * bytes_of(args.to.type));
}
inline void declare(Accesses& touched, const AveragePoolArgs& args) {
  touched.reads(args.from, args.shape.count_in() * bytes_of(args.from_type));
  touched.writes(args.to, args.shape.count_out() * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const AveragePoolBackArgs& args) {
  touched.reads(args.gradient, args.shape.count_out() * bytes_of(args.gradient_type));
  touched.writes(args.to.at, args.shape.count_in() * bytes_of(args.to.type));
}
#endif

}  // namespace troupe::cuda
