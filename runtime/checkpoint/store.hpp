#pragma once

// The room checkpoint: the state after a step, in files: the folder and the order of its checkpoints (store.hpp), the
// manifest, safetensors. It does not know which rank has what: it is given pieces by tensor and element.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/folder_lock.hpp"
#include "runtime/checkpoint/manifest.hpp"

namespace troupe {

/// A checkpoint of a folder. They are numbered in the order in which they were begun, over all runs.
struct CheckpointId {
  std::uint32_t number = 0;  // counted from 1
  std::uint64_t steps = 0;
  friend auto operator<=>(const CheckpointId&, const CheckpointId&) = default;
};

/// A piece to be written, and its bytes: f32.
struct PieceToWrite {
  CheckpointPiece piece;               // write() sets hash and key
  std::vector<std::uint64_t> extents;  // of the whole tensor
  std::span<const std::byte> bytes;
};

/// A folder of checkpoints. Each of its folders NUMBER-step-STEPS has one file per rank and, written last, a manifest;
/// without a manifest it is incomplete. Files appear complete or not at all, and are on the disk before the manifest,
/// so a kill or a power failure at any moment leaves the earlier checkpoints intact. Numbers that are not finite are
/// not written, and a checkpoint with such numbers counts as damaged, so no run continues from it. Several ranks write
/// to one folder, also over NFS; only rank 0 publishes, removes and decides, and locks the folder for that. Errors:
/// Error{environment} with path and reason if the disk fails (full, read only). Threads: any number.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string folder);

  const std::string& folder() const noexcept { return folder_; }
  std::string folder_of(CheckpointId id) const;

  /// Those with a manifest, newest first; empty if the folder does not exist.
  std::vector<CheckpointId> list() const;
  /// Creates the folder if it does not exist, and keeps other jobs from writing into it. Waits until `deadline` for a
  /// job that was just killed. `holder` describes this job. Throws Error{environment}, which names the holder.
  FolderLock lock(Blocking& blocking, const std::string& holder, Deadline deadline) const;
  /// The number for the next checkpoint.
  std::uint32_t next_number() const;

  /// Writes this rank's file and waits until it is on the disk. Throws Error{corrupt} if a number in it is not finite.
  CheckpointFile write(Blocking& blocking, CheckpointId id, std::uint32_t rank, std::span<PieceToWrite> pieces) const;
  /// Completes the checkpoint with its manifest, when all its files exist.
  void publish(Blocking& blocking, CheckpointId id, const CheckpointManifest& manifest) const;
  /// Removes a checkpoint, complete or not; the manifest is removed first.
  void remove(CheckpointId id) const;
  /// Removes incomplete checkpoints (without a manifest), which killed ranks left.
  void sweep() const;
  /// Removes the run's checkpoints except the `keep` newest and the one with the best test accuracy. Reads each
  /// manifest that it has not published or read before.
  void prune(const std::string& run, std::uint32_t keep) const;

  /// The manifest. Throws Error{corrupt}, Error{unsupported}.
  CheckpointManifest read(CheckpointId id) const;
  /// Reads everything, compares checksums and sizes, and checks that all numbers are finite. Calls `progress` with the
  /// bytes done and the total. Returns ok, or what is wrong.
  Status verify(Blocking& blocking, CheckpointId id,
                const std::function<void(std::uint64_t, std::uint64_t)>& progress = {}) const;
  /// The newest undamaged checkpoint; calls `skipped` with each newer one that is damaged, and why.
  std::optional<CheckpointId> newest_whole(Blocking& blocking,
                                           const std::function<void(const std::string&)>& skipped = {}) const;

 private:
  struct Known;
  std::string folder_;
  std::shared_ptr<Known> known_;  // shared by copies
};

/// A checkpoint given by its folder .../NUMBER-step-STEPS, and the store that it is in.
struct CheckpointPlace {
  CheckpointStore store;
  CheckpointId id;
};
/// `path` as given by the user: a checkpoint's folder, or a folder of checkpoints (the newest undamaged one is used).
/// Throws Error{invalid}, which says what the path is instead.
CheckpointPlace find_checkpoint(Blocking& blocking, const std::string& path);
/// Throws Error{invalid} if find_checkpoint() would find none at `path`, and Error{corrupt} if the one that it names
/// has no manifest, as far as names alone tell: it reads no file.
void check_holds_checkpoint(const std::string& path);

/// Loads parts of tensors, from all files of the checkpoint that have them. Keeps the files open. Threads: one.
class CheckpointReader {
 public:
  /// Throws like CheckpointStore::read.
  CheckpointReader(const CheckpointStore& store, CheckpointId id);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  const CheckpointManifest& manifest() const noexcept;
  /// Reads f32 elements [first, first + to.size()) of a tensor; for residuals, those of `sender`. Checks the checksum
  /// of each piece that it reads from, once per piece. Throws Error{corrupt} if some elements are in no piece, or a
  /// checksum is wrong.
  void read(GroupId group, std::string_view tensor, CheckpointPart part, std::uint64_t first, std::span<float> to,
            std::uint32_t sender = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
