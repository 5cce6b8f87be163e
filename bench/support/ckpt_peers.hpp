// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint is measured against: bare loops over the system's calls, cp, and the writers of Python libraries.
#pragma once

#include "report.hpp"

#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

inline void bare_check(bool good, std::string const& what) {
  if (!good) throw std::runtime_error{"chorale: the bare loop could not " + what};
}

/// Seconds to write these bytes to a new file and bring them to the disk: no checksum, no name that is safe.
inline double bare_write(std::filesystem::path const& path, chorale::ConstBytes bytes) {
  auto const start = std::chrono::steady_clock::now();
  auto const file  = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bare_check(file >= 0, "open " + path.string());
  while (!bytes.empty()) {
    auto const n = ::write(file, bytes.data(), std::min<std::size_t>(bytes.size(), 256U << 10));
    bare_check(n > 0, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  bare_check(::fsync(file) == 0 && ::close(file) == 0, "bring it to the disk");
  return seconds_since(start);
}

/// Seconds to read a file into memory that is touched for the first time.
inline double bare_read(std::filesystem::path const& path) {
  auto const start = std::chrono::steady_clock::now();
  auto const size  = std::filesystem::file_size(path);
  auto const bytes = std::make_unique_for_overwrite<std::byte[]>(size);
  auto const file  = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  bare_check(file >= 0, "open " + path.string());
  for (std::size_t at = 0; at < size;) {
    auto const n = ::read(file, bytes.get() + at, std::min<std::size_t>(size - at, 256U << 10));
    bare_check(n > 0, "read");
    at += static_cast<std::size_t>(n);
  }
  ::close(file);
  return seconds_since(start);
}

/// Asks the system to forget what it has in memory of the files of a folder, or of one file.
inline void forget(std::filesystem::path const& path) {
  auto const one = [](std::filesystem::path const& name) {
    auto const file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    bare_check(file >= 0 && ::fsync(file) == 0 && ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, "forget");
    ::close(file);
  };
  if (!std::filesystem::is_directory(path)) return one(path);
  for (auto const& entry : std::filesystem::directory_iterator{path}) one(entry.path());
}

/// Seconds of cp and sync, from a file that is in memory.
inline double cp_and_sync(std::filesystem::path const& from, std::filesystem::path const& to) {
  auto const start = std::chrono::steady_clock::now();
  output_of("cp --reflink=never '" + from.string() + "' '" + to.string() + "' && sync '" + to.string() + "'");
  return seconds_since(start);
}

inline bool python_has(std::string const& module) {
  return std::system((python() + " -c 'import " + module + "' >/dev/null 2>&1").c_str()) == 0;
}

/// Loads and copies into the tensors of a model that exists, as load_state_dict does.
inline std::string into_place(std::string const& load, std::size_t tensors, std::size_t floats) {
  return "m = {str(i): torch.ones(" + std::to_string(floats) + ") for i in range(" + std::to_string(tensors) +
         ")}; t = time.perf_counter(); x = " + load + "; [m[k].copy_(x[k]) for k in m]";
}

/// Seconds that torch.save and an fsync of its file need for so many tensors of so many floats; or torch.load.
///
/// source  torch.save by itself leaves the bytes to the system, and writes over the old file
inline double torch_seconds(std::filesystem::path const& path, std::size_t tensors, std::size_t floats, bool save) {
  auto const script =
      save ? "x = {str(i): torch.rand(" + std::to_string(floats) + ") for i in range(" + std::to_string(tensors) +
                 ")}; t = time.perf_counter(); f = open(p, 'wb'); torch.save(x, f); f.flush(); os.fsync(f.fileno()); " +
                 "f.close()"
           : into_place("torch.load(p)", tensors, floats);
  return number_after(output_of(python() + " -c \"import os, time, torch; p = '" + path.string() + "'; " + script +
                                "; print('seconds', time.perf_counter() - t)\""),
                      "seconds");
}

/// The same of safetensors.torch, which renames when it is done and leaves the bytes to the system.
inline double safetensors_seconds(std::filesystem::path const& path, std::size_t tensors, std::size_t floats,
                                  bool save) {
  auto const script =
      save ? "x = {str(i): torch.rand(" + std::to_string(floats) + ") for i in range(" + std::to_string(tensors) +
                 ")}; t = time.perf_counter(); save_file(x, p); f = os.open(p, os.O_RDONLY); os.fsync(f)"
           : into_place("load_file(p)", tensors, floats);
  return number_after(output_of(python() + " -c \"import os, time, torch; p = '" + path.string() +
                                "'; from safetensors.torch import save_file, load_file; " + script +
                                "; print('seconds', time.perf_counter() - t)\""),
                      "seconds");
}

}  // namespace bench
