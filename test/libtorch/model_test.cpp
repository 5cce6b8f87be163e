// SPDX-License-Identifier: Apache-2.0
//
// Modules of libtorch under the strategies, reduces and transports of all other models.
#include "test/libtorch/nets.hpp"

#ifdef CHORALE_HAVE_LIBTORCH

#include "test/support/folder.hpp"

#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

using namespace chorale;
using nets::difference;
using nets::trained;

namespace {

/// The events of one step of one copy, in order: "backward" is where the gradient passes Marked.
std::vector<std::string> events;

/// The identity, which writes down when backward passes it.
struct Mark : torch::autograd::Function<Mark> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    events.emplace_back("backward");
    return gradients;
  }
};

struct MarkedImpl : torch::nn::Module {
  torch::nn::Linear first{64, 300}, second{300, 300}, third{300, 3};
  MarkedImpl() { register_module("first", first), register_module("second", second), register_module("third", third); }
  torch::Tensor forward(torch::Tensor x) { return third(second(Mark::apply(first(x.flatten(1))))); }
};
TORCH_MODULE(Marked);

struct TiedImpl : torch::nn::Module {
  torch::nn::Linear in{64, 64}, out{64, 3};
  TiedImpl() { register_module("in", in), register_module("again", in), register_module("out", out); }
  torch::Tensor forward(torch::Tensor x) { return out(in(torch::relu(in(x.flatten(1))))); }
};
TORCH_MODULE(Tied);

struct DropsImpl : torch::nn::Module {
  torch::nn::Linear in{64, 64}, out{64, 3};
  torch::nn::Dropout drop{0.5};
  DropsImpl() { register_module("in", in), register_module("drop", drop), register_module("out", out); }
  torch::Tensor forward(torch::Tensor x) { return out(drop(in(x.flatten(1)))); }
};
TORCH_MODULE(Drops);

}  // namespace

TEST_CASE("one replica of a module has the variables of libtorch alone after each step", "[libtorch]") {
  auto const rows = nets::rows();
  auto pure       = nets::Pure<nets::Conv>{};
  auto trainer    = Trainer{nets::model_of<nets::Conv>(), OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{},
                         LocalTransport{}, 3};
  REQUIRE(difference(pure.net, trainer.variables()) == 0);
  for (auto const& batch : nets::batches(rows)) {
    pure.step(batch);
    trainer.fit(data::from_tensors(batch.x, batch.y, 64).batch(8), {.show = Show::nothing});
    CHECK(difference(pure.net, trainer.variables()) < 1e-6);
  }
}

TEST_CASE("replicas of a module learn what one replica learns", "[libtorch]") {
  auto const model = nets::model_of<nets::Conv>();
  auto const one   = trained(model, OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const check = [&](nets::Trained const& got) {
    CHECK(difference(got.values, one.values) < 1e-5);
    CHECK(std::ranges::count(got.hashes, got.hashes[0]) == std::ssize(got.hashes));
  };
  auto const replicas = GENERATE(1, 2, 3);
  check(trained(model, MirroredStrategy{Cpu::logical(replicas)}));
  check(trained(model, MirroredStrategy{Cpu::logical(replicas)}, DirectAllReduce{}));
  check(trained(model, MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, TcpTransport{}));
  check(trained(model, MultiWorkerMirroredStrategy{Cluster::local(replicas)}));
}

TEST_CASE("under Reproducible any number of replicas of a module has the bits of one", "[libtorch][reproducible]") {
  auto const model    = nets::model_of<nets::Conv>();
  auto const one      = trained(model, MirroredStrategy{Cpu::logical(1)}, Reproducible{});
  auto const replicas = GENERATE(2, 3, 4);
  for (auto const hash : trained(model, MirroredStrategy{Cpu::logical(replicas)}, Reproducible{}).hashes)
    CHECK(hash == one.hashes[0]);
}

TEST_CASE("workers of servers learn a module", "[libtorch][servers]") {
  auto const model   = nets::model_of<nets::Conv>();
  auto const one     = trained(model, OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const workers = GENERATE(1, 2);
  auto const got     = trained(model, ParameterServerStrategy{Cluster::local(workers, 1), Synchronous{}});
  CHECK(difference(got.values, one.values) < 1e-5);
}

TEST_CASE("gradients of a module may lie in memory that ranks share", "[libtorch]") {
  auto const model = nets::model_of<nets::Conv>();
  auto const one   = trained(model, OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const got   = trained(model, MirroredStrategy{Cpu::logical(2)}, DirectAllReduce{}, SharedMemoryTransport{});
  CHECK(difference(got.values, one.values) < 1e-5);
}

TEST_CASE("gradients of a module leave before backward has ended", "[libtorch]") {
  auto const rows  = nets::rows(4);
  auto const model = libtorch::model<Batch>([] { return Marked{}; }, nets::loss_of<Marked>, optim::SGD{});
  auto copy        = model.instantiate(Cpu::logical(1)[0], Seed{1});
  auto const batch = nets::batches(rows)[0];
  for (int step = 0; step < 2; ++step) {
    events.clear();
    copy.value_and_gradient(batch, 0, [](std::size_t end) { events.push_back(std::to_string(end)); });
    auto const g   = copy.gradients();
    auto const end = [&](std::size_t i) { return std::to_string(g.plan[i].offset + plan::aligned(g.plan[i].size)); };
    auto const at  = [&](std::string const& event) { return std::ranges::find(events, event) - events.begin(); };
    auto const all = std::ssize(events);
    CHECK(at(std::to_string(plan::header)) == 0);  // the loss, before backward has begun
    CHECK(at(end(4)) < at(end(2)));                // third before second
    CHECK(at(end(2)) < at("backward"));            // and second before backward reaches first
    CHECK(at("backward") < at(end(0)));
    CHECK(at(end(0)) < all);
    CHECK(g.ends[0] <= g.plan[2].offset + plan::aligned(g.plan[2].size));  // so bucket 0 has left meanwhile
  }
}

TEST_CASE("what a rank throws while gradients leave comes out of backward as it was thrown", "[libtorch]") {
  auto const rows = nets::rows(8);
  auto copy       = nets::model_of<nets::Conv>().instantiate(Cpu::logical(1)[0], Seed{1});
  auto calls      = 0;
  auto const lost = [&](std::size_t end) {
    if (end == plan::header) return;
    ++calls;
    throw PeerLost{1, "rank 1 is gone."};
  };
  CHECK_THROWS_AS(copy.value_and_gradient(nets::batches(rows)[0], 0, lost), PeerLost);
  CHECK(calls == 1);
  copy.value_and_gradient(nets::batches(rows)[0], 0, LooksAtEnd{});  // the next step is as any other
  CHECK(copy.gradients().rows() == 8);
}

TEST_CASE("one replica repeats a run of a module with dropout, and another seed is another run", "[libtorch]") {
  auto const model  = libtorch::model<Batch>([] { return Drops{}; }, nets::loss_of<Drops>, nets::rule());
  auto const folder = test::Folder{};
  auto const hash   = [&](std::uint64_t seed) {
    auto trainer = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, seed};
    trainer.load(folder / "first.safetensors");  // the same first values for both seeds
    trainer.fit(nets::data(), {.show = Show::nothing});
    return trainer.hashes()[0];
  };
  auto first = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, 5};
  first.save(folder / "first.safetensors");
  CHECK(hash(5) == hash(5));
  CHECK(hash(5) != hash(6));
}

TEST_CASE("the same seed gives a module the same first values, and leaves libtorch's generator alone", "[libtorch]") {
  auto const model = nets::model_of<nets::Conv>();
  torch::manual_seed(11);
  auto const expected = torch::rand({4});
  torch::manual_seed(11);
  auto a = Trainer{model, MirroredStrategy{Cpu::logical(3)}, RingAllReduce{}, LocalTransport{}, 7};
  auto b = Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 7};
  auto c = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, 8};
  CHECK(torch::equal(torch::rand({4}), expected));
  CHECK(a.hashes() == std::vector<std::uint64_t>(3, b.hashes()[0]));
  CHECK(c.hashes()[0] != a.hashes()[0]);
}

