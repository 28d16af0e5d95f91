#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <memory>
#include <utility>

#include "runtime/base/error.hpp"

// Calls that differ between oneDNN 2 and oneDNN 3, which has no operation descriptors and hides the contents of a
// memory descriptor. No other file of this folder depends on the version it is compiled with.
namespace troupe::cpu {

/// The descriptor of a primitive, which next_impl() advances to oneDNN's next implementation. For that oneDNN 2 reads
/// the descriptors of the operation and of the forward primitive again, but has kept only their addresses. Therefore
/// they are kept here.
#if DNNL_VERSION_MAJOR >= 3
template <class Primitive>
using Described = typename Primitive::primitive_desc;
#else
template <class Primitive>
class Described : public Primitive::primitive_desc {
 public:
  using Operation = std::shared_ptr<const typename Primitive::desc>;
  Described(Operation operation, const dnnl::primitive_attr& attributes, const dnnl::engine& engine)
      : Primitive::primitive_desc(*operation, attributes, engine), operation_(std::move(operation)) {}
  template <class Forward>
  Described(Operation operation, const dnnl::primitive_attr& attributes, const dnnl::engine& engine,
            const Forward& forward)
      : Primitive::primitive_desc(*operation, attributes, engine, forward),
        operation_(std::move(operation)),
        forward_(std::make_shared<const Forward>(forward)) {}

