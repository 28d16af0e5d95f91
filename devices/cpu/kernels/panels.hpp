#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::cpu {

/// Where the columns of a row are.
struct ColumnOrder {
  /// Of an image in blocks of 16 channels (image_layouts.hpp), whose columns are counted as height by width by
  /// channels. 0: columns lie in their order.
  std::size_t channels = 0;
  std::size_t pixels = 0;  // of an image

  static constexpr std::size_t kBlock = 16;
  /// Columns up to the next multiple of kBlock lie one after the other. Kernels call it, so it must not become a
  /// function that the linker could merge with its copy for another instruction set.
  [[gnu::always_inline]] std::size_t place(std::size_t column) const noexcept {
    if (channels == 0) return column;
    const std::size_t pixel = column / channels, channel = column % channels;
    return (channel / kBlock * pixels + pixel) * kBlock + channel % kBlock;
  }
};

/// A part of the matrix product to [rows, columns] = a [rows, terms] times b [terms, columns].
struct PanelProduct {
  std::size_t first_row = 0, end_row = 0;        // that are computed
  std::size_t first_column = 0, end_column = 0;  // likewise; the first is a multiple of the lanes
  std::size_t first_term = 0, end_term = 0;      // that are added; the first is a multiple of terms_of_word
  std::size_t a_row = 0, a_term = 0;             // words from one row, or one word of terms, to the next
  std::size_t b_row = 0, to_row = 0;             // elements from one row in memory to the next
  bool b_is_transposed = false;                  // b is [columns, terms] in memory, whole words of terms
  bool b_is_packed = false;                      // b is one panel: [words of terms, columns up to whole vectors]
  bool adds = false;                             // to f32 results that are there
  bool relu = false;                             // of the results, after the bias
  ColumnOrder b_order{}, to_order{};             // of the rows in memory
};

/// `a` is in words of one f32 or of two bf16, which are neighbouring terms; behind an odd number of terms a word has 0.
/// No alignment is needed, except that of a word.
struct PanelOperands {
  const void* a;
  const void* b;                // f32 or bf16
  float* f32;                   // the result; or
  std::uint16_t* bf16;          // of bf16 operands alone; null: it is f32
  std::uint32_t* room;          // PanelKernels::room_words(), for this part alone
  const float* bias = nullptr;  // [columns], which is added to each row of the result; null: none
};

/// What a dense layer does with sums [units, rows], f32.
struct PanelOutputs {
  std::size_t rows = 0, units = 0;
  std::size_t first_unit = 0, end_unit = 0;
  const float* sums = nullptr;    // [units, to_unit]
  std::size_t to_unit = 0;        // from the sums of one unit to the next
  const float* bias = nullptr;    // [units]; null: none
  bool relu = false;              // after the bias
  float* f32 = nullptr;           // the output [rows, units]; or
  std::uint16_t* bf16 = nullptr;  // of bf16 operands alone; null: it is f32
};

/// Matrix products of dense layers with few rows. Vectors have neighbouring columns of the result. A panel, some
/// columns of b, is copied so that it is read in its order; a word of `a` is broadcast. The sum of an element is
/// computed in the order of its terms, whatever the number of rows, columns or parts.
struct PanelKernels {
  const char* name;
  std::size_t lanes;
  std::size_t vectors;  // of columns, at once
  std::size_t terms_of_word;
  void (*multiply)(const PanelProduct& of, const PanelOperands& on);
  /// output [rows, units] = the sums, transposed, plus the bias.
  void (*finish)(const PanelOutputs& of);
  /// Words of two rows: to [(rows + 1) / 2, columns]. Null for f32, whose words are its elements.
  void (*pair_rows)(const std::uint16_t* from, std::size_t rows, std::size_t columns, std::uint32_t* to);
  /// sums [columns] = the sums of the columns of [rows, columns].
  void (*add_rows)(const void* from, std::size_t rows, std::size_t columns, float* sums);

  static constexpr std::size_t kMostColumns = 64;        // of a panel
  static constexpr std::size_t kMostRows = 6;            // of `a`, of which a copy is made
  static constexpr std::size_t kPanelsWords = 1U << 16;  // that are packed at a time, if a panel is smaller
  static constexpr std::size_t room_words(std::size_t terms) noexcept {
    return std::max(kMostColumns * terms, kPanelsWords) + kMostRows * terms;
  }
};

#if defined(TROUPE_KERNELS_X86)
extern const PanelKernels kAvx2PanelKernels;
extern const PanelKernels kAvx512PanelKernels;
extern const PanelKernels kBf16PanelKernels;
#endif

/// All sets for f32, or for bf16, that this machine can execute and max_cpu_isa() allows, the narrowest first.
std::vector<const PanelKernels*> usable_panel_kernels(bool bf16);

}  // namespace troupe::cpu
