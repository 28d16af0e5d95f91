#include "runtime/checkpoint/store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "runtime/base/fd.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/base/words.hpp"
#include "runtime/checkpoint/finite.hpp"
#include "runtime/checkpoint/safetensors.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kStep = "-step-";
constexpr std::size_t kManifestPiece = std::size_t{64} << 10;
constexpr std::uint32_t kMostCheckpoints = 1'000'000'000;

std::optional<CheckpointId> id_of(std::string_view name) {
  const std::size_t middle = name.find(kStep);
  if (middle == name.npos) return {};
  const auto number = number_in<decltype(CheckpointId::number)>(name.substr(0, middle));
  const auto steps = number_in<decltype(CheckpointId::steps)>(name.substr(middle + kStep.size()));
  if (!number || *number == 0 || !steps) return {};
  return CheckpointId{*number, *steps};
}

/// The folder's checkpoints, including incomplete ones, newest first.
std::vector<CheckpointId> all_in(const std::string& folder) {
  std::vector<CheckpointId> ids;
  std::error_code wrong;
  for (fs::directory_iterator next(folder, wrong), end; !wrong && next != end; next.increment(wrong)) {
    if (const auto id = id_of(next->path().filename().string())) ids.push_back(*id);
  }
  TROUPE_CHECK(!wrong || wrong == std::errc::no_such_file_or_directory, Code::environment, folder,
               ": cannot be read: ", wrong.message());
  std::ranges::sort(ids, std::greater{});
  return ids;
}

/// A file's name is on the disk only after its folder is synced.
void sync_folder(const std::string& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  TROUPE_CHECK_ERRNO(fd && ::fsync(fd.get()) == 0, Code::environment, folder, ": cannot be synced");
}

/// Creates a folder and its parents, and syncs each.
void make_folders(const fs::path& folder) {
  std::error_code wrong;
  if (folder.empty() || fs::is_directory(folder, wrong)) return;
  make_folders(folder.parent_path());
  const bool made = fs::create_directory(folder, wrong);
  TROUPE_CHECK(!wrong, Code::environment, folder.string(), ": cannot be made: ", wrong.message());
  if (made) sync_folder(folder.has_parent_path() ? folder.parent_path().string() : ".");
}

constexpr const char* kIncomplete = ": cannot be opened: this is not a checkpoint, or it is incomplete";

/// A failed request is an error, not a "no".
bool has_manifest(const std::string& folder) {
  std::error_code wrong;
  const bool there = fs::exists(folder + '/' + kManifest, wrong);
  TROUPE_CHECK(!wrong, Code::environment, folder, ": cannot be looked at: ", wrong.message());
  return there;
}

std::string key_of(const PieceToWrite& each, bool whole) {
  const CheckpointPiece& piece = each.piece;
  std::string key;
  if (piece.part != CheckpointPart::parameters) key = fmt::format("{}/", name_of(piece.part));
  if (piece.part == CheckpointPart::residual) key += fmt::format("{}/", piece.sender);
  key += piece.tensor;
  if (!whole) key += fmt::format("[{}:{}]", piece.first, piece.first + piece.count);
  return key;
}

/// The pieces' bytes; pieces that are consecutive in memory are joined, so that they are written at once.
std::vector<std::span<const std::byte>> runs_of(std::span<const PieceToWrite> pieces) {
  std::vector<std::span<const std::byte>> runs;
  for (const PieceToWrite& each : pieces) {
    if (!runs.empty() && runs.back().data() + runs.back().size() == each.bytes.data()) {
      runs.back() = {runs.back().data(), runs.back().size() + each.bytes.size()};
    } else {
      runs.push_back(each.bytes);
    }
  }
  return runs;
}

std::uint64_t count_of(const std::vector<std::uint64_t>& extents) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : extents) count *= extent;
  return count;
}

std::string not_finite(const std::string& key, std::uint64_t element) {
  return text("element ", element, " of tensor \"", key,
              "\" is infinite or not a number, and so would be everything trained from it");
}

