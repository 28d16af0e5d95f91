#pragma once

#include <string>

#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {

/// The options of the cases "tcp" (over lo), "shm" (bulk lane silent) and "shm-told".
inline UcxOptions ucx_options(Peer self, const std::string& means) {
  UcxOptions options;
  options.self = self;
  options.means = means == "tcp" ? UcxMeans::tcp : UcxMeans::shm;
  if (means == "tcp") options.network_devices = "lo";
  if (means == "shm") options.bulk_errors = UcxPeerErrors::silent;
  return options;
}

}  // namespace troupe::testing
