#pragma once

#include <ucs/type/status.h>

#include "runtime/base/error.hpp"

/// Throws Error{code} with the joined parts and UCX's reason if the call does not return UCS_OK.
#define TROUPE_UCX(call, code, ...)                                                        \
  do {                                                                                     \
    if (const ucs_status_t status_ = (call); status_ != UCS_OK) [[unlikely]]               \
      ::troupe::fail(code, ::troupe::text(__VA_ARGS__, ": ", ucs_status_string(status_))); \
  } while (false)