Status verify_file(const std::string& folder, const CheckpointFile& file,
                   const std::function<void(std::uint64_t)>& done) {
  const std::string path = folder + '/' + file.name;
  try {
    const SafetensorsFile tensors(path);
    const SafetensorsHeader& header = tensors.header();
    if (header.header_bytes + header.data_bytes != file.size_bytes || tensors.header_hash() != file.header_hash) {
      return {Code::corrupt, text(path,
                                  ": its header is not the one that was written: it was changed, or is another rank's "
                                  "or checkpoint's file")};
    }
    if (header.entries.size() != file.pieces.size()) {
      return {Code::corrupt, text(path, ": it has other tensors than the manifest says")};
    }
    for (const CheckpointPiece& piece : file.pieces) {
      const SafetensorsEntry* const entry = header.find(piece.key);
      if (entry == nullptr || entry->size_bytes != piece.count * sizeof(float)) {
        return {Code::corrupt, text(path, ": tensor \"", piece.key, "\" is missing or has another size")};
      }
      const SafetensorsContents contents = tensors.look_through(*entry);
      if (contents.hash != piece.hash) {
        return {Code::corrupt, text(path, ": the checksum of tensor \"", piece.key, "\" is wrong")};
      }
      if (contents.not_finite) return {Code::corrupt, text(path, ": ", not_finite(piece.key, *contents.not_finite))};
      done(entry->size_bytes);
    }
    return {};
  } catch (const Error& error) {
    return error.status();
  }
}

}  // namespace

std::string CheckpointStore::folder_of(CheckpointId id) const {
  return fmt::format("{}/{:06}{}{}", folder_, id.number, kStep, id.steps);
}

std::vector<CheckpointId> CheckpointStore::list() const {
  std::vector<CheckpointId> ids = all_in(folder_);
  std::erase_if(ids, [&](CheckpointId id) { return !has_manifest(folder_of(id)); });
  return ids;
}

FolderLock CheckpointStore::lock(Blocking& blocking, const std::string& holder, Deadline deadline) const {
  make_folders(folder_);
  return FolderLock::take(blocking, folder_, "checkpoints.lock", holder, "set checkpoint.dir to a folder of its own",
                          deadline);
}

std::uint32_t CheckpointStore::next_number() const {
  const std::vector<CheckpointId> ids = all_in(folder_);
  if (ids.empty()) return 1;
  TROUPE_CHECK(ids.front().number < kMostCheckpoints, Code::environment, folder_of(ids.front()),
               ": there is no higher number for the next checkpoint: move this one away");
  return ids.front().number + 1;
}

CheckpointFile CheckpointStore::write(Blocking&, CheckpointId id, std::uint32_t rank,
                                      std::span<PieceToWrite> pieces) const {
  const std::string folder = folder_of(id);
  CheckpointFile file{.name = fmt::format("rank-{:05}.safetensors", rank)};
  std::vector<SafetensorsEntry> entries;
  for (PieceToWrite& each : pieces) {
    const bool whole = each.piece.first == 0 && each.piece.count == count_of(each.extents);
    each.piece.key = key_of(each, whole);
    each.piece.hash = xxh3(each.bytes);
    const auto bad = first_not_finite(each.bytes);
    TROUPE_CHECK(!bad, Code::corrupt, not_finite(each.piece.key, bad.value_or(0)));
    entries.push_back({.name = each.piece.key,
                       .dtype = "F32",
                       .extents = whole ? each.extents : std::vector<std::uint64_t>{each.piece.count},
                       .size_bytes = each.bytes.size()});
    file.pieces.push_back(each.piece);
  }
  make_folders(folder_);
  std::error_code wrong;
  fs::create_directory(folder, wrong);  // its name is synced when the checkpoint is published
  TROUPE_CHECK(!wrong, Code::environment, folder, ": cannot be made: ", wrong.message());
  const std::vector<std::byte> header =
      format_safetensors(entries, {{"format", "troupe"}, {"steps", std::to_string(id.steps)}});
  file.header_hash = xxh3(header);
  file.size_bytes = header.size();
  NewFile to(folder + '/' + file.name);
  to.write(header);
  for (const auto bytes : runs_of(pieces)) {
    to.write(bytes);
    file.size_bytes += bytes.size();
  }
  to.sync();
  to.publish();
  sync_folder(folder);
  return file;
}

