// SPDX-License-Identifier: Apache-2.0
//
// Steps that are recorded as a CUDA graph and replayed, beside the same steps launched kernel by kernel.
#include "test/cuda/device.hpp"
#include "test/strategy/batch_norm.hpp"
#include "test/support/folder.hpp"

#include <chorale/device/cuda_stream.hpp>
#include <chorale/tensor/cuda/all.hpp>
#include <chorale/transport/nccl.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

using namespace chorale;
using Catch::Contains;
using test::gpu_or_skip;
using test::through_host;

namespace {

/// y = x, a layer of one's own that counts how often the host comes by, and may wait there.
struct Passed {
  static constexpr std::string_view name = "passed";
  static inline int forwards             = 0;
  static inline bool waits               = false;

  template <class In> static constexpr void check() {}
  template <class In> using apply = nn::SameShape<In>;
  template <class D, class In> struct stage {
    static constexpr bool overwrites = true, keeps_y = false;
    explicit stage(nn::Site<D> const& site) : in{site.in} {}
    typename Kernels<D>::layout in;

    auto out() const { return in; }
    std::size_t workspace() const { return 0; }
    void bind(Ports const&) {}  // not the first layer: x is y, and dx is dy
    void read_from(float const*) {}
    void forward(Pass const&) const {
      ++forwards;
      if (waits) cuda::expect(cudaStreamSynchronize(cuda::queue()), "cudaStreamSynchronize");
    }
    void backward(Pass const&) const {}
  };
};

struct Cnn : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<4, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                            nn::Dense<16>, nn::SyncBatchNorm<>, nn::Tanh, nn::Dropout<30>, Passed, nn::Dense<3>> {};
struct Flat : nn::Sequential<nn::Input<8, 8, 1>, nn::Flatten, nn::Dense<16>, nn::ReLU, nn::Dense<3>> {};
struct Normed
    : nn::Sequential<nn::Input<8, 8, 1>, nn::Flatten, nn::Dense<16>, nn::BatchNorm<>, nn::ReLU, nn::Dense<3>> {};
struct Dropped : nn::Sequential<nn::Input<64>, nn::Dropout<50>, nn::Dense<16>, nn::ReLU, nn::Dense<3>> {};

/// Everything that some steps leave, with batches of 5 and of 3 rows in turn.
template <class Net, class Ready, class Device, class Optimizer = optim::Adam>
std::vector<float> after_steps(Device const& device, Ready ready, int steps, Optimizer const& optimizer = {}) {
  auto const scope = typename Device::Scope{device};
  auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optimizer, metric::Accuracy{});
  auto copy        = model.instantiate(device, 3);
  auto all         = std::vector<float>{};
  for (int step = 0; step < steps; ++step) {
    auto const data = tiny::batch<int>(step % 3 == 2 ? 3 : 5, 64, 1, static_cast<std::uint64_t>(step) + 1);
    auto const loss = copy.value_and_gradient(data.view(), 0, ready, Together{});
    auto const g    = copy.gradients().values;
    all.push_back(loss.value);
    all.insert(all.end(), g.begin(), g.end());
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
    auto sums = std::array<float, plan::header>{};
    copy.evaluate(data.view(), sums);
    all.insert(all.end(), sums.begin(), sums.end());
  }
  auto const values = copy.net.variables().values;
  all.insert(all.end(), values.begin(), values.end());
  return all;
}

/// Whoever looks at each step has it complete.
struct Looks {
  int steps = 0;
  void on_step_end(auto&, StepEnd const&) { ++steps; }
};

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("a graph runs what was recorded, as often as it is launched, and not before", "[device][cuda]") {
  auto const gpu = gpu_or_skip("a graph runs what was recorded, as often as it is launched, and not before");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto const block = gpu->allocate(4 * sizeof(float));
  auto const x     = Span<float>{reinterpret_cast<float*>(block.data()), 4};
  auto graph       = cuda::Graph{};
  CHECK_FALSE(graph);
  graph.record(cuda::queue(), [&] {
    cuda::expect(cuda::launch::activate(Activation::softplus, 0, 4, {x.data()}, {x.data()}, cuda::queue()), "activate");
  });
  gpu->synchronize();
  CHECK(graph);
  CHECK(graph.nodes() == 1);
  CHECK(x[3] == 0);
  for (int i = 0; i < 2; ++i) graph.launch(cuda::queue());
  gpu->synchronize();
  CHECK(x[3] == Approx(std::log1p(std::exp(std::log(2.0)))));  // softplus(softplus(0))
}

