#include "devices/cpu/kernels/attention.hpp"

#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;
using Type = ProgramBuilder::Type;

/// Attention of a batch, one head after the other, each by one thread: the result does not depend on the number of
/// threads.
struct AttentionPass {
  const AttentionKernels* kernels = nullptr;
  AttentionHead head;  // the shape of each
  std::size_t rows = 0, heads = 0;
  std::size_t threads = 1;
  memory input, output;         // [rows, length, 3 width], [rows, length, width]
  memory logarithms;            // f32 [rows, heads, length]
  memory room;                  // f32 [threads, elements of a call's scratch memory]
  memory gradient, to_input{};  // shaped like output and input; only in the backward pass

  std::vector<memory> memories() const { return {input, output, logarithms, room, gradient, to_input}; }
  std::size_t room_elements(bool backward) const { return kernels->room_elements(head, backward); }

  template <class Element>
  HeadTensors<Element> tensors_of(std::size_t number) const {
    const std::size_t row = number / heads, part = number % heads * head.part;
    const auto at = [](const memory& tensor, std::size_t first) {
      return tensor ? static_cast<Element*>(tensor.get_data_handle()) + first : nullptr;
    };
    // Of each place, the input has the queries of all heads, then their keys, then their values.
    const auto of_input = [&](const memory& tensor, std::size_t which) {
      return at(tensor, row * head.length * head.input_step + which * head.output_step + part);
    };
    const std::size_t of_output = row * head.length * head.output_step + part;
    return {of_input(input, 0),    of_input(input, 1),    of_input(input, 2),
            at(output, of_output), logarithms_of(number), at(gradient, of_output),
            of_input(to_input, 0), of_input(to_input, 1), of_input(to_input, 2)};
  }
  float* logarithms_of(std::size_t number) const {
    return static_cast<float*>(logarithms.get_data_handle()) + number * head.length;
  }

  template <class Element>
  void run(const Kernels& loops) const {
    const bool backward = static_cast<bool>(to_input);
    auto* const pass = backward ? kernels->of<Element>().backward : kernels->of<Element>().forward;
    const std::size_t room_size = room_elements(backward);
    auto* const first = static_cast<float*>(room.get_data_handle());
    for_each_in_parallel(threads, rows * heads, [&](std::size_t number, std::size_t thread) {
      pass(loops, head, tensors_of<Element>(number), first + thread * room_size);
    });
  }
};

class AttentionCalls final : public LayerCalls {
 public:
  AttentionCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const Attention& attention)
      : builder_(builder), fused_layer_(fused_layer) {
    const std::size_t length = fused_layer.output_shape.extents[0], width = fused_layer.output_shape.extents[1];
    pass_.kernels = usable_attention_kernels().back();
    pass_.head = {length, width / attention.heads, 3 * width, width, attention.causal};
    pass_.rows = builder.rows();
    pass_.heads = attention.heads;
    pass_.threads = usable_threads();
    pass_.input = builder.tensor(fused_layer.inputs.front()).value;
    pass_.output = builder.tensor(fused_layer.output).value;
    pass_.logarithms = builder.places().take(builder.matrix(builder.rows(), pass_.heads * length, Type::f32));
  }

  void forward(Calls& calls) override { add(calls, pass_, "forward"); }

  void backward(Calls& calls, Gradients& gradients) override {
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      if (!input_gradient) return;
      AttentionPass pass = pass_;
      pass.gradient = gradient;
      pass.to_input = input_gradient;
      add(calls, std::move(pass), "backward");
    });
  }

 private:
  void add(Calls& calls, AttentionPass pass, const char* name) const {
    builder_.choose_own(fused_layer_, name, pass.kernels->name);
    const std::size_t room_size = pass.room_elements(static_cast<bool>(pass.to_input));
    pass.room = builder_.places().take(builder_.matrix(pass.threads, room_size, Type::f32));
    const bool f32 = is_f32(pass.input);
    calls.emplace_back(OwnWork{pass.memories(), [pass, f32](const Kernels& loops) {
                                 f32 ? pass.run<float>(loops) : pass.run<std::uint16_t>(loops);
                               }});
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  AttentionPass pass_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_attention(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                           const Attention& attention) {
  return std::make_unique<AttentionCalls>(builder, fused_layer, attention);
}

}  // namespace troupe::cpu