/// The facts in manifests that decide which checkpoints are kept; each manifest is read once.
struct CheckpointStore::Known {
  struct Merit {
    std::string run;
    double test_accuracy = -1;  // below 0: not known
  };
  std::mutex mutex;  // guards merits
  std::map<CheckpointId, Merit> merits;

  void note(CheckpointId id, const CheckpointManifest& manifest) {
    const std::scoped_lock hold(mutex);
    merits[id] = {manifest.run, manifest.test_accuracy.value_or(-1)};
  }
  std::optional<Merit> find(CheckpointId id) {
    const std::scoped_lock hold(mutex);
    const auto found = merits.find(id);
    return found == merits.end() ? std::nullopt : std::optional(found->second);
  }
  void forget(CheckpointId id) {
    const std::scoped_lock hold(mutex);
    merits.erase(id);
  }
};

CheckpointStore::CheckpointStore(std::string folder) : folder_(std::move(folder)), known_(std::make_shared<Known>()) {}

void CheckpointStore::publish(Blocking&, CheckpointId id, const CheckpointManifest& manifest) const {
  const std::string folder = folder_of(id);
  for (const CheckpointFile& file : manifest.files) {
    const SafetensorsFile tensors(folder + '/' + file.name);  // throws if it is not a valid file
    TROUPE_CHECK(tensors.header_hash() == file.header_hash, Code::environment, folder, '/', file.name,
                 ": is not what its rank wrote; all ranks need to reach this very folder");
  }
  const std::string text = format_manifest(manifest);
  NewFile to(folder + '/' + kManifest);
  to.write(std::as_bytes(std::span(text)));
  to.sync();
  sync_folder(folder_);  // the folder's own name must be on the disk before the manifest completes the checkpoint
  to.publish();
  sync_folder(folder);
  known_->note(id, manifest);
}

/// The manifest is removed first and its removal is synced: a process that is killed in between leaves a folder without
/// a manifest, which sweep() removes, and never a manifest that names files which no longer exist.
void CheckpointStore::remove(CheckpointId id) const {
  known_->forget(id);
  const std::string folder = folder_of(id);
  std::error_code wrong;
  if (fs::remove(folder + '/' + kManifest, wrong)) sync_folder(folder);
  fs::remove_all(folder, wrong);
  TROUPE_CHECK(!wrong, Code::environment, folder, ": cannot be removed: ", wrong.message());
}

void CheckpointStore::sweep() const {
  for (const CheckpointId id : all_in(folder_)) {
    if (!has_manifest(folder_of(id))) remove(id);
  }
}

void CheckpointStore::prune(const std::string& run, std::uint32_t keep) const {
  std::vector<std::pair<CheckpointId, double>> mine;
  for (const CheckpointId id : list()) {
    try {
      if (!known_->find(id)) known_->note(id, read(id));
    } catch (const Error&) {
      continue;  // not readable, so it is left alone
    }
    if (const auto merit = known_->find(id); merit && merit->run == run) mine.emplace_back(id, merit->test_accuracy);
  }
  const auto best = std::ranges::max_element(mine, {}, [](const auto& each) { return each.second; });
  CheckpointId spared;  // number 0 does not exist
  if (best != mine.end() && best->second >= 0) spared = best->first;
  for (std::size_t i = keep; i < mine.size(); ++i) {
    if (mine[i].first != spared) remove(mine[i].first);
  }
}

