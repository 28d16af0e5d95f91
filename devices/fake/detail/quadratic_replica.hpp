#pragma once

#include <memory>
#include <vector>

#include "devices/fake/fake_device.hpp"

namespace troupe::fake {

/// Throws Error{invalid} for another device's stream.
FakeStream& own(Stream& stream);

/// The fake device's model: loss = sum over rows and parameters of (p - t)^2 / 2, where t, in [-1, 1], is a hash of the
/// row's bytes and label; a row is correct if that hash is even.
std::unique_ptr<Replica> quadratic_replica(FakeDevice& device, const Layout& layout, const BatchLayout& batch,
                                           const std::vector<Bucket>& buckets, const ReplicaMemory& memory);

}  // namespace troupe::fake
