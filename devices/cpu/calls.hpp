#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "devices/cpu/kernels/kernels.hpp"
#include "devices/cpu/onednn.hpp"

namespace troupe::cpu {

/// A matrix product or a convolution. Most of a step's time should be spent in these.
struct Product {
  BoundPrimitive primitive;
};

enum class ElementwiseKind : std::uint8_t {
  relu,
  add,
  add_masked,
  mask,
  tanh_slope,
  sigmoid_slope,
  copy,
  widen,
  round
};
/// A loop over all elements of tensors. It reads their addresses when it is called: a batch's address is not known
/// before.
struct Elementwise {
  ElementwiseKind kind;
  // add: to = from + other; add_masked: to += from, 0 where other is not above 0; mask: to = 0 where from is not above
  // 0; slopes: to *= the slope where the output is from
  dnnl::memory to, from, other;
  std::uint64_t count;
};

/// Work that only one kind of layer does. It is made once and holds the memories that it works on; their addresses are
/// read when it is called. A call allocates nothing.
struct OwnWork {
  /// `used`: everything that `run` reads or writes, as the objects that `run` holds or as copies of them. During the
  /// call no other tensor shares their memory. A memory that is not listed here gets no address.
  OwnWork(std::vector<dnnl::memory> used, std::function<void(const Kernels& kernels)> run, bool is_product = false)
      : used(std::move(used)), run(std::move(run)), is_product(is_product) {}
  std::vector<dnnl::memory> used;
  std::function<void(const Kernels& kernels)> run;
  bool is_product;  // as Product
};

/// to = from, but where a layer of the graph drops elements: these become 0, the others are multiplied by 1 / (1 -
/// rate). Rows have `width` elements. Without an address in `keys`, as in an evaluation, it only copies. `to` may be
/// `from`.
struct Drop {
  dnnl::memory to, from;
  dnnl::memory keys;  // s32 [rows, 2], of the batch
  std::uint32_t layer;
  double rate;
  std::uint32_t rows;
  std::uint64_t width;
};

/// Copies a block of columns from one matrix into another.
struct CopyColumns {
  struct Side {
    dnnl::memory matrix;
    std::size_t row_bytes = 0;    // from one row to the next
    std::size_t first_bytes = 0;  // from a row's first element to the block
  };
  Side to, from;
  std::uint64_t rows = 0;
  std::size_t size_bytes = 0;  // of the block in a row
};

/// One entry of a program.
using Call = std::variant<Product, BoundPrimitive, Elementwise, OwnWork, Drop, CopyColumns>;
using Calls = std::vector<Call>;

/// Calls `visit(memory, may be written)` for each memory that the call reads or writes; some memories may be empty.
template <class Visit>
void for_memories(const Call& call, Visit&& visit) {
  struct Visitor {
    Visit& visit;
    void operator()(const BoundPrimitive& primitive) const {
      for (std::size_t i = 0; i < primitive.memories().size(); ++i)
        visit(primitive.memories()[i], !primitive.only_reads(i));
    }
    void operator()(const Product& product) const { (*this)(product.primitive); }
    void operator()(const Elementwise& loop) const {
      visit(loop.to, true);
      visit(loop.from, false);
      visit(loop.other, false);
    }
    void operator()(const OwnWork& work) const {
      for (const dnnl::memory& one : work.used) visit(one, true);
    }
    void operator()(const Drop& drop) const {
      visit(drop.to, true);
      visit(drop.from, false);
    }
    void operator()(const CopyColumns& copy) const {
      visit(copy.to.matrix, true);
      visit(copy.from.matrix, false);
    }
  };
  std::visit(Visitor{visit}, call);
}

void execute(std::span<const Call> calls, const dnnl::stream& stream, const Kernels& kernels);
/// Executes only the products.
void execute_products(const Calls& calls, const dnnl::stream& stream, const Kernels& kernels);

}  // namespace troupe::cpu
