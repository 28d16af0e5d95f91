#include <gmock/gmock.h>

#include "tests/actors/remote/remote_end.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace {

class NeedsUcx : public testing::Environment {
  void SetUp() override {
    if (!troupe::ucx_available()) GTEST_SKIP() << "this build has no UCX, over which processes exchange messages";
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = troupe::test::run_as_child(argc, argv)) return *code;
  testing::InitGoogleMock(&argc, argv);
  testing::AddGlobalTestEnvironment(new NeedsUcx);
  return RUN_ALL_TESTS();
}
