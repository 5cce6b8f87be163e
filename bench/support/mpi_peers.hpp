// SPDX-License-Identifier: Apache-2.0
//
// The MPI libraries that bench/reduce compares with: where they are, how each is compiled for, and how each is started.
#pragma once

#include "report.hpp"

#include <cctype>
#include <cstddef>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// One way to run MPI_Allreduce: a library, an algorithm of it, and the command that comes before the program.
struct MpiPeer {
  std::string name;     // Open MPI 5.0.11 ring
  std::string before;   // environment, mpirun, options
  std::string program;  // mpi_peer, compiled for this library

  std::string command(int ranks, std::size_t bytes) const {
    return before + " -n " + std::to_string(ranks) + " '" + program + "' " + std::to_string(bytes);
  }
};

namespace detail {

enum class MpiKind { open_mpi, mpich, intel };

/// An installed MPI library.
struct Mpi {
  MpiKind kind;
  std::string name;    // with its version
  std::string prefix;  // the folder of bin/mpirun

  std::string environment() const {
    switch (kind) {
      case MpiKind::open_mpi: return "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ";
      case MpiKind::mpich: return "";
      case MpiKind::intel: return "I_MPI_ROOT='" + prefix + "' PATH='" + prefix + "/bin':\"$PATH\" ";
    }
    return "";
  }
};

/// The first group of digits and dots after `label` in a text; empty when there is none.
inline std::string version_after(std::string const& text, std::string const& label) {
  auto const at = text.find(label);
  if (at == std::string::npos) return {};
  auto i = at + label.size();
  while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) == 0) ++i;
  auto const begin = i;
  while (i < text.size() && (std::isdigit(static_cast<unsigned char>(text[i])) != 0 || text[i] == '.')) ++i;
  return text.substr(begin, i - begin);
}

/// throws  std::runtime_error when `mpirun` cannot be started, or is of no library that is known here
inline Mpi mpi_of(std::string const& mpirun) {
  namespace fs      = std::filesystem;
  auto const prefix = fs::path{mpirun}.parent_path().parent_path().string();
  auto const text =
      output_of("I_MPI_ROOT='" + prefix + "' PATH='" + prefix + "/bin':\"$PATH\" '" + mpirun + "' --version");
  if (text.find("Open MPI") != std::string::npos)
    return {MpiKind::open_mpi, "Open MPI " + version_after(text, "Open MPI"), prefix};
  if (text.find("Intel") != std::string::npos)
    return {MpiKind::intel, "Intel MPI " + version_after(text, "Version"), prefix};
  if (text.find("HYDRA") != std::string::npos)
    return {MpiKind::mpich, "MPICH " + version_after(text, "Version:"), prefix};
  throw std::runtime_error{"chorale: " + mpirun + " is neither Open MPI's, nor MPICH's, nor Intel's; it said: " +
                           text.substr(0, text.find('\n'))};
}

/// Compiles bench/support/mpi_peer.cpp for a library, with its mpicxx, or with g++ where it brings none that works.
///
/// to      the program
inline void compile_for(Mpi const& mpi, std::string const& source, std::string const& include, std::string const& to) {
  auto const what  = " -std=c++20 -O3 -march=native -I'" + include + "' '" + source + "' -o '" + to + "' -pthread";
  auto const there = [&](std::string const& path) { return access((mpi.prefix + path).c_str(), R_OK) == 0; };
  if (there("/include/mpi.h") && there("/lib/libmpi.so"))
    output_of("g++" + what + " -I'" + mpi.prefix + "/include' -L'" + mpi.prefix + "/lib' -lmpi -Wl,-rpath,'" +
              mpi.prefix + "/lib'");
  else output_of("'" + mpi.prefix + "/bin/mpicxx'" + what);
}

