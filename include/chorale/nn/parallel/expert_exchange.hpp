// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/axis_all_to_all.hpp>
#include <chorale/tensor/cpu/matmul.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace chorale::nn::detail {

/// One step of an nn::Experts, as the layer keeps it from forward to backward.
///
///   route      the router's probabilities, and which expert has room for which token
///   compute    tokens to the ranks of their experts, what these make of them back, and its weighted sum
///   backward   the gradients by that to the experts, and the gradients by the tokens back
///
///   tokens of a rank for the experts of another one, as they are sent     | expert 2: t0 t4 | expert 3: t1 t4 t5 |
///   what an expert computes on, so that its sums have one order           | rank 0: .. | rank 1: t0 t4 | ..
///
/// keeps   memory for the longest step so far
class ExpertExchange {
 public:
  struct Sizes {
    std::size_t experts = 1, chosen = 1, width = 1, hidden = 1;  // chosen: experts of a token
    std::size_t percent = 100;                                   // of an even share that an expert has room for
  };
  /// The variables of the experts of this rank, or their gradients, one expert after another.
  struct OfExperts {
    float *widen, *widen_bias, *narrow, *narrow_bias;  // (C, H), (H), (H, C), (C)
  };

  /// x       (tokens, width); router: (width, experts)
  /// throws  Disagreement when another rank tells numbers that no tokens have
  void route(AxisGroup const& group, Sizes const& sizes, Span<float const> x, float const* router) {
    exchange_.begin(group);
    s_      = sizes;
    own_    = s_.experts / static_cast<std::size_t>(group.size);
    tokens_ = x.size() / s_.width;
    probability_.assign(tokens_ * s_.experts, 0.0F);
    choice_.resize(tokens_ * s_.chosen);
    weight_.resize(choice_.size());
    counts_.assign(s_.experts + 1, 0);
    counts_.back() = static_cast<std::uint32_t>(tokens_);
    for (std::size_t t = 0; t < tokens_; ++t) choose(t, &x[t * s_.width], router);
    exchange_.tell(counts_, told_);
    for (Rank r = 0; r < exchange_.size(); ++r) expect_choices(r, told_[r]);
    find_room();
  }

  /// y   (tokens, width)
  void compute(Span<float const> x, OfExperts const& v, float* y) {
    each_kept([&](std::size_t t, std::size_t, Rank q, std::size_t slot) {
      std::copy_n(&x[t * s_.width], s_.width, &sent_[q][slot * s_.width]);
    });
    send_to_owners();
    x_.resize(rows_of_.back() * s_.width);
    h_.resize(rows_of_.back() * s_.hidden);
    out_.resize(x_.size());
    gather(x_);
    each_block([&](Rank, std::size_t e, std::size_t first, std::size_t n) {
      if (n == 0) return;
      auto* const h = &h_[first * s_.hidden];
      auto* const o = &out_[first * s_.width];
      repeat(v.widen_bias + e * s_.hidden, s_.hidden, n, h);
      cpu::matmul(n, s_.hidden, s_.width, {&x_[first * s_.width], s_.width}, {v.widen + e * matrix(), s_.hidden},
                  {.data = h, .stride = s_.hidden, .beta = 1});
      for (std::size_t i = 0; i < n * s_.hidden; ++i) h[i] = std::max(h[i], 0.0F);
      repeat(v.narrow_bias + e * s_.width, s_.width, n, o);
      cpu::matmul(n, s_.width, s_.hidden, {h, s_.hidden}, {v.narrow + e * matrix(), s_.width},
                  {.data = o, .stride = s_.width, .beta = 1});
    });
    scatter(out_);
    exchange_.to_askers(answers_, got_);
    std::fill_n(y, tokens_ * s_.width, 0.0F);
    each_kept([&](std::size_t t, std::size_t i, Rank q, std::size_t slot) {
      auto const* const from = &got_[q][slot * s_.width];
      for (std::size_t c = 0; c < s_.width; ++c) y[t * s_.width + c] += weight_[i] * from[c];
    });
  }

