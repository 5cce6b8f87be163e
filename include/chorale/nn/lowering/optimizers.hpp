// SPDX-License-Identifier: Apache-2.0
//
// The update rules of the library, in operations: as they are on CPUs, one variable at a time.
#pragma once

#include <chorale/nn/lowering/program.hpp>
#include <chorale/optim/adagrad.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/lamb.hpp>
#include <chorale/optim/lion.hpp>
#include <chorale/optim/nadam.hpp>
#include <chorale/optim/rmsprop.hpp>
#include <chorale/optim/schedule.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/tensor/plan.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace chorale::nn::stablehlo {

/// How an update rule is written in operations. Specialised for the library's rules whose update is a formula.
///
///   scalars                   how many numbers the host computes for each step: rates, corrections. The program takes
///                             them as a vector of f32, so that it is not compiled again for each step
///   numbers(rule, now, to)    writes them
///   write(rule, w, g, slots, fed)
///                             the next w; slots, as many as the rule has, become the next ones. g is the mean
///                             gradient, clipped, and fed are those numbers
template <class O> struct UpdateLowering;

/// True if an update rule says how it is written in operations. Others, such as Grouped, run on the host.
template <class O> inline constexpr bool lowers_update = requires { UpdateLowering<O>::scalars; };

namespace detail {

/// Number i of a vector, in the shape of x.
inline Value scalar(Value fed, std::int64_t i, Value x) {
  return along_last(reshape(slice_of(fed, 0, i, i + 1), {}), x);
}
/// x, or 0 where it is subnormal, as optim::detail::normal() has it.
inline Value normal(Value x) {
  return select(compare(abs(x), "LT", double{std::numeric_limits<float>::min()}), 0.0, x);
}
/// The next running mean: beta · mean + (1 - beta) · x
inline Value running(Value mean, float beta, Value x) {
  return normal(static_cast<double>(beta) * mean + static_cast<double>(1 - beta) * x);
}
/// x times a number, or x itself if that is 1.
inline Value times(Value x, Value fed, std::int64_t i, bool is_one) { return is_one ? x : x * scalar(fed, i, x); }

/// w · keep - rate · m / (sqrt(v · correction) + epsilon); rate has the correction of m.
template <class O> Value adam(O const& o, Value kept, Value g, std::span<Value> slots, Value fed) {
  slots[0]        = running(slots[0], o.beta_1, g);
  slots[1]        = running(slots[1], o.beta_2, g * g);
  auto const root = sqrt(slots[1] * scalar(fed, 1, g));
  return kept - scalar(fed, 0, g) * (slots[0] / (root + static_cast<double>(o.epsilon)));
}
template <class O> void adam_numbers(O const& o, optim::Moment now, float* to) {
  to[0] = o.rate(now) * optim::detail::correction(o.beta_1, now);
  to[1] = optim::detail::correction(o.beta_2, now);
}

}  // namespace detail

// w -= rate · (g + decay · w), with momentum when asked.
template <> struct UpdateLowering<optim::SGD> {
  static constexpr std::size_t scalars = 2;  // rate, what is kept of w

  static void numbers(optim::SGD const& o, optim::Moment now, float* to) {
    to[0] = o.rate(now);
    to[1] = 1.0F - to[0] * o.weight_decay;
  }
  static Value write(optim::SGD const& o, Value w, Value g, std::span<Value> slots, Value fed) {
    auto const into = o.decay == optim::SGD::Decay::in_gradient;
    auto const kept = detail::times(w, fed, 1, into || o.weight_decay == 0);
    if (into && o.weight_decay != 0) g = g + static_cast<double>(o.weight_decay) * w;
    auto const step = detail::scalar(fed, 0, w) * g;
    if (o.momentum == 0) return kept - step;
    auto const momentum = static_cast<double>(o.momentum);
    slots[0]            = detail::normal(momentum * slots[0] - step);
    if (o.kind == optim::SGD::Momentum::classic) return kept + slots[0];
    return kept + (momentum * slots[0] - step);
  }
};