CheckpointManifest CheckpointStore::read(CheckpointId id) const {
  const std::string path = folder_of(id) + '/' + kManifest;
  TROUPE_CHECK(!is_special_file(path), Code::corrupt, path, ": is no regular file, so this is no checkpoint");
  std::ifstream file(path, std::ios::binary);
  TROUPE_CHECK(file.is_open(), Code::corrupt, path, kIncomplete);
  // Allocates memory only for bytes that exist, and stops when the manifest is too long.
  std::string text;
  while (file && text.size() <= kMaxManifestBytes) {
    const std::size_t had = text.size();
    text.resize(had + kManifestPiece);
    file.read(text.data() + had, static_cast<std::streamsize>(kManifestPiece));
    text.resize(had + static_cast<std::size_t>(file.gcount()));
  }
  TROUPE_CHECK(!file.bad(), Code::environment, path, ": cannot be read");
  CheckpointManifest manifest = parse_manifest(text, path);
  TROUPE_CHECK(manifest.steps == id.steps, Code::corrupt, path, ": it is of step ", manifest.steps,
               ": it belongs to another checkpoint");
  return manifest;
}

Status CheckpointStore::verify(Blocking&, CheckpointId id,
                               const std::function<void(std::uint64_t, std::uint64_t)>& progress) const {
  try {
    const CheckpointManifest manifest = read(id);
    std::uint64_t all = 0;
    for (const CheckpointFile& file : manifest.files)
      for (const CheckpointPiece& piece : file.pieces) all += piece.count * sizeof(float);
    std::uint64_t done = 0;
    for (const CheckpointFile& file : manifest.files) {
      const Status found = verify_file(folder_of(id), file, [&](std::uint64_t bytes) {
        done += bytes;
        if (progress) progress(done, all);
      });
      if (!found.ok()) return found;
    }
    return {};
  } catch (const Error& error) {
    return error.status();
  }
}

std::optional<CheckpointId> CheckpointStore::newest_whole(
    Blocking& blocking, const std::function<void(const std::string&)>& skipped) const {
  for (const CheckpointId id : list()) {
    const Status found = verify(blocking, id);
    if (found.ok()) return id;
    if (skipped) skipped(text("checkpoint ", folder_of(id), " is passed over: ", found.text()));
  }
  return {};
}

namespace {

/// The checkpoint whose own folder `path` is by its name; nothing: a folder of another name. Throws Error{invalid} if
/// there is no folder.
std::optional<CheckpointPlace> named_by(const std::string& path) {
  std::error_code wrong;
  TROUPE_CHECK(fs::is_directory(path, wrong), Code::invalid, path,
               ": there is no such folder; give a checkpoint's folder, or the one that holds them");
  fs::path folder = fs::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // if the path ends in a slash
  const auto id = id_of(folder.filename().string());
  if (!id) return {};
  const std::string parent = folder.parent_path().string();
  return CheckpointPlace{CheckpointStore(parent.empty() ? "." : parent), *id};
}

[[noreturn]] void fail_without_checkpoint(const std::string& path, const std::string& why = {}) {
  fail(
      Code::invalid,
      text(path,
           ": no checkpoint is in that folder; give a checkpoint's own (NUMBER-step-STEPS), or the one that holds them",
           why));
}

}  // namespace

void check_holds_checkpoint(const std::string& path) {
  if (const std::optional<CheckpointPlace> named = named_by(path)) {
    const std::string folder = named->store.folder_of(named->id);
    TROUPE_CHECK(has_manifest(folder), Code::corrupt, folder, '/', kManifest, kIncomplete);
  } else if (CheckpointStore(path).list().empty()) {
    fail_without_checkpoint(path);
  }
}

CheckpointPlace find_checkpoint(Blocking& blocking, const std::string& path) {
  if (auto named = named_by(path)) return std::move(*named);
  CheckpointStore store(path);
  std::string why;
  const auto newest = store.newest_whole(blocking, [&](const std::string& skipped) { why += "; " + skipped; });
  if (!newest) fail_without_checkpoint(path, why);
  return {std::move(store), *newest};
}