/// Environment and options for a transport, tcp or shared_memory, and the library's names of algorithms. MPICH is built
/// for UCX or for libfabric, either of which would take shared memory where only MPICH itself is told not to.
inline std::vector<std::pair<std::string, std::string>> ways(Mpi const& mpi, std::string const& transport) {
  auto const tcp = transport == "tcp";
  auto all       = std::vector<std::pair<std::string, std::string>>{};
  if (mpi.kind == MpiKind::open_mpi) {
    auto const base =
        std::string{" --oversubscribe"} + (tcp ? " --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo" : "");
    for (auto const& [name, number] :
         {std::pair{"", ""}, {"recursive_doubling", "3"}, {"ring", "4"}, {"rabenseifner", "6"}})
      all.emplace_back(name, "'" + mpi.prefix + "/bin/mpirun'" + base +
                                 (*number == 0 ? ""
                                               : std::string{" --mca coll_tuned_use_dynamic_rules 1 --mca "
                                                             "coll_tuned_allreduce_algorithm "} +
                                                     number));
  }
  if (mpi.kind == MpiKind::mpich)
    for (std::string const name : {"", "recursive_doubling", "ring", "reduce_scatter_allgather"})
      all.emplace_back(name, (tcp ? "MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self FI_PROVIDER=tcp " : std::string{}) +
                                 (name.empty() ? "" : "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=" + name + " ") + "'" +
                                 mpi.prefix + "/bin/mpirun'");
  if (mpi.kind == MpiKind::intel)
    for (auto const& [name, number] :
         {std::pair{"", ""}, {"recursive_doubling", "1"}, {"rabenseifner", "2"}, {"ring", "8"}})
      all.emplace_back(name, std::string{tcp ? "I_MPI_FABRICS=ofi FI_PROVIDER=tcp " : "I_MPI_FABRICS=shm "} +
                                 (*number == 0 ? "" : std::string{"I_MPI_ADJUST_ALLREDUCE="} + number + " ") + "'" +
                                 mpi.prefix + "/bin/mpirun'");
  for (auto& [name, command] : all) command = mpi.environment() + command;
  return all;
}

/// What CHORALE_MPI lists, paths with colons between them; else the mpirun of PATH, if there is one.
inline std::vector<std::string> mpiruns() {
  auto found = std::vector<std::string>{};
  if (auto const* const named = std::getenv("CHORALE_MPI")) {
    auto list = std::istringstream{named};
    for (std::string path; std::getline(list, path, ':');)
      if (!path.empty()) found.push_back(path);
  } else {
    auto const* const path = std::getenv("PATH");
    auto list              = std::istringstream{path != nullptr ? path : ""};
    for (std::string folder; found.empty() && std::getline(list, folder, ':');)
      if (access((folder + "/mpirun").c_str(), X_OK) == 0) found.push_back(folder + "/mpirun");
  }
  return found;
}

}  // namespace detail

/// The MPI libraries of this machine and their ways to all-reduce, compiled into a folder that goes with this.
///
///   CHORALE_MPI=/opt/mpich/bin/mpirun:/usr/bin/mpirun
class MpiPeers {
 public:
  MpiPeers() {
    for (auto const& mpirun : detail::mpiruns()) try {
        auto const mpi     = detail::mpi_of(mpirun);
        auto const program = folder_ + "/peer" + std::to_string(found_.size());
        auto const source  = std::filesystem::canonical(script("mpi_peer.cpp"));
        auto const include = source.parent_path().parent_path().parent_path() / "include";
        detail::compile_for(mpi, source.string(), include.string(), program);
        found_.push_back({mpi, program});
      } catch (std::exception const& error) { std::fprintf(stderr, "SKIPPED: %s: %s\n", mpirun.c_str(), error.what()); }
    if (found_.empty())
      std::fprintf(stderr,
                   "SKIPPED: MPI: no library was found. Try: apt-get install libopenmpi-dev openmpi-bin, or "
                   "CHORALE_MPI, a list of paths of mpirun with colons between them\n");
  }
  ~MpiPeers() {
    auto ignored = std::error_code{};
    std::filesystem::remove_all(folder_, ignored);
  }
  MpiPeers(MpiPeers const&)            = delete;
  MpiPeers& operator=(MpiPeers const&) = delete;

  /// transport  tcp or shared_memory
  std::vector<MpiPeer> over(std::string const& transport) const {
    auto all = std::vector<MpiPeer>{};
    for (auto const& [mpi, program] : found_)
      for (auto const& [algorithm, before] : detail::ways(mpi, transport))
        all.push_back({mpi.name + (algorithm.empty() ? "" : " " + algorithm), before, program});
    return all;
  }

 private:
  struct Found {
    detail::Mpi mpi;
    std::string program;
  };

  static std::string new_folder() {
    auto name = (std::filesystem::temp_directory_path() / "chorale-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error{"chorale: no folder for programs below " + name};
    return name;
  }

  std::string const folder_ = new_folder();
  std::vector<Found> found_;
};

}  // namespace bench
