#pragma once

#include <cstddef>
#include <type_traits>

namespace troupe::detail {

// For static assertions that declarations of ours mean the same to the machine as those of a vendor's header.

/// Whether a library takes older, smaller versions of the struct T by pointer, and knows them by a size in it.
template <class T>
inline constexpr bool kKnownBySize = false;

/// Whether a caller that declares A and a function that declares B understand each other: the same size and kind, all
/// the way through pointers.
template <class A, class B>
constexpr bool same_for_the_machine() {
  using X = std::remove_cv_t<A>;
  using Y = std::remove_cv_t<B>;
  if constexpr (std::is_same_v<X, Y>)
    return true;
  else if constexpr (std::is_pointer_v<X> && std::is_pointer_v<Y>)
    return same_for_the_machine<std::remove_pointer_t<X>, std::remove_pointer_t<Y>>();
  else if constexpr (std::is_void_v<X> || std::is_void_v<Y> || std::is_function_v<X> || std::is_function_v<Y>)
    return false;
  else if constexpr (std::is_class_v<X> || std::is_class_v<Y>)
    return std::is_class_v<X> == std::is_class_v<Y> && alignof(X) == alignof(Y) &&
           (kKnownBySize<X> ? sizeof(X) <= sizeof(Y) : sizeof(X) == sizeof(Y));
  else
    return std::is_pointer_v<X> == std::is_pointer_v<Y> && std::is_floating_point_v<X> == std::is_floating_point_v<Y> &&
           sizeof(X) == sizeof(Y);
}

template <class A, class B>
struct SameFunction : std::false_type {};
template <class R, class... P, class S, class... Q>
struct SameFunction<R (*)(P...), S (*)(Q...)> {
  static constexpr bool all() {
    if constexpr (sizeof...(P) != sizeof...(Q))
      return false;
    else
      return (same_for_the_machine<P, Q>() && ... && same_for_the_machine<R, S>());
  }
  static constexpr bool value = all();
};

}  // namespace troupe::detail

#define TROUPE_SAME_VALUE(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs));
#define TROUPE_SAME_PLACE(Ours, our, Theirs, their)              \
  static_assert(offsetof(Ours, our) == offsetof(Theirs, their)); \
  static_assert(sizeof(Ours::our) == sizeof(Theirs::their));
// For the lists of functions that shared_library.hpp describes.
#define TROUPE_SAME_ENTRY(member, symbol, Returned, ...) \
  static_assert(troupe::detail::SameFunction<Returned (*)(__VA_ARGS__), decltype(&::symbol)>::value, #symbol);