 private:
  Operation operation_;
  std::shared_ptr<const void> forward_;  // null: there is no forward primitive
};
#endif

/// A primitive of a forward pass, or one without another pass, with its operation's arguments in oneDNN's order.
template <class Primitive, class... Arguments>
Described<Primitive> describe(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
                              const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return Described<Primitive>(engine, arguments..., attributes);
#else
  return {std::make_shared<const typename Primitive::desc>(arguments...), attributes, engine};
#endif
}

/// A primitive of a backward pass; `forward` describes the corresponding forward primitive.
template <class Primitive, class Forward, class... Arguments>
Described<Primitive> describe_backward(const Forward& forward, const dnnl::engine& engine,
                                       const dnnl::primitive_attr& attributes, const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return Described<Primitive>(engine, arguments..., forward, attributes);
#else
  return {std::make_shared<const typename Primitive::desc>(arguments...), attributes, engine, forward};
#endif
}

/// In the functions below, `data` describes the input and the output, and for a backward pass also both of their
/// gradients.

inline Described<dnnl::eltwise_forward> describe_eltwise(const dnnl::engine& engine,
                                                         const dnnl::primitive_attr& attributes,
                                                         dnnl::algorithm function, const dnnl::memory::desc& data) {
  constexpr auto kTraining = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  return describe<dnnl::eltwise_forward>(engine, attributes, kTraining, function, data, data, 0.0F, 0.0F);
#else
  return describe<dnnl::eltwise_forward>(engine, attributes, kTraining, function, data, 0.0F, 0.0F);
#endif
}

inline Described<dnnl::eltwise_backward> describe_eltwise_backward(const dnnl::eltwise_forward::primitive_desc& forward,
                                                                   const dnnl::engine& engine,
                                                                   const dnnl::primitive_attr& attributes,
                                                                   dnnl::algorithm function,
                                                                   const dnnl::memory::desc& data) {
#if DNNL_VERSION_MAJOR >= 3
  return describe_backward<dnnl::eltwise_backward>(forward, engine, attributes, function, data, data, data, 0.0F, 0.0F);
#else
  return describe_backward<dnnl::eltwise_backward>(forward, engine, attributes, function, data, data, 0.0F, 0.0F);
#endif
}

/// `more`: the rest of the operation's arguments (batch norm: epsilon, flags; layer norm: statistics, epsilon, flags).
template <class Primitive, class... More>
Described<Primitive> describe_norm(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
                                   dnnl::prop_kind kind, const dnnl::memory::desc& data, const More&... more) {
#if DNNL_VERSION_MAJOR >= 3
  return describe<Primitive>(engine, attributes, kind, data, data, more...);
#else
  return describe<Primitive>(engine, attributes, kind, data, more...);
#endif
}

template <class Primitive, class Forward, class... More>
Described<Primitive> describe_norm_backward(const Forward& forward, const dnnl::engine& engine,
                                            const dnnl::primitive_attr& attributes, const dnnl::memory::desc& data,
                                            const More&... more) {
  constexpr auto kBackward = dnnl::prop_kind::backward;
#if DNNL_VERSION_MAJOR >= 3
  return describe_backward<Primitive>(forward, engine, attributes, kBackward, data, data, data, more...);
#else
  return describe_backward<Primitive>(forward, engine, attributes, kBackward, data, data, more...);
#endif
}

/// The backward pass of a batch norm does not read the shift, but oneDNN 2 requires it, and oneDNN 3 refuses it.
inline constexpr bool kBackwardTakesShift = DNNL_VERSION_MAJOR < 3;

/// Padding is the same on both sides.
inline Described<dnnl::pooling_forward> describe_pool(const dnnl::engine& engine,
                                                      const dnnl::primitive_attr& attributes, dnnl::algorithm algorithm,
                                                      const dnnl::memory::desc& input, const dnnl::memory::desc& output,
                                                      const dnnl::memory::dims& stride,
                                                      const dnnl::memory::dims& kernel,
                                                      const dnnl::memory::dims& padding) {
  constexpr auto kTraining = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::memory::dims none(kernel.size(), 0);
  return describe<dnnl::pooling_forward>(engine, attributes, kTraining, algorithm, input, output, stride, kernel, none,
                                         padding, padding);
#else
  return describe<dnnl::pooling_forward>(engine, attributes, kTraining, algorithm, input, output, stride, kernel,
                                         padding, padding);
#endif
}

inline Described<dnnl::pooling_backward> describe_pool_backward(
    const dnnl::pooling_forward::primitive_desc& forward, const dnnl::engine& engine,
    const dnnl::primitive_attr& attributes, dnnl::algorithm algorithm, const dnnl::memory::desc& input,
    const dnnl::memory::desc& output, const dnnl::memory::dims& stride, const dnnl::memory::dims& kernel,
    const dnnl::memory::dims& padding) {
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::memory::dims none(kernel.size(), 0);
  return describe_backward<dnnl::pooling_backward>(forward, engine, attributes, algorithm, input, output, stride,
                                                   kernel, none, padding, padding);
#else
  return describe_backward<dnnl::pooling_backward>(forward, engine, attributes, algorithm, input, output, stride,
                                                   kernel, padding, padding);
#endif
}

inline void append_activation(dnnl::post_ops& after, dnnl::algorithm function) {
#if DNNL_VERSION_MAJOR >= 3
  after.append_eltwise(function, 0.0F, 0.0F);
#else
  after.append_eltwise(1.0F, function, 0.0F, 0.0F);
#endif
}

inline dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_dims();
#else
  return desc.dims();
#endif
}

inline dnnl::memory::data_type type_of(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_data_type();
#else
  return desc.data_type();
#endif
}

/// Allocates nothing, so it may be called within a step.
inline dnnl::memory::data_type type_of(const dnnl::memory& of) {
#if DNNL_VERSION_MAJOR >= 3
  const_dnnl_memory_desc_t desc = nullptr;
  dnnl_data_type_t type = dnnl_data_type_undef;
  dnnl_memory_get_memory_desc(of.get(), &desc);
  dnnl_memory_desc_query(desc, dnnl_query_data_type, &type);
  return static_cast<dnnl::memory::data_type>(type);
#else
  return of.get_desc().data_type();
#endif
}

/// The same layout with another type of elements. Throws Error{invalid} for a layout in blocks under oneDNN 3, which
/// cannot express that.
inline dnnl::memory::desc with_type(dnnl::memory::desc desc, dnnl::memory::data_type type) {
  if (type_of(desc) == type) return desc;
#if DNNL_VERSION_MAJOR >= 3
  TROUPE_CHECK(desc.get_inner_nblks() == 0, Code::invalid, "a layout in blocks has one type of elements");
  return {desc.get_dims(), type, desc.get_strides()};
#else
  desc.data.data_type = static_cast<dnnl_data_type_t>(type);
  return desc;
#endif
}

}  // namespace troupe::cpu
