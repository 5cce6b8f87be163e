// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <string>
#include <string_view>

using namespace chorale;

TEST_CASE("a text from elsewhere is one line of printable characters", "[core][text]") {
  CHECK(printable("dense/kernel f32[784,10] ~") == "dense/kernel f32[784,10] ~");
  CHECK(printable("a\x1b[2Jb\ac\nchorale: forged\r\x7f\x80\xff") == "a?[2Jb?c?chorale: forged????");
  CHECK(printable(std::string{"a\0b", 3}) == "a?b");
  CHECK(printable("").empty());
}

TEST_CASE("a sentence has its values where its form has braces", "[core][text]") {
  CHECK(sentence("rank {} lost rank {}", 2, 0U) == "rank 2 lost rank 0");
  CHECK(sentence("{}{}{}", std::string{"a"}, "b", std::string_view{"c"}) == "abc");
  CHECK(sentence("{} of {} bytes", std::size_t{1} << 40, -1) == "1099511627776 of -1 bytes");
  CHECK(sentence("took {} s", 0.5F) == "took 0.5 s");
  CHECK(sentence("[{}]", "{}") == "[{}]");
  CHECK(sentence("nothing") == "nothing");
}

TEST_CASE("a rank that is itself the culprit is not said to have lost itself", "[core][error]") {
  auto const loss = Loss{Fault::peer_stalled, 1, "gpu07", "all_reduce (sum) of 3 float, tag 7", 12, 5, "it was silent"};
  CHECK(std::string{PeerLost{0, loss}.what()} ==
        "chorale: rank 0 lost rank 1 on gpu07 in step 5, operation 12, "
        "all_reduce (sum) of 3 float, tag 7: it was silent.");
  auto mine  = loss;
  mine.fault = Fault::evicted;
  CHECK(std::string{PeerLost{1, mine}.what()} ==
        "chorale: rank 1 on gpu07 was given up by the other ranks in step 5, operation 12, "
        "all_reduce (sum) of 3 float, tag 7: it was silent.");
  mine.fault = Fault::peer_lost;
  mine.operation.clear();
  CHECK(std::string{PeerLost{1, mine}.what()} == "chorale: rank 1 on gpu07 failed in step 5: it was silent.");
}