struct CheckpointReader::State {
  struct Opened {
    const CheckpointFile* file = nullptr;
    std::unique_ptr<SafetensorsFile> tensors;
    std::vector<bool> checked;  // by piece
  };

  std::string folder;
  CheckpointManifest manifest;
  std::vector<Opened> files;

  const SafetensorsEntry& checked_entry(Opened& opened, std::size_t number);
};

/// Opens the file and checks the piece's checksum, unless that was done before.
const SafetensorsEntry& CheckpointReader::State::checked_entry(Opened& opened, std::size_t number) {
  const std::string path = folder + '/' + opened.file->name;
  const CheckpointPiece& piece = opened.file->pieces[number];
  if (!opened.tensors) {
    opened.tensors = std::make_unique<SafetensorsFile>(path);
    TROUPE_CHECK(
        opened.tensors->header_hash() == opened.file->header_hash, Code::corrupt, path,
        ": its header is not the one that was written: it was changed, or is another rank's or checkpoint's file");
  }
  const SafetensorsEntry* const entry = opened.tensors->header().find(piece.key);
  TROUPE_CHECK(entry != nullptr && entry->size_bytes == piece.count * sizeof(float), Code::corrupt, path, ": tensor \"",
               piece.key, "\" is missing or has another size");
  if (!opened.checked[number]) {
    TROUPE_CHECK(opened.tensors->look_through(*entry).hash == piece.hash, Code::corrupt, path,
                 ": the checksum of tensor \"", piece.key, "\" is wrong");
    opened.checked[number] = true;
  }
  return *entry;
}

CheckpointReader::CheckpointReader(const CheckpointStore& store, CheckpointId id)
    : state_(std::make_unique<State>(State{store.folder_of(id), store.read(id), {}})) {
  for (const CheckpointFile& file : state_->manifest.files) {
    state_->files.push_back({&file, nullptr, std::vector<bool>(file.pieces.size())});
  }
}

CheckpointReader::~CheckpointReader() = default;

const CheckpointManifest& CheckpointReader::manifest() const noexcept { return state_->manifest; }

void CheckpointReader::read(GroupId group, std::string_view tensor, CheckpointPart part, std::uint64_t first,
                            std::span<float> to, std::uint32_t sender) {
  struct Source {
    std::uint64_t begin, end;
    State::Opened* opened;
    std::size_t piece;
  };
  std::vector<Source> sources;
  for (State::Opened& opened : state_->files) {
    for (std::size_t i = 0; i < opened.file->pieces.size(); ++i) {
      const CheckpointPiece& piece = opened.file->pieces[i];
      if (piece.group != group || piece.tensor != tensor || piece.part != part || piece.sender != sender) continue;
      const std::uint64_t begin = std::max(first, piece.first);
      const std::uint64_t end = std::min(first + to.size(), piece.first + piece.count);
      if (begin < end) sources.push_back({begin, end, &opened, i});
    }
  }
  std::ranges::sort(sources, {}, &Source::begin);
  std::uint64_t next = first;  // the next element needed: sources must follow each other without gaps
  for (const Source& source : sources) {
    if (source.begin != next) break;
    const SafetensorsEntry& entry = state_->checked_entry(*source.opened, source.piece);
    source.opened->tensors->read(entry,
                                 (source.begin - source.opened->file->pieces[source.piece].first) * sizeof(float),
                                 std::as_writable_bytes(to.subspan(source.begin - first, source.end - source.begin)));
    next = source.end;
  }
  TROUPE_CHECK(next == first + to.size(), Code::corrupt, state_->folder, ": of elements ", first, " to ",
               first + to.size(), " of ", name_of(part), " of \"", tensor, "\" it has ", next - first);
}

}  // namespace troupe
