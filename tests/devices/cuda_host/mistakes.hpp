#pragma once

#include <string>
#include <vector>

#include "tests/devices/cuda_host/rig.hpp"

namespace troupe::cuda::testing::mistakes {

/// A program with one mistake.
struct Mistake {
  int (*program)();
  const char* name;
  std::vector<std::string> report;  // what it says: the kind, and both places
  const char* setting = "DEVICES=1";
};
#define TROUPE_MISTAKE(program, ...) \
  Mistake { program, #program, __VA_ARGS__ }

std::vector<Mistake> mistakes_with_collectives();
std::vector<Mistake> mistakes_with_products();
std::vector<Mistake> mistakes_with_convolutions();
std::vector<Mistake> mistakes_with_attention();
std::vector<Mistake> mistakes_of_exchanges();

}  // namespace troupe::cuda::testing::mistakes
