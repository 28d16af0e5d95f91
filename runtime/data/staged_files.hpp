#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/fd.hpp"
#include "runtime/data/encoded_images.hpp"
#include "runtime/data/stage_options.hpp"

namespace troupe {

/// A copy of encoded images in one file without a name, which the system removes when the process ends, however it
/// ends. An image that could not be read has the same fault when it is read from the copy.
class StagedFiles final : public EncodedFiles {
 public:
  /// Copies all of `files` with several threads, and returns when that is done. Throws Error{environment}, which names
  /// the cure, if there is not enough room. Blocks on the file system.
  StagedFiles(std::unique_ptr<EncodedFiles> files, const StageOptions& options);

  std::uint64_t count() const noexcept override { return places_.size(); }
  std::string name(std::uint64_t image) const override { return files_->name(image); }
  std::string read(std::uint64_t image, std::vector<std::uint8_t>& to) const override;
  /// Without the copy: processes that do not read the data set plan with the same number, and do not know the sizes of
  /// images. The constructor checks that there is room for the copy.
  std::uint64_t size_bytes() const noexcept override { return files_->size_bytes(); }

 private:
  struct Place {
    std::uint64_t offset = 0;
    std::uint32_t size_bytes = 0;
  };
  class Copy;

  std::unique_ptr<EncodedFiles> files_;
  Fd copy_;
  std::vector<Place> places_;                              // by image
  std::unordered_map<std::uint64_t, std::string> faults_;  // of images that could not be read
};

}  // namespace troupe
