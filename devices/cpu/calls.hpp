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

/// A matrix product or a convolution: what a step's time should consist of.
struct Product {
  BoundPrimitive primitive;
};

enum class ElementwiseKind : std::uint8_t { relu, add, mask, copy, widen, round };
/// A loop over all elements of tensors. Addresses are read when it is called: those of a batch are not known before.
struct Elementwise {
  ElementwiseKind kind;
  dnnl::memory to, from, other;  // add: to = from + other; mask: to = 0 where from is not above 0
  std::uint64_t count;
};

/// What one kind of layer does in a way of its own. It is made once and holds what it works on, whose addresses are
/// read when it is called; a call allocates nothing.
struct OwnWork {
  /// `used`: all that `run` reads or writes, the same objects that it holds or copies of them; during this call nothing
  /// else lies where these do, and what is not named has no address.
  OwnWork(std::vector<dnnl::memory> used, std::function<void(const Kernels& kernels)> run)
      : used(std::move(used)), run(std::move(run)) {}
  std::vector<dnnl::memory> used;
  std::function<void(const Kernels& kernels)> run;
};

/// to = from, where a layer of the graph drops some elements and multiplies the others by 1 / (1 - rate), on rows of
/// `width`. Without an address in `keys`, which an evaluation has not, it only copies. `to` may be `from`.
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

/// Calls `visit(memory, may be written)` with each memory that the call reads or writes; some of them may be none.
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
/// The products alone.
void execute_products(const Calls& calls, const dnnl::stream& stream);

}  // namespace troupe::cpu