TEST_CASE("a module is evaluated, predicts, is saved, and can be had back", "[libtorch]") {
  auto const folder = test::Folder{};
  auto const rows   = nets::rows();
  auto trainer =
      Trainer{nets::model_of<nets::Norm>(), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 3};
  auto const history = trainer.fit(nets::data(rows), {.epochs = 20, .show = Show::nothing});
  CHECK(history.back().scores.loss() < 0.7 * history.front().scores.loss());
  CHECK(history.back().scores.rows() == 33);
  auto const scores = trainer.evaluate(nets::data(rows));

  auto& net        = trainer.copies()[0].learner().module();
  auto const guard = torch::NoGradGuard{};
  net->eval();
  auto const all    = Batch{.x = rows.x, .y = rows.y, .rows = rows.y.size()};
  auto const wanted = nets::Classify<nets::Norm>{}(net, all);
  CHECK(scores.loss() == Approx(wanted[0].item<float>() / 33).epsilon(1e-5));
  CHECK(scores["accuracy"] == Approx(wanted[1].item<float>() / 33));
  auto const logits    = nets::Classify<nets::Norm>{}.predict(net, all).contiguous();
  auto const predicted = trainer.predict(nets::data(rows));
  REQUIRE(predicted.rows() == 33);
  for (std::size_t r = 0; r < 33; ++r)
    for (std::size_t c = 0; c < 3; ++c)
      CHECK(predicted[r][c] == Approx(logits.data_ptr<float>()[r * 3 + c]).margin(1e-5));

  trainer.save(folder / "w.safetensors");
  auto other = Trainer{nets::model_of<nets::Norm>(), MirroredStrategy{Cpu::logical(3)}};
  other.load(folder / "w.safetensors");
  CHECK(other.hashes()[0] == trainer.hashes()[0]);
  CHECK(torch::equal(other.copies()[2].learner().module()->norm->running_mean, net->norm->running_mean));
}

TEST_CASE("a module that is registered twice has its parameters once", "[libtorch]") {
  auto const model = libtorch::model<Batch>([] { return Tied{}; }, nets::loss_of<Tied>, nets::rule());
  auto const plan  = PlanView{model.plan};
  REQUIRE(plan.variables.size() == 4);
  CHECK(std::string_view{plan.variables[0].name} == "in.weight");
  auto const one = trained(model, OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const two = trained(model, MirroredStrategy{Cpu::logical(2)});
  CHECK(difference(two.values, one.values) < 1e-5);
}

TEST_CASE("libtorch computes on as many threads as the device has", "[libtorch]") {
  auto most       = std::make_shared<std::atomic<int>>(0);
  auto const loss = [most](nets::Conv& net, Batch const& batch) {
    most->store(std::max(most->load(), at::get_num_threads()));
    return nets::loss_of(net, batch);
  };
  auto const model = libtorch::model<Batch>([] { return nets::Conv{}; }, loss, nets::rule());
  trained(model, MirroredStrategy{Cpu::logical(2)});
  CHECK(*most == 1);
  trained(model, OneDeviceStrategy{Cpu::with_threads(3)});
  CHECK(*most == 3);
}

#endif