// Running means of g and g², corrected.
template <> struct UpdateLowering<optim::Adam> {
  static constexpr std::size_t scalars = 2;  // corrected rate, correction of v

  static void numbers(optim::Adam const& o, optim::Moment now, float* to) { detail::adam_numbers(o, now, to); }
  static Value write(optim::Adam const& o, Value w, Value g, std::span<Value> slots, Value fed) {
    return detail::adam(o, w, g, slots, fed);
  }
};
// Adam, of a w that has shrunk.
template <> struct UpdateLowering<optim::AdamW> {
  static constexpr std::size_t scalars = 3;  // the numbers of Adam, the factor of w

  static void numbers(optim::AdamW const& o, optim::Moment now, float* to) {
    detail::adam_numbers(o, now, to);
    to[2] = 1.0F - o.rate(now) * o.weight_decay;
  }
  static Value write(optim::AdamW const& o, Value w, Value g, std::span<Value> slots, Value fed) {
    return detail::adam(o, detail::times(w, fed, 2, o.weight_decay == 0), g, slots, fed);
  }
};

// rate · g / sqrt(v + epsilon), with momentum and less the square of the mean when asked.
template <> struct UpdateLowering<optim::RMSprop> {
  static constexpr std::size_t scalars = 1;  // rate

  static void numbers(optim::RMSprop const& o, optim::Moment now, float* to) { to[0] = o.rate(now); }
  static Value write(optim::RMSprop const& o, Value w, Value g, std::span<Value> slots, Value fed) {
    auto const moves = o.momentum > 0;
    slots[0]         = detail::running(slots[0], o.rho, g * g);
    auto variance    = slots[0];
    if (o.centered) {
      auto& mean = slots[moves ? 2 : 1];
      mean       = detail::running(mean, o.rho, g);
      variance   = maximum(variance - mean * mean, 0);
    }
    auto by = detail::scalar(fed, 0, w) * g / sqrt(variance + static_cast<double>(o.epsilon));
    if (moves) by = slots[1] = detail::normal(static_cast<double>(o.momentum) * slots[1] + by);
    return w - by;
  }
};

// rate · g / sqrt(Σ g² + epsilon)
template <> struct UpdateLowering<optim::Adagrad> {
  static constexpr std::size_t scalars = 1;  // rate

  static void numbers(optim::Adagrad const& o, optim::Moment now, float* to) { to[0] = o.rate(now); }
  static Value write(optim::Adagrad const& o, Value w, Value g, std::span<Value> slots, Value fed) {
    slots[0] = slots[0] + g * g;
    return w - detail::scalar(fed, 0, w) * g / sqrt(slots[0] + double{o.initial_accumulator + o.epsilon});
  }
};

// Adam whose mean of g looks one step ahead.
template <> struct UpdateLowering<optim::Nadam> {
  static constexpr std::size_t scalars = 4;  // rate, correction of v, factors of m and g

  static void numbers(optim::Nadam const& o, optim::Moment now, float* to) {
    auto const [of_m, of_g] = o.ahead(now.step + 1);
    to[0] = o.rate(now), to[1] = optim::detail::correction(o.beta_2, now), to[2] = of_m, to[3] = of_g;
  }
  static Value write(optim::Nadam const& o, Value w, Value g, std::span<Value> slots, Value fed) {
    auto const number = [&](std::int64_t i) { return detail::scalar(fed, i, w); };
    slots[0]          = detail::running(slots[0], o.beta_1, g);
    slots[1]          = detail::running(slots[1], o.beta_2, g * g);
    auto const ahead  = number(2) * slots[0] + number(3) * g;
    return w - number(0) * (ahead / (sqrt(slots[1] * number(1)) + static_cast<double>(o.epsilon)));
  }
};

