#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <array>
#include <cstdlib>
#include <numeric>

#include "runtime/data/find_data.hpp"
#include "runtime/data/idx.hpp"
#include "tests/runtime/data/corpus.hpp"
#include "tests/support/batches.hpp"

namespace troupe {
namespace {

/// The folder with mnist/, beside the source tree unless TROUPE_TEST_SHARED names its parent.
std::string data_folder() {
  const char* shared = std::getenv("TROUPE_TEST_SHARED");
  return std::string{shared != nullptr ? shared : TROUPE_SHARED_FOLDER} + "/data";
}

class RealMnist : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder))
      GTEST_SKIP() << folder << " is not there; TROUPE_TEST_SHARED names where data/mnist lies";
  }
  std::string folder = data_folder() + "/mnist";
};

std::string md5(const testing::Bytes& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_md5(), nullptr);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    for (const int nibble : {digest[i] >> 4, digest[i] & 15}) hex += "0123456789abcdef"[nibble];
  }
  return hex;
}

TEST_F(RealMnist, IsWrittenAgainAsThePublishedFiles) {
  struct Published {
    const char* name;
    IdxKind kind;
    const char* md5;
  };
  for (const auto& [name, kind, sum] :
       {Published{"train-images-idx3-ubyte", IdxKind::images, "6bbc9ace898e44ae57da46a324031adb"},
        Published{"train-labels-idx1-ubyte", IdxKind::labels, "a25bea736e30d166cdddb491f175f624"},
        Published{"t10k-images-idx3-ubyte", IdxKind::images, "2646ac647ad5339dbf082846283269ea"},
        Published{"t10k-labels-idx1-ubyte", IdxKind::labels, "27ae3e4e09519cfbb04c329615203637"}}) {
    const IdxFile file = read_idx(folder + "/" + name + ".gz", kind);
    const testing::TempFolder scratch;
    write_idx(scratch.file(name), file.header, file.content);
    EXPECT_EQ(md5(testing::read_file(scratch.file(name))), sum) << name;
  }
}

TEST_F(RealMnist, HasTheKnownCountsAndMean) {
  DataRequest request;
  request.environment = data_folder();
  const DataSet set = read_data(find_data(request));
  EXPECT_EQ(set.train->count_samples(), 60000U);
  EXPECT_EQ(set.test->count_samples(), 10000U);
  EXPECT_EQ(set.train->fields(),
            (std::vector<Field>{{"image", {{28, 28, 1}}, DType::f32}, {"label", {}, DType::i32, 10}}));

  const BatchLayout batch{100, set.train->fields()};
  std::vector<std::byte> slot(batch.size_bytes());
  std::vector<Sample> samples(batch.rows());
  std::array<int, 10> counts{};
  double total = 0;
  for (std::uint64_t first = 0; first < 60000; first += batch.rows()) {
    for (std::uint32_t row = 0; row < batch.rows(); ++row) samples[row].index = first + row;
    fill_now(*set.train, {samples, 0, &batch, slot.data()});
    const auto* inputs = reinterpret_cast<const float*>(slot.data());
    total += std::accumulate(inputs, inputs + batch.rows() * 784, 0.0);
    const auto* labels = testing::labels_in(batch, slot.data());
    for (std::uint32_t row = 0; row < batch.rows(); ++row) ++counts.at(static_cast<std::size_t>(labels[row]));
  }
  EXPECT_NEAR(total / 60000 / 784, 0.1307, 0.00005);
  EXPECT_EQ(counts, (std::array<int, 10>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}));
}

}  // namespace
}  // namespace troupe
