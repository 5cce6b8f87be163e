// SPDX-License-Identifier: Apache-2.0
//
// How mpi.hpp starts and ends MPI, and takes a communicator of the program; empty where the compiler does not find it.
#pragma once

#include <chorale/core/error.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

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

/// Where MPI may be called in one thread alone.
[[noreturn]] inline void throw_other_thread() {
  throw BadArgument{
      "MPI was started with MPI_THREAD_SINGLE or MPI_THREAD_FUNNELED, and MpiTransport is used in "
      "another thread than the one that started it.",
      "MPI_Init_thread with MPI_THREAD_SERIALIZED, or the Trainer in the thread of MPI_Init."};
}

/// True if MPI may be called in this thread.
inline bool may_call_mpi() {
  int level = MPI_THREAD_SINGLE, is_main = 0;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_SERIALIZED) return true;
  MPI_Is_thread_main(&is_main);
  return is_main != 0;
}

/// While it lives, calls a function when MPI_Finalize begins, which may still use MPI.
class AtFinalize {
 public:
  explicit AtFinalize(std::function<void()> call) : call_{std::move(call)} {
    expect_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, begins, &key_, nullptr), "MPI_Comm_create_keyval");
    expect_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key_, this), "MPI_Comm_set_attr");  // which it deletes first
  }
  ~AtFinalize() {
    if (!std::exchange(call_, nullptr)) return;  // it has begun, and the attribute is gone
    MPI_Comm_delete_attr(MPI_COMM_SELF, key_);
    MPI_Comm_free_keyval(&key_);
  }
  AtFinalize(AtFinalize const&)            = delete;
  AtFinalize& operator=(AtFinalize const&) = delete;

 private:
  static int begins(MPI_Comm, int, void* self, void*) {
    if (auto const call = std::exchange(static_cast<AtFinalize*>(self)->call_, nullptr)) call();
    return MPI_SUCCESS;
  }

  std::function<void()> call_;
  int key_ = MPI_KEYVAL_INVALID;
};

/// Starts MPI unless the program has done so, and then finalizes it when the program ends.
inline void initialize_mpi() {
  struct AtExit {
    ~AtExit() {
      int over = 0;
      MPI_Finalized(&over);
      if (!over) MPI_Finalize();
    }
  };
  int started = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  if (!started) {
    expect_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    static auto const at_exit = AtExit{};
    for (auto const ours : {MPI_COMM_WORLD, MPI_COMM_SELF}) MPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN);
  }
  if (!may_call_mpi()) throw_other_thread();
}

/// Refuses a communicator over which no ranks can be connected, and starts MPI if it is MPI_COMM_WORLD and the program
/// has not started MPI: before any other communicator the program has done so.
///
/// throws  BadArgument, or Error where MPI cannot be used in this thread
inline void expect_usable(MPI_Comm communicator) {
  int started = 0, over = 0, joins_groups = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&over);
  if (over)
    throw BadArgument{"MpiTransport is to connect ranks after MPI_Finalize has ended MPI.",
                      "make the Trainer before, and let it end before MPI_Finalize."};
  if (communicator == MPI_Comm{})  // of MPI_Comm_f2c, where Open MPI knows none
    throw BadArgument{"MpiTransport got a handle that is no communicator.",
                      "MPI_Comm_f2c of what MPI_Comm_c2f has made, or of the communicator as Fortran has it."};
  if (communicator == MPI_COMM_NULL)
    throw BadArgument{"MpiTransport got MPI_COMM_NULL: this process is no rank of the communicator that trains.",
                      "a Trainer in the processes that are ranks of it alone."};
  if (!started && communicator != MPI_COMM_WORLD)
    throw BadArgument{"MpiTransport got a communicator of the program before the program has called MPI_Init.",
                      "MPI_Init first; MpiTransport{} starts MPI itself."};
  initialize_mpi();
  expect_mpi(MPI_Comm_test_inter(communicator, &joins_groups), "MPI_Comm_test_inter");
  if (joins_groups)
    throw BadArgument{"MpiTransport got a communicator between two groups, where no process has a rank among all.",
                      "MPI_Intercomm_merge, and the communicator that it makes."};
}

/// Duplicates a communicator, so that messages and errors on the duplicate meet none on the original. The duplicate has
/// no hints: promises of the program, such as never to probe for any source, are not kept on it. Every rank calls it.
inline MPI_Comm duplicate(MPI_Comm communicator) {
  auto copy = MPI_COMM_NULL;
  expect_mpi(MPI_Comm_dup_with_info(communicator, MPI_INFO_NULL, &copy), "MPI_Comm_dup_with_info");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

}  // namespace chorale::mpi

#endif
