// SPDX-License-Identifier: Apache-2.0
// What MpiTransport promises, as one rank of those that mpirun starts; rank 0 prints a line for each promise.
#include <chorale/cluster/mpi.hpp>
#include <chorale/transport/mpi.hpp>

#include <cstdio>

#ifdef CHORALE_HAVE_MPI
#include "test/support/on_ranks.hpp"
#include "test/support/tiny.hpp"

#include <chorale/reduce/native.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/transport/local.hpp>

#include <array>
#include <chrono>
#include <functional>
#include <string>

using namespace chorale;
using namespace chorale::test;

namespace {

using Body = std::function<void(MpiEndpoint&)>;

ConstBytes out(Span<float const> x) { return std::as_bytes(x); }
Bytes in(Span<float> x) { return std::as_writable_bytes(x); }

void expect(bool holds, std::string const& what) {
  if (!holds) throw Error{what};
}

/// Runs body on every rank over fresh connections; rank 0 prints whether it returned on all.
int verdict(std::string const& name, Body const& body, MpiTransport const& transport = {}) {
  auto at    = std::move(transport.connect(MpiTransport::group(transport.communicator))[0]);
  int failed = 0;
  try {
    body(at);
  } catch (std::exception const& error) {
    failed = 1;
    std::printf("rank %d: %s\n", at.rank(), error.what());
  }
  std::fflush(stdout);
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, transport.communicator);
  if (at.rank() == 0)
    std::printf("%s: %s, %d ranks under mpirun\n", failed ? "FAILED" : "PASSED", name.c_str(), at.size());
  std::fflush(stdout);
  return failed;
}

void exchange(MpiEndpoint& at, std::size_t n) {
  auto x    = values_of(at.rank(), n);
  auto sent = std::vector<MpiEndpoint::pending>{};
  for (Rank peer = 0; peer < at.size(); ++peer) sent.push_back(at.send(peer, Tag{1}, out(x)));  // itself, too
  for (Rank peer = 0; peer < at.size(); ++peer) {
    auto got = std::vector<float>(n);
    at.recv(peer, Tag{1}, in(got)).wait();
    expect(same_bits(got, values_of(peer, n)), "rank " + std::to_string(peer) + " sent something else");
  }
  for (auto& pending : sent) pending.wait();
}

void exchange_all(MpiEndpoint& at) {
  for (std::size_t const n : {0U, 1U, 15U, 16U, 17U, 48U, 1'000U, 100'003U}) exchange(at, n);
}

