// SPDX-License-Identifier: Apache-2.0
//
// The run of TensorFlow's guide to MultiWorkerMirroredStrategy: two processes of one host, a global batch of 64 each, SGD
// of 0.001, 3 epochs of 5 steps, and TF_CONFIG as it stands there but for the ports.
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/cluster/from_env.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <cstdlib>

using namespace chorale;
using chorale::test::Processes;
using chorale::test::Voice;

namespace {

std::string tf_config(std::vector<std::string> const& at, int index) {
  auto const address = [&](std::size_t i) { return "\"localhost:" + at[i].substr(at[i].rfind(':') + 1) + "\""; };
  return "{\"cluster\": {\"worker\": [" + address(0) + ", " + address(1) +
         "]}, \"task\": {\"type\": \"worker\", "
         "\"index\": " +
         std::to_string(index) + "} }";
}

auto train(auto strategy, auto transport) {
  auto const digits = data::digits(2'000, 1).map(data::scale).shuffle(10'000, 1);  // made after the strategy, or before
  auto const batch  = LocalBatch{64} * strategy.num_replicas();
  auto model =
      nn::compile<tiny::LeNet>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.001F}, metric::Accuracy{});
  auto trainer       = Trainer{model, strategy, RingAllReduce{}, transport, 1};
  auto const history = trainer.fit(digits.batch(batch), {.epochs = 3, .show = Show::nothing, .steps_per_epoch = 5});
  auto const body    = trainer.copies()[0].net.variables().body();
  return std::pair{history, std::vector<float>{body.begin(), body.end()}};
}

}  // namespace

TEST_CASE("the two processes of the guide train as two replicas of one process do", "[strategy][processes]") {
  auto const addresses = free_loopback_addresses(2);
  auto processes =
      Processes{2, [&](int me, Voice voice) {
                  ::setenv("TF_CONFIG", tf_config(addresses, me).c_str(), 1);
                  auto const strategy          = MultiWorkerMirroredStrategy{Cluster::from_env(), Cpu::logical(1)};
                  auto const [history, values] = train(strategy, TcpTransport{});
                  voice.say(std::to_string(strategy.num_replicas()) + " " + std::to_string(history.size()) + " " +
                            std::to_string(history[2].steps) + " " + std::to_string(history[0].scores.rows()) + " " +
                            std::to_string(hash_of(values)));
                }};
  auto const [history, values] = train(MirroredStrategy{Cpu::logical(2)}, LocalTransport{});
  auto const expected          = "2 3 5 640 " + std::to_string(hash_of(values));
  CHECK(processes.line(0) == expected);
  CHECK(processes.line(1) == expected);
  CHECK(processes.exit(0) == 0);
  CHECK(processes.exit(1) == 0);
}
