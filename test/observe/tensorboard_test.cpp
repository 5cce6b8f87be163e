// SPDX-License-Identifier: Apache-2.0
#include <chorale/observe/tensorboard.hpp>

#include "test/observe/folder.hpp"
#include "test/support/event_file.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

using namespace chorale;
using observe::content_of, observe::events_of, observe::hex, observe::said;

namespace {

auto const first_event = hex("1800000000000000 a37f4b22 09000000000000f83f 1a0d 627261696e2e4576656e743a32 2a28646c");
auto const v1_scalar =
    hex("1a00000000000000 129bd82d 09000000000000f83f 1007 2a0d 0a0b 0a046c6f7373 150000803e "
        "c9d07b8d");
auto const v2_scalar =
    hex("3000000000000000 95f5d05f 09000000000000f83f 1007 2a23 0a21 0a046c6f7373 420a 0801 1200 "
        "2a040000803e 4a0d 0a09 0a077363616c617273 2001 2533336c");

auto const pixel =
    hex("89504e470d0a1a0a 0000000d4948445200000001000000010802000000907753de "
        "0000000c4944415408d763f8ffff3f0005fe02fedccc59e7 0000000049454e44ae426082");

TensorBoardRunOptions at(double const& now, std::uint64_t first_step = 0) {
  return {.first_step = first_step, .clock = [&now] { return now; }};
}

/// What a TensorBoard writes after its first two events.
std::vector<observe::TensorBoardEvent> told(auto&& tell) {
  auto const folder = observe::Folder{};
  auto const now    = 1.5;
  auto board        = TensorBoardRun{folder / "run", at(now)};
  tell(board);
  board.flush();
  auto events = events_of(content_of(board.file()));
  events.erase(events.begin(), events.begin() + 2);
  return events;
}

std::vector<double> histogram_of(std::vector<float> const& values) {
  auto const events = told([&](TensorBoardRun& board) { board.histogram("w", 3, values); });
  return events.at(0).values.at(0).histogram.value().buckets;
}

}  // namespace

TEST_CASE("an event file has the bytes of TensorFlow's", "[observe][golden]") {
  auto const folder = observe::Folder{};
  auto const now    = 1.5;
  auto board        = TensorBoardRun{folder / "run", at(now)};
  board.take({.step = 7, .values = std::vector<MetricValue>{{"loss", 0.25}}});
  board.flush();
  auto const bytes = content_of(board.file());
  REQUIRE(bytes.size() > first_event.size() + v1_scalar.size());
  CHECK(bytes.substr(0, first_event.size()) == first_event);
  CHECK(bytes.substr(bytes.size() - v1_scalar.size()) == v1_scalar);
  CHECK(board.file().filename().string().starts_with("events.out.tfevents.0000000001."));
}

TEST_CASE("the reader of these tests reads both versions of a scalar, and refuses any other byte", "[observe][unit]") {
  auto const events = events_of(first_event + v1_scalar + v2_scalar);
  for (auto const i : {1U, 2U}) {
    CHECK(events.at(i).step == 7);
    CHECK(events.at(i).wall_time == 1.5);
    CHECK(events.at(i).values.at(0).tag == "loss");
    CHECK(events.at(i).values.at(0).scalar == 0.25F);
  }
  CHECK(events.at(2).values.at(0).plugin == "scalars");
  auto const whole = first_event + v1_scalar;
  auto refused     = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    auto changed = whole;
    changed[i]   = static_cast<char>(changed[i] ^ 1);
    refused += !said<observe::Bad>([&] { events_of(changed); }).empty();
  }
  CHECK(refused == static_cast<int>(whole.size()));
}

TEST_CASE("the numbers of a step are one event with a value for each", "[observe][unit]") {
  auto const nan    = std::numeric_limits<double>::quiet_NaN();
  auto const events = told([&](TensorBoardRun& board) {
    board.take({.step = 1ULL << 40, .values = std::vector<MetricValue>{{"loss", 0.5}, {"accuracy", 0.75}}});
    board.take({.step = 3, .values = std::vector<MetricValue>{{"loss", nan}}});
  });
  REQUIRE(events.size() == 2);
  CHECK(events[0].step == 1ULL << 40);
  REQUIRE(events[0].values.size() == 2);
  CHECK(events[0].values[1].tag == "accuracy");
  CHECK(events[0].values[1].scalar == 0.75F);
  CHECK(std::isnan(events[1].values.at(0).scalar.value()));
}