TEST_CASE("what cannot be recorded is refused, and the queue is of use afterwards", "[device][cuda]") {
  auto const gpu = gpu_or_skip("what cannot be recorded is refused, and the queue is of use afterwards");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto graph       = cuda::Graph{};
  auto room        = cuda::Room{};
  CHECK_THROWS_AS(graph.record(cuda::queue(), [&] { room.take(64); }), Error);
  CHECK_THROWS_AS(
      graph.record(cuda::queue(), [] { cuda::expect(cudaStreamSynchronize(cuda::queue()), "cudaStreamSynchronize"); }),
      Error);
  CHECK_THROWS_WITH(graph.record(cuda::queue(), [] { static_cast<void>(cudaStreamSynchronize(cuda::queue())); }),
                    Contains("cudaStreamEndCapture"));
  CHECK_FALSE(graph);
  CHECK_NOTHROW(room.take(64));
  CHECK_NOTHROW(gpu->synchronize());
}

TEST_CASE("a replayed step leaves the bits of a launched one", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("a replayed step leaves the bits of a launched one");
  if (!gpu) return;
  auto const in_between = [](std::size_t) {};  // it might look in between
  auto const check      = [&]<class Net>(Net) {
    auto const launched = after_steps<Net>(*gpu, in_between, 9);
    CHECK(same_bits(after_steps<Net>(*gpu, LooksAtEnd{}, 9), launched));
    CHECK(same_bits(after_steps<Net>(gpu->replaying(), LooksAtEnd{}, 9), launched));
    CHECK(same_bits(after_steps<Net>(gpu->replaying(), in_between, 9), launched));
  };
  check(Cnn{}), check(Flat{}), check(Dropped{});
  auto const scaled = optim::LossScaled{optim::Adam{}, 1'024, 2};  // another scale: recorded anew
  CHECK(same_bits(after_steps<Flat>(gpu->replaying(), LooksAtEnd{}, 9, scaled),
                  after_steps<Flat>(*gpu, in_between, 9, scaled)));
}

TEST_CASE("a replayed step of a network that keeps halves leaves the bits of a launched one", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("a replayed step of a network that keeps halves leaves the bits of a launched one");
  if (!gpu) return;
  auto const scaled = optim::LossScaled{optim::Adam{}, 1'024, 2};  // doubles every other step
  using Bf16        = nn::WithPrecision<Cnn, nn::Precision<bf16>>;
  using Fp16        = nn::WithPrecision<Cnn, nn::Precision<fp16>>;
  CHECK(same_bits(after_steps<Bf16>(gpu->replaying(), LooksAtEnd{}, 9), after_steps<Bf16>(*gpu, LooksAtEnd{}, 9)));
  CHECK(same_bits(after_steps<Fp16>(gpu->replaying(), LooksAtEnd{}, 9, scaled),
                  after_steps<Fp16>(*gpu, LooksAtEnd{}, 9, scaled)));
  CHECK_FALSE(same_bits(after_steps<Bf16>(*gpu, LooksAtEnd{}, 9), after_steps<Cnn>(*gpu, LooksAtEnd{}, 9)));
}

TEST_CASE("an update that is queued behind backward leaves the bits of one that the host begins", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("an update that is queued behind backward leaves the bits of one that the host begins");
  if (!gpu) return;
  auto const after = [](auto const& device, auto at_end, auto const& optimizer, NonFinite on_non_finite) {
    auto const scope             = Cuda::Scope{device};
    auto const model             = nn::compile<Normed>(loss::SparseCrossEntropy{}, optimizer, metric::Accuracy{});
    auto copy                    = model.instantiate(device, 3);
    copy.optimizer.on_non_finite = on_non_finite;
    auto all                     = std::vector<float>{};
    for (int step = 0; step < 9; ++step) {
      auto data = tiny::batch<int>(step % 3 == 2 ? 3 : 5, 64, 1, static_cast<std::uint64_t>(step) + 1);
      if (step % 4 == 3) data.x[70] = std::numeric_limits<float>::quiet_NaN();
      auto const before = copy.hash();
      auto const loss   = copy.value_and_gradient(data.view(), 0, at_end, Together{});
      auto const queued = copy.hash() != before;
      CHECK(queued == (std::is_same_v<decltype(at_end), UpdatesAtEnd> && step % 4 != 3));
      copy.optimizer.apply(copy.net.variables(), copy.gradients());
      all.insert(all.end(), {loss.value, static_cast<float>(copy.optimizer.skipped)});
    }
    CHECK(copy.optimizer.skipped == 2);
    CHECK(copy.optimizer.now.step == 9);
    for (auto const values : {copy.net.variables().values, copy.optimizer.slots()})
      all.insert(all.end(), values.begin(), values.end());
    return all;
  };
  auto const check = [&](auto const& optimizer, NonFinite on_non_finite = NonFinite::skip) {
    auto const begun = after(*gpu, LooksAtEnd{}, optimizer, on_non_finite);
    CHECK(same_bits(after(*gpu, UpdatesAtEnd{}, optimizer, on_non_finite), begun));
    CHECK(same_bits(after(gpu->replaying(), UpdatesAtEnd{}, optimizer, on_non_finite), begun));
  };
  check(optim::SGD{}), check(optim::SGD{.momentum = 0.9F}), check(optim::Adam{}), check(optim::AdamW{});
}

TEST_CASE("an update that is the host's decision waits for it", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("an update that is the host's decision waits for it");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto const data  = tiny::batch<int>(5, 64, 1);
  auto const check = [&](auto const& optimizer, auto at_end, NonFinite on_non_finite = NonFinite::stop) {
    auto copy                    = nn::compile<Flat>(loss::SparseCrossEntropy{}, optimizer).instantiate(*gpu, 3);
    copy.optimizer.on_non_finite = on_non_finite;
    auto const before            = copy.hash();
    copy.value_and_gradient(data.view(), 0, at_end, Together{});
    CHECK(copy.hash() == before);
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
    CHECK(copy.hash() != before);
  };
  check(optim::SGD{}, LooksAtEnd{});
  check(optim::SGD{.global_clipnorm = 1}, UpdatesAtEnd{});                   // by how much is its gradients' norm
  check(optim::LossScaled{optim::SGD{}}, UpdatesAtEnd{}, NonFinite::allow);  // an overflow is left out, NaN is not
}

TEST_CASE("an update that was queued and not applied is none of the next gradients'", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("an update that was queued and not applied is none of the next gradients'");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto const data  = tiny::batch<int>(5, 64, 1);
  auto copy        = nn::compile<Flat>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(*gpu, 3);
  copy.value_and_gradient(data.view(), 0, UpdatesAtEnd{}, Together{});
  auto const queued = copy.hash();
  copy.value_and_gradient(data.view(), 0, LooksAtEnd{}, Together{});
  CHECK(copy.hash() == queued);
  copy.optimizer.apply(copy.net.variables(), copy.gradients());
  CHECK(copy.hash() != queued);
}

TEST_CASE("steps of a host that runs ahead leave the bits of those it waits for", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("steps of a host that runs ahead leave the bits of those it waits for");
  if (!gpu) return;
  auto const after = [](auto const& device, bool ahead, auto const& optimizer, NonFinite on_non_finite) {
    auto const scope             = Cuda::Scope{device};
    auto const model             = nn::compile<Normed>(loss::SparseCrossEntropy{}, optimizer, metric::Accuracy{});
    auto copy                    = model.instantiate(device, 3);
    auto all                     = std::vector<float>{};
    copy.optimizer.on_non_finite = on_non_finite;
    auto const keep              = [&](auto const& header) { all.insert(all.end(), header.begin(), header.end()); };
    for (int step = 0; step < 12; ++step) {
      auto data = tiny::batch<int>(step % 6 == 4 ? 3 : 5, 64, 1, static_cast<std::uint64_t>(step) + 1);
      if (step == 7 && on_non_finite == NonFinite::skip) data.x[70] = std::numeric_limits<float>::infinity();
      if (ahead) {
        if (auto const before = copy.step_ahead(data.view())) keep(*before);
        std::ranges::fill(data.x, -1.0F);  // its memory is another batch's now
      } else {
        copy.value_and_gradient(data.view(), 0, LooksAtEnd{}, Together{});
        keep(copy.gradients().header().all());
        copy.optimizer.apply(copy.net.variables(), copy.gradients());
      }
    }
    if (auto const last = copy.finish_ahead()) keep(*last);
    CHECK_FALSE(copy.finish_ahead());
    CHECK(copy.optimizer.skipped == (on_non_finite == NonFinite::skip ? 1 : 0));
    CHECK(copy.optimizer.now.step == 12);
    for (auto const values : {copy.net.variables().values, copy.optimizer.slots()}) keep(values);
    return all;
  };
  for (auto const on_non_finite : {NonFinite::stop, NonFinite::skip, NonFinite::allow}) {
    auto const waited = after(*gpu, false, optim::Adam{}, on_non_finite);
    CHECK(same_bits(after(*gpu, true, optim::Adam{}, on_non_finite), waited));
    CHECK(same_bits(after(gpu->replaying(), true, optim::Adam{}, on_non_finite), waited));
  }
}

TEST_CASE("a host that runs ahead is told of a NaN a step late, and nothing has changed since", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("a host that runs ahead is told of a NaN a step late, and nothing has changed since");
  if (!gpu) return;
  for (auto const& device : {*gpu, gpu->replaying()})
    for (int const bad : {0, 1, 4}) {
      auto const scope = Cuda::Scope{device};
      auto copy        = nn::compile<Normed>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(device, 3);
      REQUIRE(copy.may_run_ahead());
      auto const batch = [&](int step) {
        auto data = tiny::batch<int>(5, 64, 1, static_cast<std::uint64_t>(step) + 1);
        if (step == bad) data.x[70] = std::numeric_limits<float>::quiet_NaN();
        return data;
      };
      for (int step = 0; step < bad; ++step) copy.step_ahead(batch(step).view());
      copy.finish_ahead();
      auto const before = copy.hash();
      CHECK_FALSE(copy.step_ahead(batch(bad).view()));
      CHECK_THROWS_WITH(copy.step_ahead(batch(bad + 1).view()), Contains("step " + std::to_string(bad) + " "));
      CHECK_FALSE(copy.finish_ahead());
      CHECK(copy.hash() == before);
      CHECK(copy.optimizer.now.step == bad);
      copy.step_ahead(batch(bad + 1).view());  // its caller knows what to do about it
      CHECK(copy.finish_ahead());
      CHECK(copy.hash() != before);
    }
}

TEST_CASE("a Trainer that runs ahead has the bits and totals of one that is looked at", "[trainer][cuda]") {
  auto const gpu = gpu_or_skip("a Trainer that runs ahead has the bits and totals of one that is looked at");
  if (!gpu) return;
  auto const fit = [&](bool ahead, NonFinite on_non_finite, bool bad) {
    auto trainer = norm::learner<norm::LocalNet>(OneDeviceStrategy{*gpu}, RingAllReduce{}, through_host());
    auto data    = norm::uneven();
    if (bad) data.rows.x[7] = std::numeric_limits<float>::quiet_NaN();
    auto looks            = Looks{};
    auto options          = norm::watched;
    options.on_non_finite = on_non_finite;
    auto said             = std::string{};
    auto all              = std::vector<double>{};
    try {
      auto const history = ahead ? trainer.fit(data, options) : trainer.fit(data, options, looks);
      for (auto const& epoch : history)
        all.insert(all.end(), {epoch.scores.loss(), static_cast<double>(epoch.scores.rows()),
                               static_cast<double>(epoch.steps), static_cast<double>(epoch.skipped)});
    } catch (NumericFault const& fault) { said = fault.what(); }
    CHECK((ahead || !said.empty()) == (looks.steps == 0));
    CHECK(ahead == (trainer.copies()[0].gradients().rows() == 0));  // its sums are elsewhere
    all.push_back(static_cast<double>(trainer.step()));
    return std::tuple{trainer.hashes(), all, said};
  };
  for (bool const bad : {false, true}) {
    CHECK(fit(true, NonFinite::stop, bad) == fit(false, NonFinite::stop, bad));
    CHECK(fit(true, NonFinite::skip, bad) == fit(false, NonFinite::skip, bad));
  }
}

TEST_CASE("a Trainer that runs ahead has nothing under way when it ends early, and goes on from there",
          "[trainer][cuda]") {
  auto const gpu =
      gpu_or_skip("a Trainer that runs ahead has nothing under way when it ends early, and goes on from ..");
  if (!gpu) return;
  auto const make = [&] {
    return norm::learner<norm::LocalNet>(OneDeviceStrategy{*gpu}, RingAllReduce{}, through_host());
  };
  auto const after = [&](std::size_t steps) {
    auto one                = make();
    auto options            = norm::watched;
    options.steps_per_epoch = steps;
    one.fit(norm::uneven(), options);
    return one.hashes();
  };
  auto bad           = norm::uneven();
  bad.rows.y[31 + 5] = 3;  // of the fourth batch; there are 3 classes
  auto stopped       = make();
  CHECK_THROWS_AS(stopped.fit(bad, norm::watched), BadArgument);
  CHECK(stopped.step() == 3);
  CHECK(stopped.hashes() == after(3));

  auto const folder          = test::Folder{};
  auto asked                 = std::atomic<bool>{true};
  auto options               = norm::watched;
  options.checkpoints.folder = folder.path;
  options.asked_to_end       = &asked;
  auto ended                 = make();
  CHECK_THROWS_AS(ended.fit(norm::uneven(), options), Preempted);
  CHECK(ended.hashes() == after(static_cast<std::size_t>(ended.step())));
  asked   = false;
  auto on = make();
  CHECK(on.fit(norm::uneven(), options).at(0).scores.rows() == 234);  // those before the checkpoint, too
  CHECK(on.hashes() == after(18));
}

TEST_CASE("the host comes by in the first two steps of a number of rows", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("the host comes by in the first two steps of a number of rows");
  if (!gpu) return;
  auto const forwards = [&](Cuda const& device) {
    Passed::forwards = 0;
    after_steps<Cnn>(device, LooksAtEnd{}, 9);
    return Passed::forwards;
  };
  CHECK(forwards(*gpu) == 9 + 9);                  // steps, and as many evaluations
  CHECK(forwards(gpu->replaying()) == 2 * 2 + 9);  // 5 rows, and 3
}

TEST_CASE("a replayed step finds the NaN that a launched one finds", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("a replayed step finds the NaN that a launched one finds");
  if (!gpu) return;
  for (auto const& device : {*gpu, gpu->replaying()}) {
    auto const scope = Cuda::Scope{device};
    auto copy        = nn::compile<Flat>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(device, 3);
    auto good = tiny::batch<int>(4, 64, 1), bad = good;
    bad.x[70]       = std::numeric_limits<float>::quiet_NaN();
    auto const step = [&](auto const& data) {
      copy.value_and_gradient(data.view(), 0, LooksAtEnd{}, Together{});
      copy.optimizer.apply(copy.net.variables(), copy.gradients());
    };
    copy.optimizer.on_non_finite = NonFinite::skip;
    for (int i = 0; i < 3; ++i) step(good);
    auto const before = copy.hash();
    step(bad);
    CHECK(copy.hash() == before);
    CHECK(copy.optimizer.skipped == 1);
    CHECK(copy.gradients().trailer().faults() == 1);
    auto const which = static_cast<std::size_t>(copy.gradients().trailer().variable());
    CHECK(std::string_view{Flat::plan.variables[which].name} == "dense_1/kernel");  // backward comes there first
    copy.optimizer.on_non_finite = NonFinite::stop;
    CHECK_THROWS_AS(step(bad), NumericFault);
    CHECK(copy.hash() == before);
    step(good);
    CHECK(copy.gradients().trailer().faults() == 0);
    copy.optimizer.on_non_finite = NonFinite::allow;  // nobody looks: recorded anew
    for (int i = 0; i < 3; ++i) step(bad);
    CHECK(copy.gradients().trailer().faults() == 0);
    CHECK(copy.optimizer.skipped == 1);
  }
}

TEST_CASE("a label that is none is found before a replayed step", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("a label that is none is found before a replayed step");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto copy        = nn::compile<Flat>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(gpu->replaying(), 3);
  auto data        = tiny::batch<int>(4, 64, 1);
  for (int i = 0; i < 3; ++i) copy.value_and_gradient(data.view(), 0, LooksAtEnd{});
  data.y[2] = 3;
  CHECK_THROWS_WITH(copy.value_and_gradient(data.view(), 0, LooksAtEnd{}), Contains("row 2 of the batch has label 3"));
}

TEST_CASE("a layer that waits in the middle of a step cannot be replayed, and says so", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("a layer that waits in the middle of a step cannot be replayed, and says so");
  if (!gpu) return;
  Passed::waits = true;
  CHECK_NOTHROW(after_steps<Cnn>(*gpu, LooksAtEnd{}, 3));
  CHECK_THROWS_WITH(after_steps<Cnn>(gpu->replaying(), LooksAtEnd{}, 3), Contains("cudaErrorStreamCapture"));
  Passed::waits = false;
}

TEST_CASE("a Trainer whose GPU replays has the bits of one whose GPU launches", "[trainer][cuda]") {
  auto const gpu = gpu_or_skip("a Trainer whose GPU replays has the bits of one whose GPU launches");
  if (!gpu) return;
  auto const hash = [](auto strategy, auto reduce, auto transport) {
    auto trainer = norm::learner<norm::LocalNet>(std::move(strategy), reduce, std::move(transport));
    trainer.fit(norm::uneven(), norm::watched);
    return trainer.hashes().at(0);
  };
  auto const replaying = gpu->replaying();
  CHECK(hash(OneDeviceStrategy{replaying}, RingAllReduce{}, through_host()) ==
        hash(OneDeviceStrategy{*gpu}, RingAllReduce{}, through_host()));
  CHECK(hash(MirroredStrategy{std::vector{replaying, replaying}}, RingAllReduce{}, through_host()) ==
        hash(MirroredStrategy{std::vector{*gpu, *gpu}}, RingAllReduce{}, through_host()));
  CHECK(hash(OneDeviceStrategy{replaying}, NativeAllReduce{}, NcclTransport<>{.devices = {*gpu}}) ==
        hash(OneDeviceStrategy{*gpu}, RingAllReduce{}, through_host()));
}

TEST_CASE("replicas that normalize together cannot replay their steps, and say so", "[strategy][cuda]") {
  auto const gpu = gpu_or_skip("replicas that normalize together cannot replay their steps, and say so");
  if (!gpu) return;
  auto const replaying = gpu->replaying();
  auto two = norm::learner<norm::SyncNet>(MirroredStrategy{std::vector{replaying, replaying}}, RingAllReduce{},
                                          through_host());
  CHECK_THROWS_WITH(two.fit(norm::uneven(), norm::watched), Contains("Cuda without replaying()"));
}
