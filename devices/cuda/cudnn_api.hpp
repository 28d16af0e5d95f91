#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

// What we use of cuDNN's graph interface (libcudnn.so.9), declared here so that everything builds where it is not
// installed. Binary compatible with cudnn_graph.h; cudnn_api_check.cpp proves that where cudnn_graph.h is found.
struct cudnnContext;
struct CUstream_st;

namespace troupe::cuda::dnn {

/// Thousands give the category: 1 no start, 2 wrong use, 3 not supported, 4 internal errors, 5 failed on the GPU.
enum class Status : unsigned {
  success = 0,
  not_initialized = 1001,
  bad_param = 2000,
  not_finalized = 2004,
  not_supported = 3000,
  internal_error = 4000,
  host_allocation_failed = 4003,
  device_allocation_failed = 4004,
  execution_failed = 5000,
};

enum class DescriptorType : unsigned {
  pointwise = 0,
  convolution = 1,
  engine = 2,
  config = 3,
  heuristics = 4,
  plan = 5,
  knob_choice = 7,
  convolution_forward = 10,
  convolution_to_weights = 11,
  convolution_to_images = 12,
  pointwise_operation = 13,
  graph = 15,
  variant_pack = 16,
  tensor = 17,
  product = 18,
  product_operation = 19,
  reduction = 21,
  reduction_operation = 22,
  resample = 24,
  resample_forward = 25,
  resample_backward = 26,
  norm_forward = 29,
  norm_backward = 30,
  reshape = 31,
};

enum class Attribute : unsigned {
  pointwise_mode = 0,
  pointwise_compute = 1,
  pointwise_axis = 9,
  convolution_compute = 100,
  convolution_mode = 101,
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_post_paddings = 104,
  convolution_pre_paddings = 105,
  convolution_spatial_dims = 106,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  config_engine = 300,
  config_knob_choices = 302,
  plan_handle = 400,
  plan_config = 401,
  plan_workspace_bytes = 402,
  knob_type = 600,
  knob_value = 601,
  forward_alpha = 700,
  forward_beta = 701,
  forward_convolution = 702,
  forward_weights = 703,
  forward_images = 704,
  forward_output = 705,
  to_images_alpha = 706,
  to_images_beta = 707,
  to_images_convolution = 708,
  to_images_weights = 709,
  to_images_images = 710,
  to_images_output = 711,
  to_weights_alpha = 712,
  to_weights_beta = 713,
  to_weights_convolution = 714,
  to_weights_weights = 715,
  to_weights_images = 716,
  to_weights_output = 717,
  pointwise_operation_pointwise = 750,
  pointwise_operation_x = 751,
  pointwise_operation_b = 752,
  pointwise_operation_y = 753,
  pointwise_operation_t = 758,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  pack_ids = 1000,
  pack_pointers = 1001,
  pack_workspace = 1003,
  engine_graph = 1300,
  engine_index = 1301,
  engine_numerical_notes = 1303,
  product_compute = 1500,
  product_a = 1520,
  product_b = 1521,
  product_c = 1522,
  product_product = 1523,
  reduction_operator = 1600,
  reduction_compute = 1601,
  reduction_x = 1610,
  reduction_y = 1611,
  reduction_reduction = 1612,
  resample_mode = 1700,
  resample_compute = 1701,
  resample_spatial_dims = 1702,
  resample_post_paddings = 1703,
  resample_pre_paddings = 1704,
  resample_strides = 1705,
  resample_window = 1706,
  resample_nan = 1707,
  resample_padding_mode = 1708,
  resample_forward_images = 1710,
  resample_forward_output = 1711,
  resample_forward_index = 1712,
  resample_forward_alpha = 1713,
  resample_forward_beta = 1714,
  resample_forward_resample = 1716,
  resample_backward_images = 1720,
  resample_backward_output = 1721,
  resample_backward_index = 1722,
  resample_backward_alpha = 1723,
  resample_backward_beta = 1724,
  resample_backward_resample = 1725,
  norm_forward_mode = 2000,
  norm_forward_phase = 2001,
  norm_forward_x = 2002,
  norm_forward_mean = 2003,
  norm_forward_inverse = 2004,
  norm_forward_scale = 2005,
  norm_forward_shift = 2006,
  norm_forward_epsilon = 2007,
  norm_forward_momentum = 2008,
  norm_forward_running_mean = 2009,
  norm_forward_running_variance = 2010,
  norm_forward_next_mean = 2011,
  norm_forward_next_variance = 2012,
  norm_forward_y = 2013,
  norm_backward_mode = 2100,
  norm_backward_x = 2101,
  norm_backward_mean = 2102,
  norm_backward_inverse = 2103,
  norm_backward_to_y = 2104,
  norm_backward_scale = 2105,
  norm_backward_to_scale = 2107,
  norm_backward_to_shift = 2108,
  norm_backward_to_x = 2109,
  reshape_x = 2200,
  reshape_y = 2201,
};

/// What the elements of an attribute are.
enum class ElementType : unsigned {
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  f32 = 4,
  f64 = 5,
  void_pointer = 6,
  convolution_mode = 7,
  heuristics_mode = 8,
  knob_type = 9,
  nan_propagation = 10,
  numerical_note = 11,
  pointwise_mode = 14,
  descriptor = 15,
  reduction_operator = 18,
  resample_mode = 21,
  padding_mode = 22,
  fraction = 26,
  norm_mode = 27,
  norm_phase = 28,
};

enum class DataType : unsigned { f32 = 0, f16 = 2, i8 = 3, i32 = 4, bf16 = 9, boolean = 11 };
enum class ConvolutionMode : unsigned { cross_correlation = 1 };
/// index: the place along an axis; select: x where t, else b.
enum class PointwiseMode : unsigned {
  add = 0,
  multiply = 1,
  divide = 6,
  subtract = 9,
  exp = 13,
  log = 15,
  relu = 100,
  at_least = 303,
  index = 501,
  select = 601,
};
enum class ReductionOperator : unsigned { add = 0, max = 3 };
enum class NormMode : unsigned { layer = 0, batch = 2 };
enum class NormPhase : unsigned { inference = 0, training = 1 };
/// What windows over images become.
enum class ResampleMode : unsigned { max = 3, average_without_padding = 4 };
enum class PaddingMode : unsigned { zero = 0, minus_infinity = 1 };
enum class NanPropagation : unsigned { yes = 1 };
struct Fraction {
  std::int64_t numerator, denominator;
};
/// a: the library's model of how fast each engine is; fallback: engines that nearly always can.
enum class HeuristicsMode : unsigned { fallback = 2, a = 3 };
/// What an engine does with numbers.
enum class NumericalNote : unsigned {
  tensor_core = 0,
  down_convert_inputs = 1,
  reduced_precision_reduction = 2,
  nondeterministic = 4,
  winograd_4x4 = 6,
  winograd_6x6 = 7,
  winograd_13x13 = 8,
};
/// More than any engine has.
inline constexpr std::int64_t kMostNotes = 32, kMostKnobs = 64;
/// A setting of an engine. Which there are is the library's business: choices are only kept and given back.
enum class KnobType : unsigned {};

using Handle = cudnnContext*;
using Descriptor = void*;
using StreamHandle = CUstream_st*;

// X(member of Library, exported symbol, type of its result, parameters...): the only list of entry points.
// Library::load, the check against cudnn_graph.h and the stand-in are made from it.
#define TROUPE_CUDNN_ENTRY_POINTS(X)                                                                                \
  X(get_version, cudnnGetVersion, std::size_t, void)                                                                \
  X(get_error_string, cudnnGetErrorString, const char*, Status status)                                              \
  X(create, cudnnCreate, Status, Handle* handle)                                                                    \
  X(destroy, cudnnDestroy, Status, Handle handle)                                                                   \
  X(set_stream, cudnnSetStream, Status, Handle handle, StreamHandle stream)                                         \
  X(descriptor_create, cudnnBackendCreateDescriptor, Status, DescriptorType type, Descriptor* descriptor)           \
  X(descriptor_destroy, cudnnBackendDestroyDescriptor, Status, Descriptor descriptor)                               \
  X(descriptor_finalize, cudnnBackendFinalize, Status, Descriptor descriptor)                                       \
  X(descriptor_set, cudnnBackendSetAttribute, Status, Descriptor descriptor, Attribute attribute, ElementType type, \
    std::int64_t count, const void* elements)                                                                       \
  X(descriptor_get, cudnnBackendGetAttribute, Status, Descriptor descriptor, Attribute attribute, ElementType type, \
    std::int64_t most, std::int64_t* count, void* elements)                                                         \
  X(execute, cudnnBackendExecute, Status, Handle handle, Descriptor plan, Descriptor pack)

/// cuDNN's entry points. A value: copies call the same library, which stays loaded until the process ends.
struct Library {
#define TROUPE_CUDNN_MEMBER(member, symbol, Returned, ...) Returned (*member)(__VA_ARGS__) = nullptr;
  TROUPE_CUDNN_ENTRY_POINTS(TROUPE_CUDNN_MEMBER)
#undef TROUPE_CUDNN_MEMBER

  /// Opens `library` and finds every entry point; nothing of it is called. Without a value: `why` says which library or
  /// which symbol is missing.
  static std::optional<Library> load(std::string& why, const char* library);
};

}  // namespace troupe::cuda::dnn
