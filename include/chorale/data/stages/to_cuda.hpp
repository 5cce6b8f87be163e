// SPDX-License-Identifier: Apache-2.0
//
// Optional: chorale.hpp does not include it, and a program that does links the CUDA runtime. Empty if the compiler does
// not find CUDA.
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/stages/prefetch.hpp>
#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_copies.hpp>
#include <chorale/device/cuda_stream.hpp>

#include <concepts>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#if __has_include(<cuda_runtime_api.h>)

namespace chorale::data {

/// Batches whose x is in the memory of a GPU, copied there by the thread that makes them, in its own stream. With a
/// prefetch, this is not the training thread, so that a batch is copied while the previous step computes:
///
///   auto train = data::on_cuda(rows.shuffle(10'000).batch(64), Cuda{0}).prefetch(2);
///
/// keeps   y stays on the host, where a loss checks the labels. The host cannot read x: prefetch is the only stage that
///         may follow, and no stage may follow that
/// cost    one copy over the bus for each batch, and memory of the GPU for each batch that waits, and as much of the
///         host: rows are gathered in pinned memory if the stage before can fill it, as batch() does; else
///         they are copied from their place. A step copies x once more, on the GPU, for its kernels. With several
///         GPUs, the others fetch their shares from this one
template <class D> class ToCuda {
 public:
  using element                = typename D::element;
  static constexpr bool stable = false, beyond_the_host = true;
  static_assert(!is_sample<element>, "chorale: on_cuda takes batches, not rows. Write .batch(n) before it");

  ToCuda(D from, Cuda const& device) : from_{std::move(from)}, device_{device} {}

  class Stream {
    using X = typename decltype(element::x)::value_type;
    using Y = typename decltype(element::y)::value_type;

    static constexpr bool gathers =
        FillsBuffer<StreamOf<D>, element> && std::same_as<typename BufferOf<StreamOf<D>>::type, BatchBuffer<X, Y>>;
    struct Gathered : BatchBuffer<X, Y> {
      Gathered() : BatchBuffer<X, Y>{std::type_identity<CudaCopies::block>{}} {}
    };

   public:
    struct buffer {
      std::conditional_t<gathers, Gathered, std::vector<Y>> on_host;
      cuda::Room x;
    };

    Stream(StreamOf<D> from, Cuda const& device) : from_{std::move(from)}, device_{device} {}

    bool next(element& out) { return next_into(own_, out); }

    /// Makes the next batch in memory of the caller; the copy is complete on return. False at the end.
    bool next_into(buffer& to, element& out) {
      auto const here = Cuda::Scope{device_};
      if constexpr (gathers) {
        if (!from_.next_into(to.on_host, out)) return false;
      } else {
        if (!from_.next(out)) return false;
        to.on_host.assign(out.y.begin(), out.y.end());
        out.y = to.on_host;
      }
      out.x = {to.x.fetch(out.x.data(), out.x.size()), out.x.size()};
      cuda::expect(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
      return true;
    }

   private:
    StreamOf<D> from_;
    Cuda device_;
    buffer own_;
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), device_}; }
  std::optional<std::size_t> size() const { return from_.size(); }

  /// See Pipe::prefetch.
  auto prefetch(Ahead ahead) const { return Prefetched<ToCuda>{*this, ahead}; }
  auto prefetch(std::size_t n) const { return prefetch(Ahead{.elements = n}); }

  void describe(std::vector<std::string>& lines) const { data::describe(from_, lines); }

 private:
  D from_;
  Cuda device_;
};

template <Dataset D> ToCuda<D> on_cuda(D batches, Cuda const& device) { return {std::move(batches), device}; }

}  // namespace chorale::data

#endif
