#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/onnx/detail/arrangement.hpp"
#include "runtime/onnx/detail/constants.hpp"
#include "runtime/onnx/detail/model_builder.hpp"
#include "runtime/onnx/detail/onnx_file.hpp"

namespace troupe::detail {

/// Makes layers of a file's nodes, one after the other (decision 60). What a node puts out is numbers (constants.hpp),
/// or a value: a tensor of the graph and how the file's array lies in it (arrangement.hpp), or a step of what takes
/// several nodes in ONNX and is one layer here; that layer is made when the last of them is seen.
///
/// The members of this class are in one source for each family of operations:
///   importer.cpp            the walk over the nodes, values, inputs and outputs, the table of operations
///   import_shapes.cpp       Reshape, Flatten, Transpose, Split and others, which only change arrangements
///   import_images.cpp       convolutions, pools, batch norm
///   import_dense.cpp        Gemm, MatMul
///   import_elementwise.cpp  Relu and others, Add, Mul, GELU
///   import_norms.cpp        layer norm and L2 norm, whole or of several nodes
///   import_sequences.cpp    embedding, position, attention
class Importer {
 public:
  Importer(OnnxFile file, const std::vector<Field>& fields, const OnnxOptions& options, std::string where,
           std::uint64_t most_numbers);
  OnnxModel finish();

 private:
  enum class Form {
    tensor,
    pending,  // a layer whose name is still to be found: the last node of several has it
    padded,   // an image with zeros around it
    product,  // of the last extent and a matrix: MatMul before its bias
    factors,  // the product of tensors, a number, and perhaps 1 + erf(x / sqrt(2)), which makes a GELU
    softmax,  // of logits, which only the end of a file may have
    // GELU in several nodes: x / sqrt(2) are factors; Erf, Add.
    erf,
    // L2 norm: the squares are factors; ReduceSum, Add, Sqrt, Div.
    sum_of_squares,
    more,
    norm,
    divided,
    // Layer norm: ReduceMean, Sub, Mul or Pow, ReduceMean, Add, Sqrt, Div, Mul, Add.
    mean,
    centered,
    centered_squares,
    variance,
    variance_and_more,
    deviation,
    inverse_deviation,
    normalized,
    weighted,
    // An embedding that gives zeros for tokens below 0: Max, Gather; GreaterOrEqual, Cast, Unsqueeze.
    row,
    rows,
    known,
    known_number,
    known_factor,
    // Attention: MatMul, Mul, Add, Softmax.
    scores,
    shares,
    no_shares,  // where shares are NaN
  };

  struct Value {
    Form form = Form::tensor;
    std::uint32_t tensor = 0;
    Arrangement arranged{{}, 1};
    const OnnxNode* node = nullptr;        // that gave it
    std::string_view numbers{};            // in the file, that it is made with
    double constant = 1;                   // a factor, an epsilon
    std::vector<std::uint32_t> factors{};  // or what a pending layer reads
    bool has_erf = false;                  // of factors: times 1 + erf(tensor / sqrt(2))
    std::optional<Operation> operation{};  // pending
    Shape shape{};                         // of what it puts out
    Size2 padding{};
    Arrangement::Heads queries{};
    std::optional<std::uint32_t> keys{};  // another tensor than that of the queries
    bool causal = false;
  };
  using Handler = void (Importer::*)(const OnnxNode&);
  static const std::map<std::string_view, Handler>& handlers();

  // ---- importer.cpp ----

  std::set<const OnnxNode*> needed_nodes() const;
  void choose_output(const OnnxOptions& options);
  void add_inputs(const std::set<const OnnxNode*>& needed);
  void add_input(const OnnxValue& given, bool is_only_one);
  bool compute(const OnnxNode& node);
  void add(const OnnxNode& node);

  std::string here() const;
  [[noreturn]] void refuse(const std::string& why) const;
  void need(bool holds, const char* why) const {
    if (!holds) refuse(why);
  }

  const Value& value(std::string_view name) const;
  bool has_input(std::size_t index) const { return index < node_->inputs.size() && !node_->inputs[index].empty(); }
  std::string_view input_name(std::size_t index) const;
  const Value& input(std::size_t index = 0) const { return value(input_name(index)); }
  const OnnxNumbers* find_numbers(std::size_t index) const;
  const OnnxNumbers& numbers(std::size_t index) const;
  const std::vector<float>& f32s(std::size_t index) const;
  const std::vector<std::int64_t>& integers(std::size_t index) const;
  bool is_number(std::size_t index) const;  // one f32
  double number(std::size_t index) const;
  /// Of an attribute, or, in newer opsets, of the second input.
  std::vector<std::int64_t> axes(const OnnxNode& node) const;

  std::string_view output() const { return node_->outputs.front(); }
  std::string own_name() const { return ModelBuilder::name_of(output()); }
  void give(Value made);
  void give_tensor(std::uint32_t tensor, Arrangement arranged);
  void give_plain(std::uint32_t tensor);
  void give_next(Value from, Form form);

  const Shape& shape(std::uint32_t tensor) const { return model_.shape(tensor); }
  Shape shape_of(const Value& value) const;
  std::uint32_t last_extent(std::uint32_t tensor) const;
  std::uint32_t add_layer(const std::string& wanted, Operation operation, const std::vector<std::uint32_t>& read,
                          std::vector<ModelBuilder::Start> starts = {});
  /// The tensor that has the value, however it lies there; makes the layers that stand for it.
  Value made(std::string_view name);
  Value made(std::size_t index) { return made(input_name(index)); }
  Value keep(std::string_view name, std::uint32_t tensor, Arrangement arranged);
  /// The tensor that is the file's array.
  std::uint32_t plain(std::string_view name);
  bool is_plain(const Value& value) const;
  std::uint32_t plain(std::size_t index) { return plain(input_name(index)); }
  /// The same, but extents may lie in another order, as layers that work on each element do not mind.
  Value readable(std::string_view name);
  Value readable(std::size_t index) { return readable(input_name(index)); }

