#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/error.hpp"
#include "tools/rtrun/prepare.hpp"

namespace troupe::rtrun {
namespace {

namespace fs = std::filesystem;

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    std::string pattern = ::testing::TempDir() + "/folder-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FolderTest() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(FolderTest, IsMadeWithItsParentsAndLeftEmpty) {
  prepare_folder(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  EXPECT_TRUE(fs::is_empty(folder_ / "a" / "b"));
  prepare_folder(folder_ / "a" / "b");
}

TEST_F(FolderTest, ThatCannotBeMadeIsAnErrorOfTheEnvironmentWithPlaceAndCure) {
  std::ofstream{folder_ / "file"} << "x";
  try {
    prepare_folder(folder_ / "file" / "run");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::environment);
    EXPECT_NE(std::string{error.what()}.find((folder_ / "file" / "run").string()), std::string::npos) << error.what();
    EXPECT_NE(std::string{error.what()}.find("report.dir"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace troupe::rtrun