void take_in_any_order(MpiEndpoint& at) {
  auto x = std::array{1.0F, 2.0F, 3.0F, 4.0F}, y = std::array{0.0F, 0.0F, 0.0F, 0.0F};
  auto const all = Span<float>{x}, got = Span<float>{y};
  auto const far = Tag{0xFFFF'FFFF};  // higher than any that MPI has
  auto moved     = std::move(at);
  if (moved.rank() == 0) {
    moved.send(1, Tag{5}, out(all.subspan(0, 1)));  // nobody waits for it
    moved.send(1, far, out(all.subspan(1, 1)));
    moved.send(1, Tag{5}, out(all.subspan(2, 1))).wait();
    moved.send(1, Tag{7}, out(all.subspan(3, 1))).wait();
  } else if (moved.rank() == 1) {
    moved.recv(0, Tag{7}, in(got.subspan(3, 1))).wait();
    moved.recv(0, Tag{5}, in(got.subspan(0, 1))).wait();
    moved.recv(0, Tag{5}, in(got.subspan(2, 1))).wait();
    auto last = moved.recv(0, far, in(got.subspan(1, 1)));
    last.wait();
    expect(last.done() && MpiEndpoint::pending{}.done(), "a pending that is over is not done");
    expect(x == y, "messages came in another order");
  }
  at = std::move(moved);
}

void all_reduce(MpiEndpoint& at) {
  auto const reference = on_ranks<LocalTransport>(at.size(), 10'007, [](auto& local, auto& x) {
    for (unsigned step = 0; step < 3; ++step) RingAllReduce{}.all_reduce(local, x, Op::sum, Tag{step});
    ReduceToOne{}.all_reduce(local, x, Op::sum, Tag{3});
  });
  auto values          = values_of(at.rank(), 10'007);
  auto const x         = Span<float>{values};
  for (unsigned step = 0; step < 3; ++step) RingAllReduce{}.all_reduce(at, x, Op::sum, Tag{step});
  ReduceToOne{}.all_reduce(at, x, Op::sum, Tag{3});
  expect(same_bits(x, reference[0].x), "the sum has other bits than over threads");
}

void own_all_reduce(MpiEndpoint& at) {
  auto const P      = static_cast<float>(at.size());
  auto const wanted = std::array{std::pair{Op::sum, P * (P + 1) / 2}, std::pair{Op::min, 1.0F}, std::pair{Op::max, P}};
  for (auto const& [op, value] : wanted) {
    auto x = std::vector<float>(1'001, static_cast<float>(at.rank() + 1));
    at.all_reduce(x, op);
    for (auto const got : x) expect(got == value, "it has " + std::to_string(got) + ", not " + std::to_string(value));
  }
}

Operation reduction(std::uint64_t count, Tag tag, std::uint32_t line = 1) {
  return {Collective::all_reduce, Op::sum, Element::f32, count, tag, {"train.cpp", line}};
}

/// What body throws; its time is below a second.
template <class B> std::string error_of(B body) {
  auto const begin = std::chrono::steady_clock::now();
  auto text        = std::string{};
  try {
    body();
  } catch (PeerLost const& lost) {
    text = "lost " + std::to_string(lost.rank()) + "; " + lost.what();
  } catch (Disagreement const& error) {
    expect(error.fault() == Fault::collective_mismatch || error.fault() == Fault::model_mismatch,
           "it is another disagreement");
    text = std::string{"disagreed; "} + error.what();
  } catch (Error const& error) { text = error.what(); }
  expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds{1}, "it took a second");
  return text;
}

void expect_says(std::string const& text, std::string const& part) {
  expect(text.find(part) != std::string::npos, "\"" + text + "\" does not say \"" + part + "\"");
}

/// Rank 0 sends `sent` floats where rank 1 expects `wanted`; all others wait for rank 1.
void disagree(MpiEndpoint& at, std::size_t sent, std::size_t wanted, std::string const& sentence) {
  auto x          = std::vector<float>(100'000);
  auto const text = error_of([&] {
    if (at.rank() == 1) at.recv(0, Tag{3}, in(Span<float>{x}.first(wanted))).wait();
    if (at.rank() == 0) at.send(1, Tag{3}, out(Span<float>{x}.first(sent)));
    if (at.rank() != 1) at.recv(1, Tag{4}, in(x)).wait();
  });
  expect_says(text, "disagreed; ");
  expect_says(text, sentence);
}

/// Each rank all-reduces what `mine` says, and then once more: all get a Disagreement with both operations.
void reduce_differently(MpiEndpoint& at, std::function<void(MpiEndpoint&, Span<float>)> const& mine,
                        std::string const& sentence) {
  auto x          = std::vector<float>(20'000, 1.0F);
  auto const text = error_of([&] {
    RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{1});
    mine(at, x);
    RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{2});
    RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{3});
  });
  expect_says(text, "disagreed; ");
  expect_says(text, sentence);
  expect_says(error_of([&] { at.send(at.rank(), Tag{}, {}); }), "disagreed; ");
}

