#include <gmock/gmock.h>

#include "tests/actors/remote/remote_end.hpp"

int main(int argc, char** argv) {
  if (const auto code = troupe::test::run_as_child(argc, argv)) return *code;
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
