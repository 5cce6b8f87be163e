// SPDX-License-Identifier: Apache-2.0
//
// Gradients leave a replica while its backward pass still computes. A layer in the middle of the network looks at how
// many bytes its own thread has sent by then, so that no clock is needed.
#include "test/support/reference.hpp"

#include <chorale/transport/common/forwarding_endpoint.hpp>

#include <catch2/catch.hpp>

#include <barrier>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace overlap {

using namespace chorale;
using tiny::quietly;

constexpr int replicas = 2;

/// Bytes that the calling thread, which computes one replica, has given to its endpoint so far.
inline thread_local std::size_t given = 0;

/// An endpoint that adds what it sends or exposes to `given`.
template <Endpoint E> class NotingEndpoint : public ForwardingEndpoint<E> {
 public:
  using pending = typename E::pending;
  using ForwardingEndpoint<E>::ForwardingEndpoint;

  pending send(Rank peer, Tag tag, ConstBytes out) {
    given += out.size();
    return this->at_.send(peer, tag, out);
  }
  pending expose(Tag tag, Bytes mine) requires DirectAccessEndpoint<E> {
    given += mine.size();
    return this->at_.expose(tag, mine);
  }
};

struct Noting {
  using endpoint = NotingEndpoint<LocalEndpoint>;

  static constexpr bool reaches(Memory memory) { return LocalTransport::reaches(memory); }

  std::vector<endpoint> connect(Group const& group) const {
    auto all = std::vector<endpoint>{};
    for (auto& at : LocalTransport{}.connect(group)) all.emplace_back(std::move(at));
    return all;
  }
};

/// What the backward passes of all replicas found: bytes sent since their forward pass, one entry a step and replica.
class Notes {
 public:
  void add(std::size_t bytes) {
    auto const lock = std::lock_guard{mutex_};
    all_.push_back(bytes);
  }
  std::vector<std::size_t> take() {
    auto const lock = std::lock_guard{mutex_};
    return std::exchange(all_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::size_t> all_;
};
inline Notes notes;

/// ReLU. Its backward pass runs after that of the dense layers above and before that of the convolution below; it notes
/// what has left by then, and waits for the other replica to come as far.
struct NotingReLU : nn::ReLU {
  template <class D, class In> struct stage : nn::ReLU::stage<D, In> {
    using Base = nn::ReLU::stage<D, In>;
    explicit stage(nn::Site<D> const& site) : Base{site} {}

    void forward(Pass const& pass) {
      before_ = given;
      Base::forward(pass);
    }
    void backward(Pass const& pass) {
      notes.add(given - before_);
      static auto all = std::barrier{replicas};
      all.arrive_and_wait();
      Base::backward(pass);
    }

   private:
    std::size_t before_ = 0;
  };
};

/// The dense layers fill the first bucket. Backward goes from each NotingReLU to a convolution, after which a replica
/// looks after its buckets: `looks` times after both replicas have begun the first one. Each look moves a ring of two
/// at least one step on: a message was taken, is added, is sent on.
constexpr std::size_t looks = 6;
struct Net : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<4, 3, nn::Same>, NotingReLU, nn::Conv2D<4, 3, nn::Same>,
                            NotingReLU, nn::Conv2D<4, 3, nn::Same>, NotingReLU, nn::Conv2D<4, 3, nn::Same>, NotingReLU,
                            nn::Conv2D<4, 3, nn::Same>, NotingReLU, nn::Conv2D<4, 3, nn::Same>, NotingReLU, nn::Flatten,
                            nn::Dense<256>, nn::ReLU, nn::Dense<10>> {};

constexpr std::size_t steps        = 6;
constexpr std::size_t noted        = steps * replicas * looks;
constexpr std::size_t first_bucket = Net::plan.bucket_ends[0] * sizeof(float);
static_assert(Net::plan.buckets == 2 && first_bucket >= plan::bucket_bytes);

inline auto batches() {
  return tiny::Batches<int>{tiny::batch<int>(steps * 16, 64, 1), std::vector<std::size_t>(steps, 16)};
}
inline auto model() { return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.05F}); }
inline auto mirrored() { return MirroredStrategy{Cpu::logical(replicas)}; }

TEMPLATE_TEST_CASE("gradients of the upper layers leave before backward reaches the lower ones", "[trainer][mirrored]",
                   RingAllReduce, DirectAllReduce, RecursiveDoublingAllReduce, Compressed<bf16>) {
  auto trainer = Trainer{model(), mirrored(), TestType{}, Noting{}, 7};
  trainer.fit(batches(), quietly);
  auto const found = notes.take();
  REQUIRE(found.size() == noted);
  // At least one of two chunks, of 16 bits an element, without the header.
  for (auto const bytes : found) CHECK(bytes >= (first_bucket - plan::header * sizeof(float)) / 4);
}

TEMPLATE_TEST_CASE("the first bucket is reduced before backward ends, and the traffic says so", "[trainer][mirrored]",
                   RingAllReduce, DirectAllReduce) {
  auto trainer = Trainer{model(), mirrored(), TestType{}, Noting{}, 7};
  trainer.fit(batches(), quietly);
  notes.take();
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    auto const traffic = trainer.live().local_replica(replica).traffic();
    CHECK(traffic.bytes == steps * Net::plan.bytes_per_step());
    CHECK(traffic.early_bytes >= steps * first_bucket);
    CHECK(traffic.early_bytes <= traffic.bytes);
  }
}

TEMPLATE_TEST_CASE("a loop that asks for all gradients at the end sends nothing before, and learns the same",
                   "[trainer][mirrored]", RingAllReduce, DirectAllReduce) {
  auto trainer = Trainer{model(), mirrored(), TestType{}, Noting{}, 7};
  trainer.fit(batches(), quietly);
  notes.take();

  auto live       = Live{mirrored(), TestType{}, Noting{}};
  auto copies     = live.create(model(), 7);
  auto const data = batches();
  for (auto& share : live.distribute(data))
    live.run(
        [](auto& replica, auto& copy, Batch& batch) {
          auto [loss, gradients] = replica.value_and_gradient(copy, batch);
          replica.all_reduce(gradients);
          copy.optimizer.apply(copy.net.variables(), gradients);
        },
        copies, share);
  auto const found = notes.take();
  REQUIRE(found.size() == noted);
  for (auto const bytes : found) CHECK(bytes == 0);
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    CHECK(live.local_replica(replica).traffic().early_bytes == 0);
    CHECK(live.local_replica(replica).traffic().bytes == steps * Net::plan.bytes_per_step());
    CHECK(copies[replica].hash() == trainer.hashes()[0]);
  }
}

}  // namespace overlap
