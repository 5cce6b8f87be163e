// SPDX-License-Identifier: Apache-2.0
// What one rank throws, all ranks throw: the type and the sentence.
#include "test/support/on_ranks.hpp"

#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/simulated.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <typeinfo>

using namespace chorale;
using namespace chorale::test;

namespace {

struct Thrown {
  char const* name;
  std::function<void()> raise;
  std::function<bool(std::exception const&)> same;
};

template <class E> bool is(std::exception const& error) { return dynamic_cast<E const*>(&error) != nullptr; }

auto const sentence_of_it = std::string{"the loss of batch 7 is NaN"};
auto const hint_of_it     = std::string{"a lower learning rate"};

template <class E> Thrown kind(char const* name) {
  return {name, [] { throw E{sentence_of_it + ".", hint_of_it + "."}; }, is<E>};
}

}  // namespace

TEMPLATE_TEST_CASE("what one rank throws and tells, all throw, with its type and sentence", "[transport][told]",
                   LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto const thrown = std::vector<Thrown>{
      kind<NumericFault>("NumericFault"),
      kind<FileFault>("FileFault"),
      kind<BadArgument>("BadArgument"),
      kind<BadFile>("BadFile"),
      {"Disagreement", [] { throw Disagreement{Fault::model_mismatch, sentence_of_it + ".", hint_of_it + "."}; },
       [](std::exception const& error) { return is<Disagreement>(error) && exit_code(error) == 3; }},
      {"Error", [] { throw Error{sentence_of_it + ".", hint_of_it + "."}; }, is<PeerLost>},
  };
  for (auto const& one : thrown) {
    CAPTURE(one.name);
    auto transport = TestType{};
    if constexpr (requires { transport.log; }) transport.log = [](std::string const&) {};
    auto const ended = on_ranks(
        3, 0,
        [&](auto& at, auto&) {
          auto x          = std::uint64_t{0};
          auto const wait = [&] { at.recv(1, Tag{1}, std::as_writable_bytes(Span<std::uint64_t>{&x, 1})).wait(); };
          begin_step(at, 12);
          try {
            if (at.rank() == 1) one.raise();
            wait();
          } catch (std::exception const& error) {
            if (at.rank() == 1) fail(at, error);
            auto const what = std::string{error.what()};
            if (at.rank() == 1) return;
            if (!one.same(error)) throw Error{std::string{"another type: "} + typeid(error).name() + what};
            if (what.find(sentence_of_it) == what.npos) throw Error{"another sentence: " + what};
            if (exit_code(error) != 3 && what.find(hint_of_it) == what.npos) throw Error{"no hint: " + what};
            return;
          }
          throw Error{"nothing was thrown"};
        },
        transport);
    for (auto const& rank : ended) CHECK(rank.error == "");
  }
}

TEMPLATE_TEST_CASE("where a loss concerns peers alone, what one rank throws is its loss", "[transport][told][apart]",
                   LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto transport     = TestType{};
  transport.failures = FailureScope::peer;
  if constexpr (requires { transport.log; }) transport.log = [](std::string const&) {};
  auto const ended = on_ranks(
      2, 0,
      [&](auto& at, auto&) {
        auto x = std::uint64_t{0};
        if (at.rank() == 1) return fail(at, NumericFault{sentence_of_it + ".", hint_of_it + "."});
        CHECK_THROWS_AS(at.recv(1, Tag{1}, std::as_writable_bytes(Span<std::uint64_t>{&x, 1})).wait(), PeerLost);
        CHECK_THROWS_WITH(at.recv(1, Tag{1}, std::as_writable_bytes(Span<std::uint64_t>{&x, 1})).wait(),
                          Catch::Contains(sentence_of_it));
      },
      transport);
  for (auto const& rank : ended) CHECK(rank.error == "");
}
