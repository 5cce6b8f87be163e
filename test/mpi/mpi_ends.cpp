// SPDX-License-Identifier: Apache-2.0
// mpi_ends HOW: a program that starts or ends MPI in its own way, as one rank of those that mpirun starts.
//
//   thread     MPI_THREAD_FUNNELED, and another thread than that of main() uses the endpoint
//   main       MPI_THREAD_FUNNELED, and all is done in the thread of main()
//   live       MPI_Finalize while all endpoints live
//   one        the same on rank 0, while the others wait for it
#include <chorale/transport/mpi.hpp>

#include <cstdio>

#ifdef CHORALE_HAVE_MPI
#include <exception>
#include <string>
#include <thread>
#include <vector>

using namespace chorale;

namespace {

void exchange(MpiEndpoint& at) {
  auto x = std::vector<float>{1}, y = std::vector<float>{0};
  auto sent = at.send((at.rank() + 1) % at.size(), Tag{1}, std::as_bytes(Span<float>{x}));
  at.recv((at.rank() + at.size() - 1) % at.size(), Tag{1}, std::as_writable_bytes(Span<float>{y})).wait();
  sent.wait();
  std::printf("exchanged\n");
}

void say_error(auto&& call) {
  try {
    call();
  } catch (std::exception const& error) {
    auto text = std::string{error.what()};
    for (auto& c : text) c = c == '\n' ? ' ' : c;
    std::printf("%s\n", text.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  auto const how = std::string{argc > 1 ? argv[1] : ""};
  auto level     = 0;
  MPI_Init_thread(&argc, &argv, how == "thread" || how == "main" ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED, &level);
  {
    auto at = std::move(MpiTransport{}.connect(MpiTransport::group())[0]);
    if (how == "thread") {
      auto other = std::thread{[&] { say_error([&] { exchange(at); }); }};
      other.join();
    } else if (how == "one" && at.rank() != 0) {
      say_error([&] {
        auto y = 0.0F;
        at.recv(0, Tag{2}, std::as_writable_bytes(Span<float>{&y, 1})).wait();
      });
    } else if (how != "one") {
      say_error([&] { exchange(at); });
    }
    if (how == "live" || how == "one") {
      MPI_Finalize();
      say_error([&] { exchange(at); });
    }
  }
  if (how != "live" && how != "one") MPI_Finalize();
  std::printf("end\n");
  return 0;
}

#else

int main() {
  std::printf("SKIPPED: how MPI starts and ends: the compiler does not find <mpi.h>\n");
  return 0;
}

#endif
