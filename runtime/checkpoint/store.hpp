#pragma once

// The room checkpoint: the state after a step in files: the folder and its order (store.hpp), the manifest,
// safetensors. It does not know which rank holds what now: it is given pieces by tensor and element.

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

/// Which checkpoint of a folder: they are numbered in the order in which they were begun, over all runs.
struct CheckpointId {
  std::uint32_t number = 0;  // from 1
  std::uint64_t steps = 0;
  friend auto operator<=>(const CheckpointId&, const CheckpointId&) = default;
};

/// A piece to be written, and where its bytes are: f32.
struct PieceToWrite {
  CheckpointPiece piece;               // hash and key are filled in
  std::vector<std::uint64_t> extents;  // of the whole tensor
  std::span<const std::byte> bytes;
};

/// A folder of checkpoints: in each of its folders NUMBER-step-STEPS one file a rank and, written last, a manifest; one
/// without is none. Files appear whole or not at all, and are on the disk before the manifest appears, so that a kill
/// or a power cut at any moment leaves what was saved before. What is not finite is neither written nor whole, so that
/// no run goes on from it. Several ranks write to the same folder, also over NFS;
/// only rank 0 publishes, clears away and decides, and locks the folder for that. Errors: Error{environment} when the
/// disk does not do as asked (full, read only), with path and reason. Threads: any number.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string folder);

  const std::string& folder() const noexcept { return folder_; }
  std::string folder_of(CheckpointId id) const;

  /// Those with a manifest, newest first; empty when there is no such folder.
  std::vector<CheckpointId> list() const;
  /// Makes the folder if it is not there, and keeps other jobs from writing into it. Waits until `deadline` for one
  /// that was killed just now. `holder`: whose it is, for people. Throws Error{environment} that names who has it.
  FolderLock lock(Blocking& blocking, const std::string& holder, Deadline deadline) const;
  /// For the next one.
  std::uint32_t next_number() const;

  /// Writes this rank's file and waits until the disk has it. Throws Error{corrupt} when a number in it is not finite.
  CheckpointFile write(Blocking& blocking, CheckpointId id, std::uint32_t rank, std::span<PieceToWrite> pieces) const;
  /// Makes the checkpoint one, when all its files are there.
  void publish(Blocking& blocking, CheckpointId id, const CheckpointManifest& manifest) const;
  /// Removes a checkpoint, or what there is of it; the manifest goes first.
  void remove(CheckpointId id) const;
  /// Removes what ranks that were killed left of checkpoints without a manifest.
  void sweep() const;
  /// Of the run's checkpoints, removes all but the `keep` newest and the one with the best test accuracy. Reads the
  /// manifest of each that it has not published or read before.
  void prune(const std::string& run, std::uint32_t keep) const;

  /// The manifest. Throws Error{corrupt}, Error{unsupported}.
  CheckpointManifest read(CheckpointId id) const;
  /// Reads everything, compares checksums and sizes, and looks for numbers that are not finite. `progress` is told of
  /// bytes done and in all. Ok, or what is wrong.
  Status verify(Blocking& blocking, CheckpointId id,
                const std::function<void(std::uint64_t, std::uint64_t)>& progress = {}) const;
  /// The newest that is whole; `skipped` is told of newer ones that are not, and why.
  std::optional<CheckpointId> newest_whole(Blocking& blocking,
                                           const std::function<void(const std::string&)>& skipped = {}) const;

 private:
  struct Known;
  std::string folder_;
  std::shared_ptr<Known> known_;  // shared by copies
};

/// The checkpoint that a folder .../NUMBER-step-STEPS is, and the store that it lies in.
struct CheckpointPlace {
  CheckpointStore store;
  CheckpointId id;
};
/// `path` as somebody gave it: a checkpoint's folder, or one that holds checkpoints (the newest whole one is meant).
/// Throws Error{invalid} that names what it is instead.
CheckpointPlace find_checkpoint(Blocking& blocking, const std::string& path);

/// Loads parts of tensors, wherever they lie in the checkpoint's files. Keeps the files open. Threads: one.
class CheckpointReader {
 public:
  /// Throws as CheckpointStore::read.
  CheckpointReader(const CheckpointStore& store, CheckpointId id);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  const CheckpointManifest& manifest() const noexcept;
  /// Reads f32 elements [first, first + to.size()) of a tensor; of residuals, that of `sender`. The checksums of all
  /// pieces that it takes from are compared, once each. Throws Error{corrupt} when some elements are in no piece, or a
  /// checksum is wrong.
  void read(GroupId group, std::string_view tensor, CheckpointPart part, std::uint64_t first, std::span<float> to,
            std::uint32_t sender = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