// rate · sign(beta_1 · m + (1 - beta_1) · g)
template <> struct UpdateLowering<optim::Lion> {
  static constexpr std::size_t scalars = 2;  // rate, what is kept of w

  static void numbers(optim::Lion const& o, optim::Moment now, float* to) {
    to[0] = o.rate(now);
    to[1] = 1 - to[0] * o.weight_decay;
  }
  static Value write(optim::Lion const& o, Value w, Value g, std::span<Value> slots, Value fed) {
    auto const way  = static_cast<double>(o.beta_1) * slots[0] + static_cast<double>(1 - o.beta_1) * g;
    auto const kept = detail::times(w, fed, 1, o.weight_decay == 0);
    slots[0]        = detail::running(slots[0], o.beta_2, g);
    return kept - detail::scalar(fed, 0, w) * sign(way);
  }
};

// Adam's step s, made as long as w.
template <> struct UpdateLowering<optim::Lamb> {
  static constexpr std::size_t scalars = 4;  // rate, what is kept of w, corrections

  static void numbers(optim::Lamb const& o, optim::Moment now, float* to) {
    to[0] = o.rate(now);
    to[1] = 1 - to[0] * o.weight_decay;
    to[2] = optim::detail::correction(o.beta_1, now), to[3] = optim::detail::correction(o.beta_2, now);
  }
  static Value write(optim::Lamb const& o, Value w, Value g, std::span<Value> slots, Value fed) {
    auto const number = [&](std::int64_t i) { return detail::scalar(fed, i, w); };
    auto const kept   = detail::times(w, fed, 1, o.weight_decay == 0);
    slots[0]          = detail::running(slots[0], o.beta_1, g);
    slots[1]          = detail::running(slots[1], o.beta_2, g * g);
    auto const s      = slots[0] * number(2) / (sqrt(slots[1] * number(3)) + static_cast<double>(o.epsilon));
    auto const of_w = sqrt(sum(kept * kept)), of_s = sqrt(sum(s * s));
    auto const both  = compare(of_w, "GT", 0) & compare(of_s, "GT", 0);
    auto const ratio = select(both, of_w / select(both, of_s, 1.0), 1.0);
    return kept - number(0) * along_last(ratio, s) * s;
  }
};

/// Gradients brought to a global norm of at most `limit`, as optim::clip_factor does; unchanged if the limit is 0.
///
/// means       the mean gradients of all variables together
/// in_parts    true if each replica has other ones, a part of all
/// keeps       numbers of any size: squares are of parts of the largest one
inline std::vector<Value> clipped(std::vector<Value> means, double limit, bool in_parts = false) {
  if (limit <= 0 || means.empty()) return means;
  auto top = Value{};
  for (auto const g : means) {
    auto const own = largest(abs(g), detail::all_dimensions(g));
    top            = top ? maximum(top, own) : own;
  }
  if (in_parts) top = largest(all_gather(reshape(top, {1})), {0});
  auto const unit = select(compare(top, "GT", 0), top, 1.0);
  auto squares    = Value{};
  for (auto const g : means) {
    auto const part = g / along_last(unit, g), own = sum(part * part);
    squares = squares ? squares + own : own;
  }
  if (in_parts) squares = all_reduce(squares);
  auto const norm = sqrt(squares), most = limit / unit;  // both in parts of the largest number
  auto const factor = select(compare(norm, "GT", most), most / norm, 1.0);
  for (auto& g : means) g = g * along_last(factor, g);
  return means;
}

/// The next value of a variable that moves, as Kernels<Cpu>::move has it.
///
/// towards    the sum over the rows of all replicas; rows: their number
inline Value moved(Movement how, Value x, Value towards, Value rows) {
  return static_cast<double>(how.keep) * x + static_cast<double>(how.take) * (towards / along_last(rows, towards));
}

}  // namespace chorale::nn::stablehlo