  /// Adds to the gradients of the variables, and to dx, if it is not empty.
  ///
  /// rows      if not null, the gradients of the experts' variables: a row for each expert of this rank, also if it had
  ///           no token. Of logical shards, each rank's is kept apart
  /// balance   of the loss that asks for even counts, for each token; 0: there is none
  void backward(Span<float const> x, float const* dy, OfExperts const& v, OfExperts const& dv, float const* router,
                float* d_router, float balance, Span<float> dx, std::array<RowGradients*, 4> const& rows = {}) {
    by_weight_.assign(weight_.size(), 0.0F);
    each_kept([&](std::size_t t, std::size_t i, Rank q, std::size_t slot) {
      auto* const d      = &sent_[q][slot * s_.width];
      auto const* answer = &got_[q][slot * s_.width];
      for (std::size_t c = 0; c < s_.width; ++c) {
        by_weight_[i] += dy[t * s_.width + c] * answer[c];
        d[c] = weight_[i] * dy[t * s_.width + c];
      }
    });
    send_to_owners();
    gather(out_);  // now the gradients by what it was
    d_h_.resize(h_.size());
    auto part = Rank{-1};
    each_block([&](Rank r, std::size_t e, std::size_t first, std::size_t n) {
      if (rows[0] == nullptr) return backward_of(e, first, n, v, dv, e);
      if (exchange_.in_shards() && std::exchange(part, r) != r)
        for (auto* const all : rows) all->begin_part(r);
      scratch_.assign(2 * matrix() + s_.hidden + s_.width, 0.0F);
      auto* const begin = scratch_.data();
      auto* const bias  = begin + matrix();
      auto const made   = OfExperts{begin, bias, bias + s_.hidden, bias + s_.hidden + matrix()};
      backward_of(e, first, n, v, made, 0);
      rows[0]->add(e, made.widen), rows[1]->add(e, made.widen_bias);
      rows[2]->add(e, made.narrow), rows[3]->add(e, made.narrow_bias);
    });
    scatter(x_);  // now the gradients by what they were
    exchange_.to_askers(answers_, got_);
    if (!dx.empty())
      each_kept([&](std::size_t t, std::size_t, Rank q, std::size_t slot) {
        auto const* const d = &got_[q][slot * s_.width];
        for (std::size_t c = 0; c < s_.width; ++c) dx[t * s_.width + c] += d[c];
      });
    for (std::size_t t = 0; t < tokens_; ++t) backward_of_router(t, &x[t * s_.width], router, d_router, balance, dx);
  }

  /// Choices of each expert in the whole batch for which it had no room.
  Span<std::uint32_t const> dropped() const { return dropped_; }

 private:
  static constexpr auto nowhere = std::numeric_limits<std::size_t>::max();

  std::size_t matrix() const { return s_.width * s_.hidden; }
  Rank owner(std::size_t expert) const { return static_cast<Rank>(expert / own_); }
  std::size_t first_own() const { return static_cast<std::size_t>(exchange_.rank()) * own_; }

  static void repeat(float const* row, std::size_t width, std::size_t n, float* to) {
    while (n-- > 0) to = std::copy_n(row, width, to);
  }

  /// Token t: its probabilities, and the experts with the largest ones; of equal ones the first.
  void choose(std::size_t t, float const* x, float const* router) {
    auto* const p = &probability_[t * s_.experts];
    for (std::size_t c = 0; c < s_.width; ++c)
      for (std::size_t e = 0; e < s_.experts; ++e) p[e] += x[c] * router[c * s_.experts + e];
    auto const most = *std::max_element(p, p + s_.experts);
    auto sum        = 0.0F;
    for (std::size_t e = 0; e < s_.experts; ++e) sum += p[e] = std::exp(p[e] - most);
    for (std::size_t e = 0; e < s_.experts; ++e) p[e] /= sum;
    auto* const chosen = &choice_[t * s_.chosen];
    auto total         = 0.0F;
    for (std::size_t j = 0; j < s_.chosen; ++j) {
      auto best = s_.experts;
      for (std::size_t e = 0; e < s_.experts; ++e)
        if (std::find(chosen, chosen + j, e) == chosen + j && (best == s_.experts || p[e] > p[best])) best = e;
      chosen[j] = best;
      total += p[best];
      ++counts_[best];
    }
    for (std::size_t j = 0; j < s_.chosen; ++j)
      weight_[t * s_.chosen + j] = s_.chosen == 1 ? p[chosen[0]] : p[chosen[j]] / total;
  }

  /// Checks the numbers of a rank, from which sizes follow: each of its tokens chooses as many different experts.
  void expect_choices(Rank r, Span<std::uint32_t const> told) const {
    if (told.empty()) return;  // all ranks have the same rows
    auto all = std::uint64_t{0}, most = std::uint64_t{0};
    for (auto const n : told.first(s_.experts)) all += n, most = std::max<std::uint64_t>(most, n);
    if (all == told.back() * std::uint64_t{s_.chosen} && most <= told.back()) return;
    throw Disagreement{
        Fault::collective_mismatch,
        sentence("rank {} tells rank {} that its {} tokens choose experts {} times, one of them {} times, "
                 "where each token chooses {} of {} experts.",
                 r, exchange_.rank(), told.back(), all, most, s_.chosen, s_.experts),
        "the same model on every rank, and a look at the memory of that host."};
  }