void agree_on_operations(MpiEndpoint& at) {
  auto x = values_of(at.rank(), 3'000), got = std::vector<float>(3'000);
  for (std::uint32_t i = 1; i < 200; ++i) {
    auto const from = (at.rank() + at.size() - 1) % at.size();
    at.announce(reduction(i, Tag{i % 5}));
    auto sent = at.send((at.rank() + 1) % at.size(), Tag{i % 5}, out(x));
    at.recv(from, Tag{i % 5}, in(got)).wait();
    sent.wait();
    expect(same_bits(got, values_of(from, 3'000)), "another message came");
  }
}

void begin_native_alone(MpiEndpoint& at) {
  auto x          = std::vector<float>(1'000, 1.0F);
  auto const text = error_of([&] {
    NativeAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{1});
    expect(x[7] == static_cast<float>(at.size()), "a wrong sum");
    auto const n = at.rank() == 1 ? 999U : 1'000U;
    NativeAllReduce{}.all_reduce(at, Span<float>{x}.first(n), Op::sum, Tag{1});
  });
  expect_says(text, "disagreed; ");
  expect_says(text, "all_reduce (sum) of 1000 float");
  expect_says(text, "all_reduce (sum) of 999 float");
}

void fail_alone(MpiEndpoint& at) {
  auto x          = std::vector<float>(1'000);
  auto const text = error_of([&] {
    for (unsigned step = 1; step < 9; ++step) {
      if (at.rank() == 1 && step == 2) return fail(at, "the disk is full.");
      RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{step});
    }
  });
  if (at.rank() == 1) return;
  expect_says(text, "lost 1; ");
  expect_says(text, "the disk is full");
  expect_says(error_of([&] { at.send(0, Tag{}, {}); }), "the disk is full");
}

void wait_in_vain(MpiEndpoint& at) {
  auto x = std::vector<float>(10);
  if (at.rank() != 0) return;
  auto const text = error_of([&] { at.recv(1, Tag{42}, in(x)).wait(); });
  expect_says(text, "lost 1; ");
  expect_says(text, "recv, tag 42: rank 0 waited 30 ms");
}

void refuse(MpiEndpoint& at) {
  expect_says(error_of([&] { at.send(at.size(), Tag{}, {}); }), "no rank " + std::to_string(at.size()));
  expect_says(error_of([&] { MpiTransport{}.connect(Group::all_local(at.size())); }),
              "of the communicator, but the group has");
  expect_says(error_of([&] { MpiTransport{.piece = 0}.connect(MpiTransport::group()); }), "a piece of 0 bytes");
  expect_says(error_of([&] { MpiTransport::group(MPI_COMM_NULL); }), "MPI_COMM_NULL: this process is no rank");
  expect_says(error_of([&] { cluster_of(MPI_Comm_f2c(4'711)); }), "a handle that is no communicator");
  expect_says(error_of([&] { cluster_of(MPI_COMM_NULL); }), "MPI_COMM_NULL: this process is no rank");
  if (at.rank() > 1) return;
  auto between = MPI_COMM_NULL;
  MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - at.rank(), 5, &between);
  expect_says(error_of([&] { MpiTransport::group(between); }), "a communicator between two groups");
  MPI_Comm_free(&between);
}

/// The ranks that mpirun started, in reverse: a communicator of the program.
MPI_Comm reversed() {
  auto made = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -MpiTransport::group().local().front(), &made);
  return made;
}

/// The program receives whatever arrives on its communicator: nothing of ours does, and its error handler stays.
void stay_apart(MpiEndpoint& world) {
  auto own   = reversed();
  auto asked = MPI_REQUEST_NULL;
  int got = -1, arrived = 0;
  MPI_Comm_set_errhandler(own, MPI_ERRORS_ARE_FATAL);
  MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, own, &asked);
  auto at = std::move(MpiTransport{own}.connect(MpiTransport::group(own))[0]);
  expect(at.rank() == world.size() - 1 - world.rank() && at.size() == world.size(), "other ranks than the program's");
  exchange_all(at);
  own_all_reduce(at);
  MPI_Test(&asked, &arrived, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);  // none has sent a message of the program yet
  expect(!arrived, "a message of ours went to the program");
  auto const mine = 100 + at.rank();
  MPI_Send(&mine, 1, MPI_INT, (at.rank() + 1) % at.size(), 1, own);
  MPI_Wait(&asked, MPI_STATUS_IGNORE);
  expect(got == 100 + (at.rank() + at.size() - 1) % at.size(), "the program got another message");
  auto handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(own, &handler);
  expect(handler == MPI_ERRORS_ARE_FATAL, "the program's error handler was replaced");
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&own);
  exchange_all(at);  // on duplicates
}

/// All ranks but the first train on a communicator of their own.
void leave_out_rank_0(MpiEndpoint& world) {
  auto own = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world.rank() == 0 ? MPI_UNDEFINED : 0, 0, &own);
  if (world.rank() == 0) return expect_says(error_of([&] { MpiTransport{own}.group(own); }), "this process is no rank");
  auto const cluster = cluster_of(own);
  expect(cluster.workers() == world.size() - 1 && cluster.rank() == world.rank() - 1, "another cluster");
  expect(cluster.local_size() == cluster.workers() && cluster.local_rank() == cluster.rank(), "other hosts");
  expect_says(error_of([&] { cluster.addresses(); }), "an MPI communicator: its ranks have no addresses");
  auto at = std::move(MpiTransport{own}.connect(cluster.group())[0]);
  exchange_all(at);
  MPI_Comm_free(&own);
}

auto trainer_with(float rate) {
  return Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = rate}),
                 MultiWorkerMirroredStrategy{cluster_of(MPI_COMM_WORLD), Cpu::logical(1)}, RingAllReduce{},
                 MpiTransport{}, 7};
}

/// MPI compares no plans as it connects, so the trainer does.
void compare_models(MpiEndpoint& at) {
  auto const odd = at.rank() == 1;
  expect_says(error_of([&] { trainer_with(odd ? 0.2F : 0.1F); }),
              "rank 1: optimizer SGD learning_rate 0.2 vs 0.1 of rank 0");
  auto const data = tiny::Batches<int>{tiny::batch<int>(24, 64, 1), {8, 8, 8}};
  auto trainer    = trainer_with(0.1F);
  expect_says(error_of([&] { trainer.fit(data, {.epochs = odd ? 3 : 2, .show = Show::nothing}); }),
              "rank 1: fit epochs 3 vs 2 of rank 0");
  trainer.fit(data, {.show = Show::nothing});  // nothing was begun
  if (odd) trainer.copies()[0].net.variables()[1].value[2] += 1e-6F;
  auto const again = FitOptions{.epochs = 2, .initial_epoch = 1, .show = Show::nothing};
  expect_says(error_of([&] { trainer.fit(data, again); }), "replicas have drifted apart: conv2d/bias ");
}

}  // namespace

