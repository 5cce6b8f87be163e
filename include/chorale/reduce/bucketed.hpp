// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/reproducible.hpp>

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

namespace chorale {

/// A choice of where gradients are cut into buckets.
///
///   ends(elements, layers)   the end of each bucket, ascending; the last is `elements`. `layers` are where layers end,
///                            ascending, in the order in which backward finishes them; the last is `elements`, too
template <class C>
concept BucketCut = requires(std::size_t elements, Span<std::size_t const> layers) {
  { C::ends(elements, layers) } -> std::same_as<std::vector<std::size_t>>;
};

/// Buckets that end where a layer ends, as soon as they hold that many bytes: a larger layer is one bucket. Without
/// Bucketed a model has buckets of plan::bucket_bytes; the first one is cut again. See with_small_first.
///
/// source  bucket_cap_mb of DistributedDataParallel; bytes_per_pack of tf.distribute.experimental.CommunicationOptions
template <std::size_t least> struct BucketBytes {
  static constexpr bool is_possible = least > 0;

  static constexpr std::vector<std::size_t> ends(std::size_t elements, Span<std::size_t const> layers) {
    auto all   = std::vector<std::size_t>{};
    auto begin = std::size_t{0};
    for (auto const end : layers)
      if ((end - begin) * sizeof(float) >= least || end == elements) all.push_back(begin = end);
    return all;
  }
};

/// That many buckets, nearly equal in size, wherever layers end; fewer if there are fewer cache lines of gradients.
///
/// source  num_packs of tf.distribute.NcclAllReduce
template <int n> struct BucketCount {
  static constexpr bool is_possible = n > 0;

  static constexpr std::vector<std::size_t> ends(std::size_t elements, Span<std::size_t const>) {
    constexpr std::size_t line = 64 / sizeof(float);
    auto const lines           = (elements + line - 1) / line;
    auto all                   = std::vector<std::size_t>{};
    for (int i = 0; i < n; ++i) {
      auto const part = share(lines, i, n);
      if (part.size() != 0) all.push_back(part.end == lines ? elements : part.end * line);
    }
    return all;
  }
};

/// All gradients in one bucket, which is sent when backward has finished.
using OneBucket = BucketCount<1>;

/// A bucket for each layer that has variables.
struct BucketPerLayer {
  static constexpr std::vector<std::size_t> ends(std::size_t, Span<std::size_t const> layers) {
    return {layers.begin(), layers.end()};
  }
};

/// R with gradients cut into buckets as C says: a choice between few long messages and many that leave early.
///
///   Trainer{model, strategy, Bucketed<RingAllReduce, BucketBytes<25 << 20>>{}, TcpTransport{..}};
///
/// C       BucketBytes<n>, BucketCount<n>, OneBucket, BucketPerLayer, or another type: see BucketCut
/// cost    R's, for each bucket
/// order   R's, within each bucket: other cuts may give other bits, except under Reproducible
template <class R, class C> struct Bucketed : R {
  static_assert(BucketCut<C>,
                "chorale: Bucketed<R, C> takes a C that says where buckets end: BucketBytes<n>, "
                "BucketCount<n>, OneBucket, BucketPerLayer, or a type with ends(elements, layers)");
  static_assert(
      !requires { C::is_possible; } || requires { requires C::is_possible; },
      "chorale: gradients are cut into 1 bucket or more, each of 1 byte or more. OneBucket sends all at once, "
      "BucketPerLayer each layer by itself");
  static_assert(!CutsBuckets<R>, "chorale: this Reduce is Bucketed twice, and only one cut can hold. Remove one");
  using cut = C;
};

/// The first half of Reproducible with its own cut.
template <int L, class R, class C>
struct ReduceScatterOf<Bucketed<Reproducible<L, R>, C>> : ReduceScatterOf<Reproducible<L, R>> {
  using cut = C;

  explicit ReduceScatterOf(Bucketed<Reproducible<L, R>, C> algorithm)
      : ReduceScatterOf<Reproducible<L, R>>{static_cast<Reproducible<L, R>&&>(algorithm)} {}
};
/// The second half is not cut.
template <int L, class R, class C> struct GatherOf<Bucketed<Reproducible<L, R>, C>> : GatherOf<Reproducible<L, R>> {};
template <int L, class R, class C>
inline constexpr bool scatters<Bucketed<Reproducible<L, R>, C>> = scatters<Reproducible<L, R>>;

}  // namespace chorale