  /// Sends vectors to the ranks of their experts, after all ranks have told how many they send.
  void send_to_owners() {
    exchange_.to_owners(sent_, received_, [&](Rank r) { return rows_from(r) * s_.width; });
  }
  /// Vectors that a rank has for the experts of this one.
  std::size_t rows_from(Rank r) const {
    auto const begin = kept_[r].begin() + static_cast<std::ptrdiff_t>(first_own());
    return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(own_), std::size_t{0});
  }

  /// Choices that an expert has room for, of a batch of so many tokens.
  std::uint32_t room_for(std::size_t tokens) const {
    return static_cast<std::uint32_t>((tokens * s_.chosen * s_.percent + 100 * s_.experts - 1) / (100 * s_.experts));
  }

  /// Gives each choice a place, in the order of the global batch, until its expert is full; of logical shards, in the
  /// order of each.
  void find_room() {
    all_tokens_ = 0;
    chosen_.assign(s_.experts, 0);
    kept_.begin(exchange_.size());
    for (Rank r = 0; r < exchange_.size(); ++r)
      if (!told_[r].empty() && (r == exchange_.rank() || !exchange_.in_shards())) all_tokens_ += told_[r].back();
    for (Rank r = 0; r < exchange_.size(); ++r)
      for (std::size_t e = 0; e < s_.experts; ++e) {
        auto const n = told_[r].empty() ? 0U : told_[r][e];
        if (exchange_.in_shards()) {
          kept_[r].push_back(std::min(n, room_for(told_[r].back())));
          if (r == exchange_.rank()) chosen_[e] = n;
        } else {
          auto const room = room_for(all_tokens_);
          kept_[r].push_back(std::min(n, room - std::min(room, chosen_[e])));
          chosen_[e] += n;
        }
      }
    dropped_.clear();
    for (auto const n : chosen_) dropped_.push_back(n - std::min(n, room_for(all_tokens_)));

    auto const& mine = kept_[exchange_.rank()];
    first_.resize(s_.experts);
    sent_.prepare(exchange_.size()), got_.prepare(exchange_.size()), answers_.prepare(exchange_.size());
    for (std::size_t e = 0, next = 0; e < s_.experts; ++e) {
      if (e % own_ == 0) next = 0;
      first_[e] = std::exchange(next, next + mine[e]);
      sent_[owner(e)].resize(next * s_.width);
      got_[owner(e)].resize(next * s_.width);
    }
    slot_.resize(choice_.size());
    seen_.assign(s_.experts, 0);
    for (std::size_t i = 0; i < choice_.size(); ++i) {
      auto const e = choice_[i];
      slot_[i]     = seen_[e] < mine[e] ? first_[e] + seen_[e] : nowhere;
      ++seen_[e];
    }
    rows_of_.assign(own_ + 1, 0);
    for (Rank r = 0; r < exchange_.size(); ++r)
      for (std::size_t e = 0; e < own_; ++e) rows_of_[e + 1] += kept_[r][first_own() + e];
    std::partial_sum(rows_of_.begin(), rows_of_.end(), rows_of_.begin());
  }

  /// Calls f(token, choice, owner, slot) for each choice that has a place.
  template <class F> void each_kept(F&& f) const {
    for (std::size_t i = 0; i < choice_.size(); ++i)
      if (slot_[i] != nowhere) f(i / s_.chosen, i, owner(choice_[i]), slot_[i]);
  }

  /// Calls f(rank, row in its list, row of an expert, rows) for what each rank has sent to each expert of this one.
  template <class F> void each_segment(F&& f) {
    seen_.assign(static_cast<std::size_t>(exchange_.size()), 0);
    for (std::size_t e = 0; e < own_; ++e)
      for (auto [r, to] = std::pair{Rank{0}, rows_of_[e]}; r < exchange_.size(); ++r) {
        auto const n = std::size_t{kept_[r][first_own() + e]};
        f(r, std::exchange(seen_[static_cast<std::size_t>(r)], seen_[static_cast<std::size_t>(r)] + n), to, n);
        to += n;
      }
  }
  void gather(std::vector<float>& to) {
    each_segment([&](Rank r, std::size_t from, std::size_t row, std::size_t n) {
      std::copy_n(received_[r].data() + from * s_.width, n * s_.width, to.data() + row * s_.width);
    });
  }
  void scatter(std::vector<float> const& from) {
    for (Rank r = 0; r < exchange_.size(); ++r) answers_[r].resize(rows_from(r) * s_.width);
    each_segment([&](Rank r, std::size_t to, std::size_t row, std::size_t n) {
      std::copy_n(from.data() + row * s_.width, n * s_.width, answers_[r].data() + to * s_.width);
    });
  }

  /// Calls f(rank, expert, first row, rows) for what is computed at once: all tokens of an expert, or, with logical
  /// shards, its tokens from each rank, one rank after another. Skips ranks without tokens.
  template <class F> void each_block(F&& f) const {
    if (!exchange_.in_shards()) {
      for (std::size_t e = 0; e < own_ && all_tokens_ > 0; ++e)
        f(Rank{0}, e, rows_of_[e], rows_of_[e + 1] - rows_of_[e]);
      return;
    }
    for (Rank r = 0; r < exchange_.size(); ++r)
      for (std::size_t e = 0; e < own_ && told_[r].back() > 0; ++e) {
        auto first = rows_of_[e];
        for (Rank before = 0; before < r; ++before) first += kept_[before][first_own() + e];
        f(r, e, first, kept_[r][first_own() + e]);
      }
  }
  /// Backward of some rows of one expert: out_ has the gradients by its outputs, and x_ gets those by its inputs.
  ///
  /// to      index of the expert in dv
  void backward_of(std::size_t e, std::size_t first, std::size_t n, OfExperts const& v, OfExperts const& dv,
                   std::size_t to) {
    if (n == 0) return;
    auto const W = s_.width, H = s_.hidden;
    auto *const h = &h_[first * H], *const d_h = &d_h_[first * H], *const d = &out_[first * W],
                *const x = &x_[first * W];
    add_rows(d, n, W, dv.narrow_bias + to * W);
    cpu::matmul(H, W, n, {h, H, true}, {d, W}, {.data = dv.narrow + to * matrix(), .stride = W, .beta = 1});
    cpu::matmul(n, H, W, {d, W}, {v.narrow + e * matrix(), W, true}, {.data = d_h, .stride = H});
    for (std::size_t i = 0; i < n * H; ++i)
      if (!(h[i] > 0)) d_h[i] = 0;
    add_rows(d_h, n, H, dv.widen_bias + to * H);
    cpu::matmul(W, H, n, {x, W, true}, {d_h, H}, {.data = dv.widen + to * matrix(), .stride = H, .beta = 1});
    cpu::matmul(n, W, H, {d_h, H}, {v.widen + e * matrix(), H, true}, {.data = x, .stride = W});
  }
  static void add_rows(float const* rows, std::size_t n, std::size_t width, float* sum) {
    for (; n-- > 0; rows += width)
      for (std::size_t c = 0; c < width; ++c) sum[c] += rows[c];
  }

  void backward_of_router(std::size_t t, float const* x, float const* router, float* d_router, float balance,
                          Span<float> dx) {
    auto const* const p = &probability_[t * s_.experts];
    auto const begin = t * s_.chosen, end = begin + s_.chosen;
    auto mean = 0.0F, total = 0.0F;  // over the weights; of the chosen probabilities
    for (auto i = begin; i < end; ++i) mean += weight_[i] * by_weight_[i], total += p[choice_[i]];
    by_probability_.assign(s_.experts, 0.0F);
    for (auto i = begin; i < end; ++i)
      by_probability_[choice_[i]] = s_.chosen == 1 ? by_weight_[i] : (by_weight_[i] - mean) / total;
    if (balance != 0)
      for (std::size_t e = 0; e < s_.experts; ++e)
        by_probability_[e] += balance * static_cast<float>(s_.experts) * static_cast<float>(chosen_[e]) /
                              static_cast<float>(all_tokens_ * s_.chosen);
    auto sum = 0.0F;
    for (std::size_t e = 0; e < s_.experts; ++e) sum += p[e] * by_probability_[e];
    for (std::size_t e = 0; e < s_.experts; ++e) by_probability_[e] = p[e] * (by_probability_[e] - sum);
    for (std::size_t c = 0; c < s_.width; ++c) {
      auto d = 0.0F;
      for (std::size_t e = 0; e < s_.experts; ++e) {
        d_router[c * s_.experts + e] += x[c] * by_probability_[e];
        d += router[c * s_.experts + e] * by_probability_[e];
      }
      if (!dx.empty()) dx[t * s_.width + c] += d;
    }
  }

  OwnerExchange exchange_;
  Sizes s_;
  std::size_t own_ = 1, tokens_ = 0, all_tokens_ = 0;                     // experts of this rank
  std::vector<float> probability_, weight_, by_weight_, by_probability_;  // (tokens, experts); of choices; of a token
  std::vector<std::size_t> choice_, slot_, first_, seen_, rows_of_;
  std::vector<std::uint32_t> counts_, chosen_, dropped_;  // of experts: here, in the whole batch
  ListsOfRanks<std::uint32_t> told_, kept_;               // choices of each rank of each expert
  ListsOfRanks<float> sent_, received_, answers_, got_;
  std::vector<float> x_, h_, out_, d_h_;  // one expert of this rank after another
  std::vector<float> scratch_;            // gradients of the variables of one expert
};

}  // namespace chorale::nn::detail