  // ---- import_shapes.cpp ----

  void flatten(const OnnxNode& node);
  void reshape(const OnnxNode& node);
  void transpose(const OnnxNode& node);
  void squeeze(const OnnxNode& node);
  void unsqueeze(const OnnxNode& node);
  void split(const OnnxNode& node);
  void slice(const OnnxNode& node);
  void expand(const OnnxNode& node);
  void concat(const OnnxNode& node);
  void take_at(const OnnxNode& node);
  void shape_numbers(const OnnxNode& node);
  void identity(const OnnxNode& node);
  void cast(const OnnxNode& node);
  Value arrangeable();
  void give_arranged(Value from, bool can, const char* why);
  std::vector<OnnxExtent> wanted_extents(const OnnxNode& node, const Arrangement& from) const;

  // ---- import_images.cpp ----

  void conv(const OnnxNode& node);
  void conv_of_one_place(const OnnxNode& node, const Value& read);
  template <class Pool>
  void pool(const OnnxNode& node);
  void global_average_pool(const OnnxNode& node);
  void global_max_pool(const OnnxNode& node);
  void reduce_mean(const OnnxNode& node);
  void pad(const OnnxNode& node);
  void batch_norm(const OnnxNode& node);
  struct Image {
    std::uint32_t tensor;
    Size2 padding{0, 0};  // of Pad before it
  };
  Image image(std::size_t index);
  void give_image(std::uint32_t tensor);
  Size2 pair(const OnnxNode& node, std::string_view attribute) const;
  Size2 padding(const OnnxNode& node, const Shape& image, Size2 kernel, Size2 stride, Size2 dilation) const;

  // ---- import_dense.cpp ----

  void gemm(const OnnxNode& node);
  void matmul(const OnnxNode& node);
  const OnnxNumbers& matrix(std::string_view name) const;
  /// How a dense layer reads a value.
  struct DenseRead {
    std::uint32_t tensor = 0;
    bool flatten = false;
    Arrangement arranged{{}, 1};        // of what it puts out
    std::vector<std::size_t> places{};  // of the weights' columns; empty: as they are
  };
  DenseRead dense_read(std::string_view name, std::string_view layer, std::size_t width, std::uint32_t units,
                       bool by_gemm);
  Value made_product(std::string_view name, const Value& product, const OnnxNumbers* bias);

  // ---- import_elementwise.cpp ----

  template <class Kind>
  void elementwise(const OnnxNode&) {
    add_elementwise(Kind{}, 1);
  }
  void add_elementwise(Operation operation, std::size_t count);
  /// The tensors that the node's first `count` inputs are, all in one arrangement.
  std::vector<std::uint32_t> read_alike(std::size_t count, Arrangement& arranged);
  void gelu(const OnnxNode& node);
  void dropout(const OnnxNode& node);
  void sum(const OnnxNode& node);
  void add_two(const OnnxNode& node);
  void add_numbers(std::size_t index);
  void multiply(const OnnxNode& node);
  void give_product(Value product);
  Value factors_of(std::size_t index, bool is_scaled = false);
  void divide(const OnnxNode& node);
  void power(const OnnxNode& node);
  void erf(const OnnxNode& node);
  void softmax(const OnnxNode& node);

  // ---- import_norms.cpp ----

  void layer_norm(const OnnxNode& node);
  void subtract(const OnnxNode& node);
  void square_root(const OnnxNode& node);
  void reciprocal(const OnnxNode& node);
  void reduce_sum(const OnnxNode& node);
  bool is_over_last(const OnnxNode& node, const Value& read) const;
  static bool is_row(const OnnxNumbers& given, std::int64_t each);
  bool add_to_norm(const Value& to, std::size_t index);
  bool multiply_norm(const Value& read, std::size_t index);
  bool divide_by_norm(const Value& read, const Value& by);
  bool multiply_by_inverse(const Value& one, const Value& two);
  Value made_layer_norm(std::string_view name, const Value& read, const OnnxNumbers* bias);

  // ---- import_sequences.cpp ----

  void gather(const OnnxNode& node);
  Value made_embedding(std::string_view name, const Value& rows);
  void max(const OnnxNode& node);
  void greater_or_equal(const OnnxNode& node);
  bool is_zero(std::size_t index) const;
  void add_position(std::size_t index);
  void attention(const OnnxNode& node);
  bool multiply_heads();
  std::optional<Value> scores_of(Value queries, const Value& keys, bool transposed) const;
  Value read_by(const Value& shares, const Value& values);
  Value masked(Value scores, const OnnxNumbers& mask, double hidden_below) const;
  void where(const OnnxNode& node);
  void is_nan(const OnnxNode& node);
  void softmax_of_scores(const OnnxNode& node);

  OnnxFile file_;  // without the numbers
  const std::string where_;
  ModelBuilder model_;
  Constants computed_;
  std::map<std::string_view, OnnxNumbers> constants_;
  std::map<std::string_view, Value> values_;
  std::uint64_t rows_ = 0;          // of the file's inputs; 0: any number
  std::string_view wanted_output_;  // of the file
  const OnnxNode* node_ = nullptr;  // that is being added
};

/// The shortest decimal that is this f32: of what somebody wrote as 0.1, exactly that.
double decimal_of(float number);
/// As a size of a layer; a number that cannot be one becomes the largest.
std::uint32_t size_of(std::int64_t number);
/// To 1e-5 of it.
bool is_near(double found, double wanted);

}  // namespace troupe::detail