int main() {
  auto failed = verdict("every pair exchanges what was sent", exchange_all);
  failed += verdict("messages travel in pieces", exchange_all, {.piece = 64});
  failed += verdict("messages complete in any order, those with one tag in the order sent", take_in_any_order);
  failed += verdict("an all-reduce over messages has the bits that it has over threads", all_reduce);
  failed += verdict("MPI's own all-reduce is there", own_all_reduce);
  failed += verdict("a message that is too small is an error on all ranks", [](auto& at) {
    disagree(at, 10, 20, "rank 0 sent 40 bytes where rank 1 expected 80 bytes, tag 3");
  });
  failed += verdict("a message that is too large is an error on all ranks", [](auto& at) {
    disagree(at, 20, 10, "rank 0 sent 80 bytes where rank 1 expected 40 bytes, tag 3");
  });
  failed +=
      verdict("a message of more pieces is an error on all ranks",
              [](auto& at) { disagree(at, 90, 80, "rank 0 sent 360 bytes where rank 1 expected 320 bytes, tag 3"); },
              {.piece = 64});
  failed += verdict("a large message that is too large is an error on all ranks", [](auto& at) {
    disagree(at, 100'000, 99'999, "rank 0 sent 400000 bytes where rank 1 expected 399996 bytes, tag 3");
  });
  failed += verdict("messages of operations that all ranks announce alike arrive", agree_on_operations);
  failed += verdict("another length at run time is a disagreement on all ranks", [](auto& at) {
    reduce_differently(
        at,
        [](auto& me, auto x) {
          RingAllReduce{}.all_reduce(me, x.first(me.rank() == 1 ? 500U : 1'000U), Op::sum, Tag{2});
        },
        "all_reduce (sum) of 500 float");
  });
  failed += verdict("another element type of the same size is a disagreement on all ranks", [](auto& at) {
    reduce_differently(
        at,
        [](auto& me, auto x) {
          auto whole = std::vector<std::int32_t>(x.size());
          if (me.rank() == 1) RingAllReduce{}.all_reduce(me, Span<std::int32_t>{whole}, Op::sum, Tag{2});
          else RingAllReduce{}.all_reduce(me, x, Op::sum, Tag{2});
        },
        "int32");
  });
  failed += verdict("two calls in another order are a disagreement on all ranks", [](auto& at) {
    reduce_differently(
        at,
        [](auto& me, auto x) {
          if (me.rank() == 1) RingAllReduce{}.all_reduce(me, x, Op::max, Tag{2});
          RingAllReduce{}.all_reduce(me, x, Op::sum, Tag{2});
          if (me.rank() != 1) RingAllReduce{}.all_reduce(me, x, Op::max, Tag{2});
        },
        "all_reduce (max) of 20000 float");
  });
  failed += verdict("calls with other tags, whose messages never meet, are a disagreement on all ranks", [](auto& at) {
    reduce_differently(
        at, [](auto& me, auto x) { RingAllReduce{}.all_reduce(me, x, Op::sum, Tag{me.rank() == 1 ? 8U : 9U}); },
        "tag 8");
  });
  failed += verdict("a rank that leaves out a call is in a disagreement with all", [](auto& at) {
    reduce_differently(
        at,
        [](auto& me, auto x) {
          if (me.rank() != 1) RingAllReduce{}.all_reduce(me, x, Op::min, Tag{9});
        },
        "all_reduce (min) of 20000 float");
  });
  failed += verdict("MPI's own all-reduce begins when all ranks are in it, or not at all", begin_native_alone);
  failed += verdict("a rank that fails is named by all others within a second", fail_alone);
  failed += verdict("a rank that stays away is named after the timeout", wait_in_vain,
                    {.timeout = std::chrono::milliseconds{30}});
  failed += verdict("ranks with other models, options or variables all say the same of it", compare_models);
  failed += verdict("ranks, groups and communicators that do not exist are refused", refuse);
  failed += verdict("messages and errors stay apart from those of the program's communicator", stay_apart);
  failed += verdict("ranks that are no part of a communicator do not train", leave_out_rank_0);
  auto const own = reversed();
  failed += verdict("an all-reduce over a communicator of the program has the same bits", all_reduce, {own});
  failed += verdict("a rank of a communicator that fails is named by all others", fail_alone, {own});
  return failed == 0 ? 0 : 1;
}

#else

int main() { std::puts("SKIPPED: MpiTransport under mpirun: <mpi.h> was absent when this was built"); }

#endif
