// SPDX-License-Identifier: Apache-2.0
//
// Ranks that know only where rank 0 is tell each other where they are.
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tcp_meeting_test {

using namespace chorale;
using namespace std::chrono_literals;
using chorale::test::Processes;
using chorale::test::Voice;

namespace {

/// As group(), of ranks whose ports nobody has chosen, with addresses where `known`.
Group unchosen(std::string const& at, bool known, int ranks, int process) {
  auto meeting    = RendezvousInfo{.spare_ports = 15, .job = "meeting"};
  auto const port = at.rfind(':') + 1;
  if (!known) meeting.meets_at = at;
  for (int rank = 0; known && rank < ranks; ++rank)
    meeting.addresses.push_back(at.substr(0, port) + std::to_string(std::stoi(at.substr(port)) + rank));
  return {ranks, {process}, std::move(meeting)};
}

Secret secret(std::string_view text = "sixteen bytes, at least") {
  return Secret{std::as_bytes(Span<char const>{text})};
}

TcpTransport transport(std::chrono::nanoseconds join = 20s) {
  return {.timeouts = {.join = join}, .secret = secret(), .log = [](std::string const&) {}};
}

/// A group of `ranks`, of which a process has `each`.
Group group(std::string const& meets_at, int ranks, int process, int each = 1) {
  auto local = std::vector<Rank>{};
  for (int i = 0; i < each; ++i) local.push_back(process * each + i);
  return {ranks, std::move(local), {.meets_at = meets_at, .job = "meeting", .ranks_per_process = each}};
}

/// What connect() throws.
std::string wrong(TcpTransport const& how, Group const& who) {
  try {
    how.connect(who);
    return "it connected";
  } catch (Error const& error) { return error.what(); }
}

/// A port, and `n` after it, that nobody listened on a moment ago.
std::string free_ports(int n) {
  for (int port = 20'000 + ::getpid() % 10'000;; port += n + 1) {
    auto all_free = true;
    for (int i = 0; i <= n && all_free; ++i) {
      auto at            = sockaddr_in{};
      at.sin_family      = AF_INET;
      at.sin_port        = htons(static_cast<std::uint16_t>(port + i));
      at.sin_addr.s_addr = htonl(INADDR_ANY);
      auto const tried   = FileDescriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      all_free           = ::bind(tried.number(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
    }
    if (all_free) return "127.0.0.1:" + std::to_string(port);
  }
}

boost::asio::ip::address ip(char const* text) { return boost::asio::ip::make_address(text); }

}  // namespace

TEST_CASE("hosts are what the first of a meeting sees, its own what the others see", "[transport][meeting]") {
  using Hosts = std::vector<std::string>;
  using tcp::hosts_of;
  CHECK(hosts_of({{ip("10.0.0.8"), ip("10.0.0.7")}}) == Hosts{"10.0.0.7", "10.0.0.8"});
  // Two on the first one's host, which /etc/hosts there calls 127.0.1.1: the others must not hear of that.
  CHECK(hosts_of(
            {{ip("127.0.0.1"), ip("127.0.1.1")}, {ip("10.0.0.8"), ip("10.0.0.7")}, {ip("10.0.0.7"), ip("10.0.0.7")}}) ==
        Hosts{"10.0.0.7", "10.0.0.7", "10.0.0.8", "10.0.0.7"});
  CHECK(hosts_of({{ip("::ffff:10.0.0.8"), ip("::ffff:10.0.0.7")}}) == Hosts{"10.0.0.7", "10.0.0.8"});
  CHECK(hosts_of({{ip("fd00::8"), ip("fd00::7")}, {ip("::1"), ip("::1")}}) == Hosts{"fd00::7", "fd00::8", "fd00::7"});
  CHECK(hosts_of({{ip("127.0.0.1"), ip("127.0.0.1")}}) == Hosts{"127.0.0.1", "127.0.0.1"});
}

TEST_CASE("ranks that know where the first one is meet there and reduce", "[transport][meeting][processes]") {
  auto const [members, each] = GENERATE(table<int, int>({{2, 1}, {3, 1}, {5, 1}, {2, 3}}));
  auto const ranks           = members * each;
  auto const at              = free_ports(ranks);
  auto all                   = Processes{members,
                       [&, members = members, each = each](int me, Voice voice) {
                         if (me == 0) std::this_thread::sleep_for(100ms);  // the others call before it listens
                         auto endpoints = transport().connect(group(at, ranks, me, each));
                         auto sums      = std::vector<float>(endpoints.size());
                         auto threads   = std::vector<std::thread>{};
                         for (std::size_t i = 0; i < endpoints.size(); ++i)
                           threads.emplace_back([&, i] {
                             sums[i] = static_cast<float>(endpoints[i].rank() + 1);
                             RingAllReduce{}.all_reduce(endpoints[i], Span<float>{&sums[i], 1}, Op::sum);
                           });
                         for (auto& thread : threads) thread.join();
                         for (float const sum : sums)
                           if (sum != static_cast<float>(ranks * (ranks + 1) / 2)) return voice.say("another sum");
                         voice.say("all " + std::to_string(members));
                       },
                       60};
  for (int i = 0; i < members; ++i) {
    CHECK(all.line(i) == "all " + std::to_string(members));
    CHECK(all.exit(i) == 0);
  }
}

TEST_CASE("where a stranger has a port that nobody has chosen, ranks take the next free ones",
          "[transport][meeting][processes]") {
  auto const taken      = GENERATE(0, 1, 2);  // of rank 0, of rank 1, of the rendezvous
  auto const known      = GENERATE(true, false);
  auto const at         = free_ports(20);
  auto place            = sockaddr_in{};
  place.sin_family      = AF_INET;
  place.sin_port        = htons(static_cast<std::uint16_t>(TcpAddress::parse(at).port + taken));
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto const stranger   = FileDescriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  REQUIRE(::bind(stranger.number(), reinterpret_cast<sockaddr*>(&place), sizeof place) == 0);
  REQUIRE(::listen(stranger.number(), 4) == 0);  // it never answers
  auto all = Processes{2,
                       [&](int me, Voice voice) {
                         auto endpoints = transport().connect(unchosen(at, known, 2, me));
                         auto sum       = static_cast<float>(me + 1);
                         RingAllReduce{}.all_reduce(endpoints[0], Span<float>{&sum, 1}, Op::sum);
                         voice.say(sum == 3 ? "all" : "another sum");
                       },
                       60};
  INFO("port " << taken << (known ? ", addresses are known" : ""));
  for (int i = 0; i < 2; ++i) {
    CHECK(all.line(i) == "all");
    CHECK(all.exit(i) == 0);
  }
}

TEST_CASE("a meeting without all names who is missing, on both sides", "[transport][meeting][processes]") {
  auto const at    = free_ports(4);
  auto all         = Processes{2,
                       [&](int me, Voice voice) {  // members 0 and 2 of 4
                         voice.say(wrong(transport(me == 0 ? 1s : 10s), group(at, 4, 2 * me)));
                       },
                       60};
  auto const first = all.line(0), third = all.line(1);
  CHECK_THAT(first,
             Catch::Contains("2 of 4 members did not come: 1, 3, to the rendezvous of 4 processes at 127.0.0.1:") &&
                 Catch::Contains("within 1 s"));
  CHECK_THAT(third, Catch::Contains("2 of 4 members did not come: 1, 3") &&
                        Catch::Contains("the rendezvous of 4 processes at"));
  try {
    transport(100ms).connect(group(at, 4, 0, 2));
    FAIL("it connected");
  } catch (PeerLost const& error) {
    CHECK(error.rank() == 2);  // the first of member 1
  }
  auto const nobody = wrong(transport(300ms), group(at, 4, 1));
  CHECK_THAT(nobody, Catch::Contains("waited for rank 0: Connection refused"));
}

TEST_CASE("who has another secret, job or number of ranks does not meet", "[transport][meeting][processes]") {
  auto const at = free_ports(3);
  auto all      = Processes{4,
                       [&](int me, Voice voice) {
                         auto how = transport(3s);
                         auto who = group(at, 2, me > 0 ? 1 : 0);
                         if (me == 1) how.secret = secret("another one, as long");
                         if (me == 2) who = Group{2, {1}, {.meets_at = at, .job = "another"}};
                         if (me == 3)
                           who = group("127.0.0.1:" + std::to_string(TcpAddress::parse(at).port - 1), 3,
                                            1);  // meets there, too
                         voice.say(wrong(how, who));
                       },
                       60};
  CHECK_THAT(all.line(0), Catch::Contains("1 of 2 members did not come: 1"));
  CHECK_THAT(all.line(1), Catch::Contains("no secret in common"));
  CHECK_THAT(all.line(2), Catch::Contains("is of job another, and rank 0 of job meeting"));
  CHECK_THAT(all.line(3), Catch::Contains("has a world of 3, and rank 0 one of 2"));
}

TEST_CASE("a meeting that others could come to needs a secret", "[transport][meeting]") {
  auto how   = transport(1s);
  how.secret = std::nullopt;
  CHECK_THAT(wrong(how, group("0.0.0.0:29500", 2, 0)), Catch::Contains("can be reached from other hosts"));
  CHECK_THAT(wrong(transport(), group("127.0.0.1:65534", 2, 0)), Catch::Contains("up to 65535"));
  CHECK_THAT(wrong(transport(), Group{2, {0}, {.no_addresses = "MPI: nobody knows."}}),
             Catch::Contains("nobody knows."));
}

TEST_CASE("strangers at a meeting change nothing", "[transport][meeting][processes]") {
  auto const at     = free_ports(2);
  auto const meet   = TcpAddress{"127.0.0.1", static_cast<std::uint16_t>(TcpAddress::parse(at).port + 2)};
  auto const folder = chorale::test::Folder{};  // a file in it says what has happened
  auto const tell   = [&](char const* what) { std::ofstream{folder / what}; };
  auto const wait   = [&](char const* what) {
    while (!std::filesystem::exists(folder / what)) std::this_thread::sleep_for(1ms);
  };
  auto all = Processes{
      3,
      [&](int me, Voice voice) {
        if (me == 2) {  // 100 strangers: more than may wait
          auto sockets = std::vector<FileDescriptor>{};
          for (int i = 0; i < 100; ++i) {
            auto to            = sockaddr_in{};
            to.sin_family      = AF_INET;
            to.sin_port        = htons(meet.port);
            to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            auto& one          = sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            while (::connect(one.number(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)  // until rank 0 listens
              std::this_thread::sleep_for(1ms);
            if (i % 2 == 0) [[maybe_unused]]
              auto const n = ::send(one.number(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL);
          }
          voice.say("called");
          tell("called");
          return wait("met");
        }
        if (me == 1) wait("called");  // so that rank 0 listens until then
        transport().connect(group(at, 2, me));
        if (me == 1) tell("met");
        voice.say("met");
      },
      60};
  CHECK(all.line(2) == "called");
  CHECK(all.line(0) == "met");
  CHECK(all.line(1) == "met");
}

}  // namespace tcp_meeting_test
