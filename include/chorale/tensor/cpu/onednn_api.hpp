// SPDX-License-Identifier: Apache-2.0
//
// Where oneDNN 2 and 3 are called differently: nothing else in the library depends on the version. Each function asks
// the types of dnnl.hpp what they have, so that one source compiles with both.
#pragma once

#if !__has_include(<dnnl.hpp>)
#error \
    "chorale: <dnnl.hpp> is not on the include path. Try: apt-get install libdnnl-dev (Debian), dnf install \
onednn-devel (Fedora), brew install onednn (Homebrew) or vcpkg install onednn"
#endif

#include <chorale/core/check.hpp>

#include <dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace chorale::onednn {

using desc = dnnl::memory::desc;
using tag  = dnnl::memory::format_tag;
using dims = dnnl::memory::dims;

static_assert(DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP || DNNL_CPU_RUNTIME == DNNL_RUNTIME_SEQ,
              "chorale: this oneDNN computes on threads of TBB or SYCL, whose number a Cpu does not set. Take one that "
              "is built for OpenMP, such as Debian's libdnnl-dev. See third_party/README.md.");

/// Version of the oneDNN that is loaded, and of the headers if they are another: "oneDNN 3.2.0".
inline std::string version() {
  auto const text = [](int major, int minor, int patch) {
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
  };
  auto const* const loaded = dnnl_version();
  auto const here          = text(loaded->major, loaded->minor, loaded->patch);
  auto const compiled      = text(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
  return "oneDNN " + here + (here == compiled ? "" : " (headers of " + compiled + ")");
}

/// True for oneDNN 2, where an operation is described by a separate value before there is a primitive for it.
template <class P> concept DescribesOperations = requires { typename P::desc; };

/// Describes a primitive P to oneDNN by the arguments of its operation.
template <class P, class... Args>
typename P::primitive_desc describe(dnnl::engine const& engine, dnnl::primitive_attr const& attributes,
                                    Args const&... args) {
  if constexpr (DescribesOperations<P>) return {typename P::desc{args...}, attributes, engine};
  else return {engine, args..., attributes};
}

/// Describes a primitive P of a backward pass; `forward` describes its forward pass.
template <class P, class Forward, class... Args>
typename P::primitive_desc describe_backward(dnnl::engine const& engine, dnnl::primitive_attr const& attributes,
                                             Forward const& forward, Args const&... args) {
  if constexpr (DescribesOperations<P>) return {typename P::desc{args...}, attributes, engine, forward};
  else return {engine, args..., forward, attributes};
}

/// Describes y = f(x), element by element, with x and y in one layout.
template <class P = dnnl::eltwise_forward>
typename P::primitive_desc describe_eltwise(dnnl::engine const& engine, dnnl::primitive_attr const& attributes,
                                            dnnl::algorithm f, desc const& x, float alpha) {
  constexpr auto training = dnnl::prop_kind::forward_training;
  if constexpr (DescribesOperations<P>) return describe<P>(engine, attributes, training, f, x, alpha, 0.0F);
  else return describe<P>(engine, attributes, training, f, x, x, alpha, 0.0F);
}
template <class P = dnnl::eltwise_backward>
typename P::primitive_desc describe_eltwise_backward(dnnl::engine const& engine, dnnl::primitive_attr const& attributes,
                                                     dnnl::eltwise_forward::primitive_desc const& forward,
                                                     dnnl::algorithm f, desc const& x, float alpha) {
  if constexpr (DescribesOperations<P>) return describe_backward<P>(engine, attributes, forward, f, x, x, alpha, 0.0F);
  else return describe_backward<P>(engine, attributes, forward, f, x, x, x, alpha, 0.0F);
}

/// What a primitive does with its result: the function f of each number.
template <class Ops = dnnl::post_ops> Ops followed_by(dnnl::algorithm f) {
  auto ops = Ops{};
  if constexpr (requires { ops.append_eltwise(f, 0.0F, 0.0F); }) ops.append_eltwise(f, 0.0F, 0.0F);
  else ops.append_eltwise(1.0F, f, 0.0F, 0.0F);
  return ops;
}

/// Describes a softmax over dimension `axis`.
template <class P = dnnl::softmax_forward>
typename P::primitive_desc describe_softmax(dnnl::engine const& engine, dnnl::primitive_attr const& attributes,
                                            desc const& x, int axis) {
  constexpr auto training = dnnl::prop_kind::forward_training;
  if constexpr (DescribesOperations<P>) return describe<P>(engine, attributes, training, x, axis);
  else return describe<P>(engine, attributes, training, dnnl::algorithm::softmax_accurate, x, x, axis);
}
template <class P = dnnl::softmax_backward>
typename P::primitive_desc describe_softmax_backward(dnnl::engine const& engine, dnnl::primitive_attr const& attributes,
                                                     dnnl::softmax_forward::primitive_desc const& forward,
                                                     desc const& y, int axis) {
  if constexpr (DescribesOperations<P>) return describe_backward<P>(engine, attributes, forward, y, y, axis);
  else return describe_backward<P>(engine, attributes, forward, dnnl::algorithm::softmax_accurate, y, y, y, axis);
}

/// Where windows of a pool lie in an image: for rows and columns.
struct Windows {
  dims strides, kernel, before, after;
};

/// Describes a pool of images.
template <class P = dnnl::pooling_forward>
typename P::primitive_desc describe_pool(dnnl::engine const& engine, dnnl::primitive_attr const& attributes,
                                         dnnl::algorithm pool, desc const& x, desc const& y, Windows const& w) {
  constexpr auto training = dnnl::prop_kind::forward_training;
  if constexpr (DescribesOperations<P>)
    return describe<P>(engine, attributes, training, pool, x, y, w.strides, w.kernel, w.before, w.after);
  else return describe<P>(engine, attributes, training, pool, x, y, w.strides, w.kernel, dims{0, 0}, w.before, w.after);
}
template <class P = dnnl::pooling_backward>
typename P::primitive_desc describe_pool_backward(dnnl::engine const& engine, dnnl::primitive_attr const& attributes,
                                                  dnnl::pooling_forward::primitive_desc const& forward,
                                                  dnnl::algorithm pool, desc const& x, desc const& y,
                                                  Windows const& w) {
  if constexpr (DescribesOperations<P>)
    return describe_backward<P>(engine, attributes, forward, pool, x, y, w.strides, w.kernel, w.before, w.after);
  else
    return describe_backward<P>(engine, attributes, forward, pool, x, y, w.strides, w.kernel, dims{0, 0}, w.before,
                                w.after);
}

/// Dimensions of a layout, in oneDNN's order.
template <class Layout> dims dims_of(Layout const& layout) {
  if constexpr (requires { layout.get_dims(); }) return layout.get_dims();
  else return layout.dims();
}

/// Order of numbers in memory.
struct Blocking {
  dims sizes, padded, strides;  // of each dimension, the last two in blocks
  bool plain;                   // no dimension is cut into blocks
  dnnl_dim_t channels = 1;      // in a block, if channels alone are cut
};
template <class Layout> Blocking blocking_of(Layout const& layout) {
  auto const of = [](dims sizes, dims padded, dims strides, int inner, auto const& where, auto const& blocks) {
    auto const channels = inner == 1 && where[0] == 1 ? static_cast<dnnl_dim_t>(blocks[0]) : 1;
    return Blocking{std::move(sizes), std::move(padded), std::move(strides), inner == 0, channels};
  };
  if constexpr (requires { layout.get_strides(); }) {
    return of(layout.get_dims(), layout.get_padded_dims(), layout.get_strides(), layout.get_inner_nblks(),
              layout.get_inner_idxs(), layout.get_inner_blks());
  } else {
    auto const& d    = layout.data;
    auto const& b    = d.format_desc.blocking;
    auto const first = [&](auto const* from) { return dims(from, from + d.ndims); };
    return of(first(d.dims), first(d.padded_dims), first(b.strides), b.inner_nblks, b.inner_idxs, b.inner_blks);
  }
}

/// Where the numbers of rows lie in a layout: of images (B, C, H, W), plain or with channels in blocks, or of (B, N).
class Places {
 public:
  explicit Places(desc const& of) : lie_{blocking_of(of)} {}

  /// Numbers of a row.
  std::size_t width() const {
    auto all = std::size_t{1};
    for (std::size_t d = 1; d < lie_.sizes.size(); ++d) all *= static_cast<std::size_t>(lie_.sizes[d]);
    return all;
  }
  /// True if rows lie one after another, and images as (H, W, C).
  bool in_order() const {
    return lie_.sizes.size() != 4 || (lie_.plain && (lie_.sizes[1] == 1 || lie_.strides[1] == 1));
  }
  /// Where number i of a row lies, of an image counted as (H, W, C).
  std::size_t operator()(std::size_t row, std::size_t i) const {
    if (in_order()) return row * width() + i;
    auto const &sizes = lie_.sizes, &by = lie_.strides;
    auto const at = static_cast<std::int64_t>(i), c = at % sizes[1], pixel = at / sizes[1], block = lie_.channels;
    return static_cast<std::size_t>(static_cast<std::int64_t>(row) * by[0] + c / block * by[1] + c % block +
                                    pixel / sizes[3] * by[2] + pixel % sizes[3] * by[3]);
  }

 private:
  Blocking lie_;
};

/// Layout like the given one, for another number of rows.
///
/// layout    plain, or with channels in blocks
template <class Layout> Layout with_rows(Layout const& layout, int rows) {
  if constexpr (requires { layout.data; }) {
    auto other         = layout;
    other.data.dims[0] = other.data.padded_dims[0] = rows;
    return other;
  } else {
    auto const from = blocking_of(layout);
    auto sizes      = from.sizes;
    sizes[0]        = rows;
    if (from.plain) return {sizes, layout.get_data_type(), from.strides};
    for (auto const blocked : {tag::nChw16c, tag::nChw8c, tag::nChw4c})
      if (from.sizes.size() == 4 && layout == Layout{from.sizes, layout.get_data_type(), blocked})
        return {sizes, layout.get_data_type(), blocked};
    CHORALE_ENSURES(sizes == from.sizes,
                    "a layout of oneDNN cuts more than channels into blocks, and cannot be given " +
                        std::to_string(rows) + " rows");
    return layout;
  }
}

}  // namespace chorale::onednn
