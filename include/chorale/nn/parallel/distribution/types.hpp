// SPDX-License-Identifier: Apache-2.0
//
// What the ranks along one axis of a mesh have of a value, and what each of them has of its gradient.
#pragma once

#include <string>

namespace chorale::nn {

/// What each rank along one axis of a mesh has of a value x of one device, and of its gradient g = dL/dx. N ranks, of
/// which rank r has x_r and, in backward, g_r.
///
///   | kind       |   | the value                         | the gradient      | which is |
///   | ---------- | - | --------------------------------- | ----------------- | -------- |
///   | invariant  | I | x_r = x                           | g_r = g           | I        |
///   | replicated | R | x_r = x                           | g_0 + g_1 + .. = g | P       |
///   | partial    | P | x_0 + x_1 + .. = x                | g_r = g           | R        |
///   | sharded    | S | x_0, x_1, .. joined along dim are x | the g_r joined are g | S   |
///   | varying    | V | x has N values, and x_r is one    | g_r = dL/dx_r     | V        |
///
/// A value of a network is I along every axis that its type does not name: all ranks compute alike.
///
/// dim     of S: dimension of a row, counted from 0. All shards have one size
/// source  the types of spmd_types (PyTorch) and of JAX's shard_map; f and g of Shoeybi et al., "Megatron-LM", 2019,
///         are I to R and P to I
struct Distribution {
  enum class Kind { invariant, replicated, varying, partial, sharded };

  Kind kind = Kind::invariant;
  int dim   = 0;

  friend constexpr bool operator==(Distribution, Distribution) = default;
};

/// One value on all ranks, whose gradient is complete on each: I.
inline constexpr auto invariant                  = Distribution{};
/// One value on all ranks, whose gradient is the sum of what they have: R.
inline constexpr auto replicated                 = Distribution{Distribution::Kind::replicated};
/// A separate value on each rank: V.
inline constexpr auto varying                    = Distribution{Distribution::Kind::varying};
/// A part of a sum on each rank: P.
inline constexpr auto partial                    = Distribution{Distribution::Kind::partial};
/// A part of dimension `dim` of a row on each rank: S.
template <int dim> inline constexpr auto sharded = Distribution{Distribution::Kind::sharded, dim};

/// The distribution of the gradient of a value.
constexpr Distribution dual(Distribution of) {
  if (of == replicated) return partial;
  if (of == partial) return replicated;
  return of;
}

/// I, R, V, P or S<dim>.
inline std::string text_of(Distribution of) {
  if (of.kind == Distribution::Kind::sharded) return "S<" + std::to_string(of.dim) + ">";
  return std::string(1, "IRVP"[static_cast<int>(of.kind)]);
}

}  // namespace chorale::nn
