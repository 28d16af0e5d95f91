#include <array>

#include "tests/devices/cuda_trial.hpp"

// The libraries that compute a CUDA device's products and convolutions: which one a device opens, and what it says
// where it has none. What each of them computes is in cuda_products_test and cuda_convolutions_test. These tests come
// before all others of their program and are no TEST_P, which would come last: on a real GPU, processes that are forked
// after this one has used the driver cannot use it.
namespace troupe {
namespace {

struct Library {
  std::string work, name, version;  // as a device's description has them
  std::string variable, choice;     // what chooses the library
  const char* start_fault;          // the stand-in's library does not start
  std::string CudaDeviceOptions::*chosen;
  std::string CudaDeviceOptions::*file;
};

std::array<Library, 2> libraries() {
  return {{{"products", "cuBLASLt", "13.1.0", "TROUPE_CUDA_PRODUCTS", "cublaslt",
            "cublasLtCreate=cublaslt_not_initialized", &CudaDeviceOptions::products, &CudaDeviceOptions::cublaslt},
           {"convolutions and 16-bit attention", "cuDNN", "9.19.0", "TROUPE_CUDA_CONVOLUTIONS", "cudnn",
            "cudnnCreate=cudnn_not_initialized", &CudaDeviceOptions::convolutions, &CudaDeviceOptions::cudnn}}};
}

/// The description of a device with these variables, or why there is none.
std::string described(const CudaDeviceOptions& options,
                      std::initializer_list<std::pair<const char*, const char*>> variables = {}) {
  return said_with(variables, [&] {
    AddressSpace space;
    return make_cuda_device(space, options)->traits().description;
  });
}
/// To load the other library's code would take seconds.
CudaDeviceOptions with_only(const Library& library) {
  CudaDeviceOptions options;
  options.products = options.convolutions = "own";
  options.*library.chosen = "";
  return options;
}
CudaDeviceOptions without(const Library& library) {
  CudaDeviceOptions options = with_only(library);
  options.*library.file = "libno-such-library.so";
  return options;
}

TEST(CudaLibraries, AreOpenedWhereTheyAre) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library, or another version";
  for (const Library& library : libraries()) {
    const std::string by = text(library.work, " by ", library.name, ' ', library.version);
    expect_says(described({}), {by.c_str()});
    expect_says(described({.tf32 = true}), {text(by, " in TF32").c_str()});
  }
}

TEST(CudaLibraries, AreReplacedByKernelsOfOursWithALineWhereTheyAreAbsent) {
  for (const Library& library : libraries())
    expect_says(described(without(library)),
                {text(library.work, " by own kernels (libno-such-library.so: cannot open").c_str()});
}

TEST(CudaLibraries, AreReplacedByKernelsOfOursWithALineWhereTheyDoNotStart) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  for (const Library& library : libraries())
    expect_says(described({}, {{"TROUPE_CUDA_HOST_FAULT", library.start_fault}}),
                {text(library.work, " by own kernels (", library.name, ", a handle on Stand-in").c_str(),
                 "the library was not initialized"});
}

TEST(CudaLibraries, AreChosenByAVariableOrAnOption) {
  for (const Library& library : libraries()) {
    const char* const variable = library.variable.c_str();
    expect_says(described(with_only(library), {{variable, "own"}}),
                {text(library.work, " by own kernels (as ", library.variable).c_str()});
    expect_says(described(with_only(library), {{variable, "fast"}}),
                {text("invalid: ", library.variable, " is \"fast\"").c_str(),
                 text("write \"", library.choice, "\" or \"own\"").c_str()});
    expect_says(
        described(without(library), {{variable, library.choice.c_str()}}),
        {text("environment: there is no usable ", library.name, " (libno-such-library.so").c_str(), "LD_LIBRARY_PATH"});
    if (!gpu::is_stand_in()) continue;
    CudaDeviceOptions by_option;
    by_option.*library.chosen = library.choice;
    expect_says(described(by_option, {{variable, "own"}}), {text(library.work, " by ", library.name).c_str()});
  }
}

}  // namespace
}  // namespace troupe
