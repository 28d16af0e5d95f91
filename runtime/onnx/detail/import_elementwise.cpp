#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/importer.hpp"

namespace troupe::detail {

std::vector<std::uint32_t> Importer::read_alike(std::size_t count, Arrangement& arranged) {
  std::vector<Value> read;
  for (std::size_t i = 0; i < count; ++i) read.push_back(readable(i));
  need(!read.empty(), "reads nothing");
  const bool alike = std::ranges::all_of(read, [&](const Value& one) { return one.arranged == read[0].arranged; });
  std::vector<std::uint32_t> tensors;
  for (std::size_t i = 0; i < count; ++i) tensors.push_back(alike ? read[i].tensor : plain(i));
  arranged = alike ? read[0].arranged : Arrangement{shape(tensors[0]), rows_};
  return tensors;
}
/// On each element, in the order in which the inputs lie, if they all do.
void Importer::add_elementwise(Operation operation, std::size_t count) {
  Arrangement arranged{{}, 1};
  const std::vector<std::uint32_t> tensors = read_alike(count, arranged);
  give_tensor(add_layer(own_name(), std::move(operation), tensors), std::move(arranged));
}

void Importer::gelu(const OnnxNode& node) {
  need(node.text("approximate", "none") == "none",
       "is approximated by tanh; the layer gelu is exact: export with approximate = \"none\"");
  add_elementwise(Gelu{}, 1);
}
void Importer::dropout(const OnnxNode& node) {
  const double rate = is_number(1) ? number(1) : decimal_of(node.f32("ratio", 0.5F));
  if (input().form == Form::shares) {
    need(rate == 0, "drops shares of an attention, which no layer does; export the model as it is evaluated");
    return give(input());
  }
  add_elementwise(Dropout{rate}, 1);
}
void Importer::sum(const OnnxNode& node) {
  if (node.inputs.size() == 1) return identity(node);
  add_elementwise(Add{}, node.inputs.size());
}

void Importer::add_two(const OnnxNode& node) {
  need(node.inputs.size() == 2, "reads other than two tensors");
  if (find_numbers(0) != nullptr) return add_numbers(0);
  if (find_numbers(1) != nullptr) return add_numbers(1);
  add_elementwise(Add{}, 2);
}
void Importer::add_numbers(std::size_t index) {
  const Value to = input(1 - index);
  const OnnxNumbers& given = numbers(index);
  if (to.form == Form::scores) return give(masked(to, given, -1e4));
  if (to.form == Form::erf) {
    need(is_number(index) && is_near(number(index), 1), "adds another number than 1 to erf, which no layer does");
    return give({.form = Form::factors, .tensor = to.tensor, .arranged = to.arranged, .has_erf = true});
  }
  if (add_to_norm(to, index)) return;
  if (to.form == Form::product && is_row(given, matrix(to.numbers).dims[1])) {
    give(made_product(output(), to, &given));
    return;
  }
  add_position(index);
}

/// As factors: a tensor, perhaps times a number. A product of more than two is several nodes in a file of ours; one
/// with a number or an erf goes on until it is a GELU or the scaling of an attention, of which a part of a tensor may
/// be scaled.
Importer::Value Importer::factors_of(std::size_t index, bool is_scaled) {
  const Value read = input(index);
  const bool goes_on = read.form == Form::factors && (read.has_erf || read.constant != 1 ||
                                                      input_name(index).starts_with(text(output(), ".product")));
  if (goes_on) return read;
  const Value one = is_scaled ? made(index) : readable(index);
  return {.form = Form::factors, .tensor = one.tensor, .arranged = one.arranged, .factors = {one.tensor}};
}

void Importer::multiply(const OnnxNode& node) {
  need(node.inputs.size() == 2, "reads other than two tensors");
  const std::size_t fixed = find_numbers(0) != nullptr ? 0 : 1;
  if (find_numbers(fixed) == nullptr) {
    const Value one = input(0), two = input(1);
    if (one.form == Form::rows && two.form == Form::known_factor && one.tensor == two.tensor) {
      give(made_embedding(output(), one));
      return;
    }
    if (multiply_by_inverse(one, two) || multiply_by_inverse(two, one)) return;
    Value product = factors_of(0);
    const Value other = factors_of(1);
    if (product.arranged != other.arranged) {
      const bool numbers_only = !product.has_erf && !other.has_erf && product.constant == 1 && other.constant == 1;
      need(numbers_only && product.factors.size() == 1 && other.factors.size() == 1,
           "multiplies tensors whose extents lie in different orders");
      return add_elementwise(Multiply{}, 2);
    }
    need(!product.has_erf || !other.has_erf, "multiplies two functions of erf, which no layer does");
    if (other.has_erf) product.tensor = other.tensor;
    product.has_erf = product.has_erf || other.has_erf;
    product.constant *= other.constant;
    product.factors.insert(product.factors.end(), other.factors.begin(), other.factors.end());
    return give_product(std::move(product));
  }
  const Value read = input(1 - fixed);
  if (multiply_norm(read, fixed)) return;
  need(is_number(fixed), "multiplies by numbers of the file, which no layer does; put them into the weights before it");
  if (read.form == Form::scores) {
    Value next = read;
    next.constant *= number(fixed);
    return give(std::move(next));
  }
  Value product = factors_of(1 - fixed, true);
  product.constant *= number(fixed);
  give_product(std::move(product));
}

/// x (1 + erf(x / sqrt(2))) / 2 is GELU, in whatever order it is multiplied.
void Importer::give_product(Value product) {
  product.node = nullptr;
  const bool is_gelu = product.has_erf && product.factors == std::vector<std::uint32_t>{product.tensor} &&
                       is_near(product.constant, 0.5);
  if (is_gelu) return give_tensor(add_layer(own_name(), Gelu{}, {product.tensor}), std::move(product.arranged));
  give(std::move(product));
}

void Importer::divide(const OnnxNode&) {
  if (is_number(1)) {
    need(number(1) != 0, "divides by 0");
    if (input().form == Form::scores) {
      Value next = input();
      next.constant /= number(1);
      return give(std::move(next));
    }
    Value product = factors_of(0, true);
    product.constant /= number(1);
    return give_product(std::move(product));
  }
  need(divide_by_norm(input(0), input(1)), "divides by something else than a number or a norm, which no layer does");
}

void Importer::power(const OnnxNode&) {
  need(find_numbers(1) != nullptr && numbers(1).count() == 1, "has an exponent that is not one number of the file");
  const double exponent = numbers(1).at(0);
  need(exponent != 3, "is a step of GELU by tanh; the layer gelu is exact: export with approximate = \"none\"");
  need(exponent == 2, "takes a power, which no layer does");
  if (input().form == Form::centered) return give_next(input(), Form::centered_squares);
  Value squares = factors_of(0);
  need(squares.factors.size() == 1 && squares.constant == 1 && !squares.has_erf, "squares a product");
  squares.factors.push_back(squares.factors[0]);
  give_product(std::move(squares));
}

void Importer::erf(const OnnxNode&) {
  const Value read = input();
  need(
      read.form == Form::factors && read.factors.size() == 1 && !read.has_erf && is_near(read.constant, std::sqrt(0.5)),
      "is no part of a GELU");
  give({.form = Form::erf, .tensor = read.tensor, .arranged = read.arranged});
}

void Importer::softmax(const OnnxNode& node) {
  if (input().form == Form::scores) return softmax_of_scores(node);
  Value read = readable(0);
  const auto axis = read.arranged.find_axis(node.number("axis", -1));
  need(axis && *axis + 1 == read.arranged.count_axes(), "is over another extent than the last");
  need(is_plain(read), "is of what lies in another order than logits");
  read.node = nullptr;
  give_next(std::move(read), Form::softmax);
}

}  // namespace troupe::detail