TEST_CASE("a histogram counts every finite value once, in bins between the lowest and the highest", "[observe][unit]") {
  auto const infinity = std::numeric_limits<float>::infinity();
  auto values         = std::vector<float>{infinity, std::nanf(""), -infinity};
  for (int i = 0; i <= 300; ++i) values.push_back(static_cast<float>(i) / 100 - 1);
  auto const events    = told([&](TensorBoardRun& board) { board.histogram("w", 3, values); });
  auto const histogram = events.at(0).values.at(0).histogram.value();
  CHECK(histogram.min == -1);
  CHECK(histogram.max == 2);
  CHECK(histogram.num == 301);
  CHECK(histogram.sum == Approx(150.5));
  CHECK(histogram.sum_squares == Approx(301 * 0.25 + 1e-4 * 2 * 150 * 151 * 301 / 6));
  CHECK(histogram.limits.size() == 30);
  CHECK(std::ranges::is_sorted(histogram.limits));
  CHECK(histogram.limits.back() == 2);
  CHECK(std::accumulate(histogram.buckets.begin(), histogram.buckets.end(), 0.0) == 301);
  CHECK(std::ranges::max(histogram.buckets) <= 12);
  CHECK(std::ranges::min(histogram.buckets) >= 9);
}

TEST_CASE("a histogram of equal values, or of none, has one bin", "[observe][unit]") {
  CHECK(histogram_of({2, 2, 2}) == std::vector<double>{3});
  CHECK(histogram_of({}) == std::vector<double>{0});
  CHECK(histogram_of({std::nanf("")}) == std::vector<double>{0});
}

TEST_CASE("a picture is its PNG; what is none is refused", "[observe][unit]") {
  auto const bytes  = std::as_bytes(std::span{pixel});
  auto const events = told([&](TensorBoardRun& board) {
    board.image("sample", 2, {.height = 1, .width = 1, .channels = 3, .png = bytes});
    CHECK_THAT(said<BadArgument>([&] { board.image("sample", 2, {1, 1, 3, bytes.subspan(1)}); }),
               Catch::Contains("image sample: its " + std::to_string(pixel.size() - 1) + " bytes are no PNG"));
    CHECK_THAT(said<BadArgument>([&] { board.image("sample", 2, {1, 0, 2, bytes}); }),
               Catch::Contains("cannot be 1 x 0 pixels in 2 channels"));
  });
  REQUIRE(events.size() == 1);
  auto const image = events[0].values.at(0).image.value();
  CHECK(image.png == pixel);
  CHECK(image.height * 100 + image.width * 10 + image.channels == 113);
}

TEST_CASE("a start marks its first step, and comes after the file of the start before", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto now          = 2'000'000'000.25;
  auto files        = std::vector<std::filesystem::path>{};
  for (auto const first_step : {0U, 50U}) {
    auto board = TensorBoardRun{folder / "run", at(now, first_step)};
    board.take({.step = first_step + 60, .values = std::vector<MetricValue>{{"loss", 1}}});
    now += 7;
    board.take({.step = first_step + 61, .values = std::vector<MetricValue>{{"loss", 1}}});
    files.push_back(board.file());
    now -= 1000;  // somebody sets the clock
  }
  CHECK(files[0] < files[1]);
  auto const before = events_of(content_of(files[0])), after = events_of(content_of(files[1]));
  CHECK(before.at(1).session == 1);
  CHECK(before.at(1).step == 0);
  CHECK(after.at(1).session == 1);
  CHECK(after.at(1).step == 50);
  CHECK(before.back().wall_time == 2'000'000'007.25);
  CHECK(after.front().wall_time == 2'000'000'007.25);
}

TEST_CASE("wall times never decrease, whatever the clock does", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto now          = 100.0;
  auto board        = TensorBoardRun{folder / "run", at(now)};
  for (auto const time : {101.0, 99.0, 50.0, 102.0}) {
    now = time;
    board.take({.step = 1, .values = std::vector<MetricValue>{{"loss", 1}}});
  }
  board.flush();
  auto times = std::vector<double>{};
  for (auto const& event : events_of(content_of(board.file()))) times.push_back(event.wall_time);
  CHECK(times == std::vector<double>{100, 100, 101, 101, 101, 102});
}

TEST_CASE("an event file that a crash or a stranger left does not disturb the next start", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto const now    = 3.0;
  auto const torn   = first_event + v1_scalar.substr(0, v1_scalar.size() - 3);
  for (auto const& content : {torn, std::string{}, std::string(100, '\xFF'), torn + std::string(40, '\xFF')}) {
    folder.file("events.out.tfevents.7.x", content);
    folder.file("events.out.tfevents.none", content);
    auto board = TensorBoardRun{folder / "", at(now)};
    board.flush();
    CHECK(events_of(content_of(board.file())).size() == 2);
    std::filesystem::remove(board.file());
  }
}

TEST_CASE("a folder that cannot be made is named", "[observe][unit]") {
  auto const folder = observe::Folder{};
  folder.file("run", "not a folder");
  CHECK_THAT(said<BadFile>([&] { TensorBoardRun{folder / "run"}; }), Catch::Contains("cannot be opened for writing"));
}
