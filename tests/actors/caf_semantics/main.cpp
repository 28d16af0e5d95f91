#include <gmock/gmock.h>

#include "tests/actors/caf_semantics/sides.hpp"

int main(int argc, char** argv) {
  if (const auto code = troupe::test::semantics::run_as_far_side(argc, argv)) return *code;
  ::testing::InitGoogleMock(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new troupe::test::semantics::SharedSides);
  return RUN_ALL_TESTS();
}
