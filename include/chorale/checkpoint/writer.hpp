// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_error.hpp>
#include <chorale/checkpoint/checkpoint_name.hpp>
#include <chorale/checkpoint/checkpoint_options.hpp>
#include <chorale/checkpoint/checkpoint_state.hpp>
#include <chorale/checkpoint/directory.hpp>
#include <chorale/checkpoint/failpoints.hpp>
#include <chorale/checkpoint/verified_file.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale {

/// Fault points of a file of tensors, and of the manifest.
struct FilePoints {
  static constexpr std::string_view half = "ckpt.file.half", written = "ckpt.file.written", synced = "ckpt.file.synced";
};
/// Names of the points at which a test ends the process while it writes a manifest.
struct ManifestPoints {
  static constexpr std::string_view half = "ckpt.manifest.half", written = "ckpt.manifest.written",
                                    synced = "ckpt.manifest.synced";
};

/// A new file of a folder, with a CRC-32C of each block.
///
/// order   the disk begins to write a block while the next one is copied and summed
/// throws  std::system_error with the name and the byte
template <FaultPoints Faults = NoFaults, class Points = FilePoints> class ChecksummedFile {
 public:
  /// size    that the file will have
  ChecksummedFile(Directory const& folder, std::string name, std::uint64_t size, std::uint64_t block,
                  Faults faults = {})
      : name_{std::move(name)}, file_{folder.create(name_)}, size_{size}, block_{block}, faults_{std::move(faults)} {}

  void write(ConstBytes bytes) {
    while (!bytes.empty()) {
      auto const room  = std::min(block_ - written_ % block_, at_once);
      auto const piece = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(room, bytes.size())));
      if (written_ % block_ == 0) sums_.push_back(0);
      sums_.back() = crc32c(piece, sums_.back());
      write_all(piece);
      if (written_ % block_ == 0) begin_to_sync();
      bytes = bytes.subspan(piece.size());
    }
  }

  /// Syncs the file to the disk and closes it.
  ///
  /// returns  the checksums
  std::vector<std::uint32_t> finish() {
    faults_.hit(Points::written);
    if (::fsync(file_.number()) != 0) fail("cannot be brought to the disk");
    if (file_.close() != 0) fail("cannot be closed");
    faults_.hit(Points::synced);
    return std::move(sums_);
  }

 private:
  // Summed while it is in a cache. More at once makes the system look for larger pages, which can take it seconds.
  static constexpr std::uint64_t at_once = 256U << 10;

  void write_all(ConstBytes bytes) {
    while (!bytes.empty()) {
      auto const n = ::write(file_.number(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("byte " + std::to_string(written_) + ": cannot be written", n == 0 ? EIO : errno);
      auto const before = written_;
      written_ += static_cast<std::uint64_t>(n);
      if (before < size_ / 2 && written_ >= size_ / 2) faults_.hit(Points::half);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  /// Starts writing the last block to the disk. It is a hint: finish() syncs everything, and reports errors.
  void begin_to_sync() const {
    ::sync_file_range(file_.number(), static_cast<off_t>(written_ - block_), static_cast<off_t>(block_),
                      SYNC_FILE_RANGE_WRITE);
  }

  [[noreturn]] void fail(std::string const& what, int number = errno) const {
    system_fault(name_ + ": " + what, number);
  }

  std::string name_;
  FileDescriptor file_;
  std::uint64_t size_, block_, written_ = 0;
  std::vector<std::uint32_t> sums_;
  [[no_unique_address]] Faults faults_;
};

/// The files that a save of one rank will write, in memory but for the bytes of tensors.
class CheckpointImage {
 public:
  /// part    of the variables, of the optimizer's slots, of the rest; a section without tensors has no file
  /// throws  BadArgument as SafetensorsImage does
  explicit CheckpointImage(CheckpointState const& state, FilePart part = {}) {
    for (auto const section : all_sections)
      if (!state[section].empty())
        files_.push_back({{.section = section, .part = part},
                          SafetensorsImage{part_of(state[section], part), {{"format", "chorale"}}}});
  }

  std::uint64_t size() const {
    auto bytes = std::uint64_t{0};
    for (auto const& [file, image] : files_) bytes += image.size();
    return bytes;
  }

  /// throws  std::system_error
  template <FaultPoints Faults>
  std::vector<ManifestFile> write_to(Directory const& folder, std::uint64_t block, Faults const& faults) const {
    auto written = std::vector<ManifestFile>{};
    CHORALE_EXPECTS(
        block > 0 && block <= Manifest::max_block,
        "a block of " + std::to_string(block) + " bytes, but it may have 1 to " + std::to_string(Manifest::max_block));
    for (auto const& [planned, image] : files_) {
      auto file = planned;
      file.size = image.size();
      auto out  = ChecksummedFile<Faults>{folder, file.name(), file.size, block, faults};
      image.write_to([&](ConstBytes bytes) { out.write(bytes); });
      file.crc32c = out.finish();
      written.push_back(std::move(file));
    }
    return written;
  }

 private:
  std::vector<std::pair<ManifestFile, SafetensorsImage>> files_;
};

/// Writer of one checkpoint: it makes a folder under a temporary name, which commit() renames when all is written.
///
///   auto save = CheckpointWriter<>{options, step, bytes_of_all_ranks};       // rank 0, before the others
///   auto mine = write_part(options, step, state, {rank, ranks});             // each rank
///   save.add(mine_of_each_rank);   save.commit(state.at);                    // rank 0, after the others
///
/// keeps   until commit() has renamed the folder no reader sees it; without commit() it is removed
/// order   files to the disk, then the manifest, then the folder, then its new name, then the parent folder; and only
///         then the oldest beyond `keep` are removed. A kill at any point leaves earlier checkpoints whole
/// throws  CheckpointFailed when the system refuses; BadArgument
/// source  the order is PostgreSQL's durable_rename, for a folder
template <FaultPoints Faults = NoFaults> class CheckpointWriter {
 public:
  /// bytes   of all files of all ranks together; a tenth more must be free
  CheckpointWriter(CheckpointOptions const& options, std::uint64_t step, std::uint64_t bytes, Faults faults = {})
      : options_{options}, step_{step}, need_{bytes + bytes / 10}, faults_{std::move(faults)} {
    CHORALE_EXPECTS(is_job_name(options_.job),
                    "a job's name has 1 to 64 letters, digits, '-', '_' and '.', and does not begin with '.'");
    CHORALE_EXPECTS(options_.keep >= 2, "keep is " + std::to_string(options_.keep) +
                                            ", but one checkpoint must stay while the next one is new");
    CHORALE_EXPECTS(!options_.folder.empty(), "checkpoints need a folder");
    guarded([&] {
      faults_.hit("ckpt.begin");
      make_parent();
      clean();
      faults_.hit("ckpt.cleaned");
      if (auto const free = parent_->free_bytes(); free && *free < need_)
        system_fault("there is not enough room", ENOSPC);
      parent_->make_folder(here());
      made_ = true;
      folder_.emplace(*parent_, here());
      if (!folder_->lock()) system_fault(here() + ": another process has it", EBUSY);
      faults_.hit("ckpt.folder");
    });
  }
  CheckpointWriter(CheckpointWriter const&)            = delete;
  CheckpointWriter& operator=(CheckpointWriter const&) = delete;
  ~CheckpointWriter() { discard(); }

  /// Writes files of this rank.
  void write(CheckpointImage const& image) {
    guarded([&] { add(image.write_to(*folder_, options_.block, faults_)); });
  }

  /// Adds files that other ranks have written.
  void add(std::vector<ManifestFile> files) {
    files_.insert(files_.end(), std::make_move_iterator(files.begin()), std::make_move_iterator(files.end()));
  }

  /// at      its step, files, block and job are ignored
  void commit(Manifest at) {
    at.step  = step_;
    at.job   = options_.job;
    at.block = options_.block;
    at.files = std::move(files_);
    guarded([&] {
      auto const text = at.write();
      for (auto const& file : at.files)  // also the files of other ranks
        if (folder_->size_of(file.name()) != file.size) system_fault(file.name() + ": is not what was written", EIO);
      auto file        = ChecksummedFile<Faults, ManifestPoints>{*folder_, Manifest::file_name, text.size(),
                                                                 Manifest::max_block, faults_};
      auto const bytes = std::as_bytes(Span<char const>{text});
      file.write(bytes.first(text.size() / 2));
      file.write(bytes.subspan(text.size() / 2));
      file.finish();
      folder_->sync();
      faults_.hit("ckpt.folder.synced");
      auto const replaced = take_the_place();
      made_               = false;
      faults_.hit("ckpt.renamed");
      parent_->sync();
      faults_.hit("ckpt.parent.synced");
      if (replaced) or_log([&] { remove(*replaced); });
    });
    or_log([&] {
      remove_oldest();
      faults_.hit("ckpt.end");
    });
  }

 private:
  std::string here() const { return unfinished_name(step_, options_.job); }

  template <class Do> void guarded(Do&& work) {
    try {
      work();
    } catch (std::system_error const& error) {
      auto const free = parent_ ? parent_->free_bytes() : std::nullopt;
      discard();
      throw CheckpointFailed{error.code().value(), (options_.folder / checkpoint_name(step_)).string(), error.what(),
                             need_, free.value_or(0)};
    } catch (...) {
      discard();
      throw;
    }
  }

  void make_parent() {
    auto trouble = std::error_code{};
    if (std::filesystem::create_directories(options_.folder, trouble)) {
      auto const above = std::filesystem::absolute(options_.folder).lexically_normal();
      Directory{(above.has_filename() ? above : above.parent_path()).parent_path()}.sync();
    }
    if (trouble) system_fault("the folder cannot be made", trouble.value());
    parent_.emplace(options_.folder);
  }

  /// Removes what earlier saves of this job have left, unless a process still holds it.
  void clean() {
    for (auto const& name : parent_->names())
      if (is_left_over(name, options_.job)) or_log([&] { remove(name); });
  }

  /// Gives the folder its final name. An older checkpoint of this step, from before a fall-back, is moved away.
  ///
  /// returns  the name of the older one now, if there was one
  std::optional<std::string> take_the_place() {
    auto const name = checkpoint_name(step_), old = removed_name(step_, options_.job);
    if (!parent_->has(name)) return parent_->rename(here(), name), std::nullopt;
    if (parent_->exchange(here(), name)) return here();
    parent_->rename(name, old);  // for a moment there is none of this step
    parent_->rename(here(), name);
    return old;
  }

  /// Removes all but the newest `keep` checkpoints up to this one; visibly damaged ones do not count. Later ones stay:
  /// they are of a run that went further.
  void remove_oldest() {
    auto names = parent_->names();
    auto kept  = 1;
    auto steps = std::vector<std::uint64_t>{};
    for (auto const& name : names)
      if (auto const step = step_of(name); step && *step < step_) steps.push_back(*step);
    std::sort(steps.rbegin(), steps.rend());
    for (auto const step : steps) {
      if (kept < options_.keep) {
        kept += looks_whole(step) ? 1 : 0;
        continue;
      }
      auto const name = checkpoint_name(step), old = removed_name(step, options_.job);
      parent_->rename(name, old);
      faults_.hit("ckpt.aside");
      remove(old);
    }
  }

  bool looks_whole(std::uint64_t step) const {
    try {
      auto const folder = Directory{*parent_, checkpoint_name(step)};
      check_sizes(folder, read_manifest(folder));
      return true;
    } catch (std::exception const&) { return false; }
  }

  /// Removes a folder with the files in it, unless another process is writing there.
  void remove(std::string const& name) {
    if (!parent_->has_folder(name)) return parent_->remove_file(name);  // not a folder
    auto const folder = Directory{*parent_, name};
    if (!folder.lock()) return;
    for (auto const& file : folder.names()) {
      folder.remove_file(file);
      faults_.hit("ckpt.removing");
    }
    parent_->remove_empty_folder(name);
  }

  /// Runs work that only tidies: its system errors are logged, and do not make a save fail.
  template <class Do> void or_log(Do&& work) {
    try {
      work();
    } catch (std::system_error const& error) {
      if (options_.log) options_.log(options_.folder.string() + ": " + error.what() + ".");
    }
  }

  void discard() noexcept {
    if (!std::exchange(made_, false)) return;
    try {
      or_log([&] {
        for (auto const& file : folder_ ? folder_->names() : std::vector<std::string>{}) folder_->remove_file(file);
        parent_->remove_empty_folder(here());
      });
    } catch (...) {  // a log that throws: nothing more can be done
    }
  }

  CheckpointOptions options_;
  std::uint64_t step_, need_;
  [[no_unique_address]] Faults faults_;
  std::optional<Directory> parent_, folder_;
  bool made_ = false;  // the temporary folder exists, and is ours
  std::vector<ManifestFile> files_;
};

/// Writes part i of n of a checkpoint that a CheckpointWriter of another process has begun, in the same folder.
///
/// returns  the files to pass to that writer's add()
/// throws   CheckpointFailed: then the writer must not commit
template <FaultPoints Faults = NoFaults>
std::vector<ManifestFile> write_part(CheckpointOptions const& options, std::uint64_t step, CheckpointState const& state,
                                     FilePart part, Faults const& faults = {}) {
  auto const image = CheckpointImage{state, part};
  auto const place = options.folder / unfinished_name(step, options.job);
  try {
    return image.write_to(Directory{place}, options.block, faults);
  } catch (std::system_error const& error) {
    throw CheckpointFailed{error.code().value(), place.string(), error.what(), image.size(), 0};
  }
}

}  // namespace chorale
