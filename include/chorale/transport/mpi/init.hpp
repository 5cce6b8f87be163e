// SPDX-License-Identifier: Apache-2.0
//
// How mpi.hpp starts and ends MPI; empty where the compiler does not find it.
#pragma once

#include <chorale/core/error.hpp>

#include <array>
#include <cstddef>
#include <string>

#if __has_include(<mpi.h>)
#include <mpi.h>

namespace chorale::mpi {

/// throws  Error with MPI's own text when a call without a peer has failed
inline void expect_mpi(int code, std::string const& call) {
  if (code == MPI_SUCCESS) return;
  auto text = std::array<char, MPI_MAX_ERROR_STRING>{};
  int size  = 0;
  MPI_Error_string(code, text.data(), &size);
  throw Error{call + " said: " + std::string(text.data(), static_cast<std::size_t>(size)) + "."};
}

/// Starts MPI unless the program has done so, and then finalizes it when the program ends.
inline void initialize_mpi() {
  struct AtExit {
    ~AtExit() {
      int over = 0;
      MPI_Finalized(&over);
      if (!over) MPI_Finalize();
    }
  };
  int started = 0, level = MPI_THREAD_SINGLE, is_main = 0;
  MPI_Initialized(&started);
  if (!started) {
    expect_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    static auto const at_exit = AtExit{};
  }
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  if (level < MPI_THREAD_SERIALIZED && !is_main)
    throw Error{"MPI gave thread level " + std::to_string(level) + ", and this is not the main thread.",
                "MPI_Init_thread with MPI_THREAD_SERIALIZED, or connect() in main()'s thread."};
}

}  // namespace chorale::mpi

#endif
