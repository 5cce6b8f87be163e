// SPDX-License-Identifier: Apache-2.0
//
// Values of one device and of ranks in exact integers, with examples of layers and the conversions between them: what
// programs over distribution types are made of.
#pragma once

#include <chorale/nn/parallel/distribution/rules.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chorale::test::ranks {

using namespace chorale::nn;
using namespace chorale::nn::distribution;

/// A matrix of at most 6 x 6 integers.
struct Matrix {
  int rows = 0, columns = 0;
  std::array<std::int64_t, 36> x{};

  std::int64_t& at(int i, int j) { return x[static_cast<std::size_t>(i * columns + j)]; }
  std::int64_t at(int i, int j) const { return x[static_cast<std::size_t>(i * columns + j)]; }
  int size(int dim) const { return dim == 0 ? rows : columns; }
  bool has_shape_of(Matrix const& o) const { return rows == o.rows && columns == o.columns; }
  friend bool operator==(Matrix const& a, Matrix const& b) {
    if (!a.has_shape_of(b)) return false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(a.rows * a.columns); ++i)
      if (a.x[i] != b.x[i]) return false;
    return true;
  }
};

inline Matrix zeros(int rows, int columns) { return {rows, columns, {}}; }
inline Matrix made(int rows, int columns, auto&& f) {
  auto y = zeros(rows, columns);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) y.at(i, j) = f(i, j);
  return y;
}
/// Numbers from -3 to 3.
inline Matrix drawn(int rows, int columns, unsigned seed) {
  return made(rows, columns, [state = seed * 2654435761U + 12345U](int, int) mutable {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::int64_t>(state >> 16) % 7 - 3;
  });
}
inline Matrix sum_of(Matrix a, Matrix const& b) {
  for (std::size_t i = 0; i < a.x.size(); ++i) a.x[i] += b.x[i];
  return a;
}
inline Matrix part_of(Matrix const& a, int dim, int r, int ranks) {
  auto const rows = dim == 0 ? a.rows / ranks : a.rows, columns = dim == 1 ? a.columns / ranks : a.columns;
  return made(rows, columns,
              [&](int i, int j) { return a.at(dim == 0 ? r * rows + i : i, dim == 1 ? r * columns + j : j); });
}
inline Matrix joined(std::vector<Matrix> const& a, int dim) {
  auto const ranks = static_cast<int>(a.size()), rows = a[0].rows, columns = a[0].columns;
  return made(dim == 0 ? rows * ranks : rows, dim == 1 ? columns * ranks : columns, [&](int i, int j) {
    return a[static_cast<std::size_t>(dim == 0 ? i / rows : j / columns)].at(dim == 0 ? i % rows : i,
                                                                             dim == 1 ? j % columns : j);
  });
}

using Matrices = std::vector<Matrix>;  // of each rank; or the values of one device

/// True if what ranks have is that value of one device: one matrix, or of V one for each rank.
inline bool is(Matrices const& parts, Distribution as, Matrices const& whole) {
  if (as == varying) return parts == whole;
  if (whole.size() != 1) return false;
  if (as.kind == Distribution::Kind::sharded) {
    for (auto const& part : parts)
      if (!part.has_shape_of(parts[0]) || part.size(as.dim) * static_cast<int>(parts.size()) > 6) return false;
    return joined(parts, as.dim) == whole[0];
  }
  auto sum = zeros(whole[0].rows, whole[0].columns);
  for (auto const& part : parts) {
    if (!part.has_shape_of(whole[0])) return false;
    if (as != partial && !(part == whole[0])) return false;
    sum = sum_of(sum, part);
  }
  return as != partial || sum == whole[0];
}

/// True if a value of one device can have that distribution.
inline bool fits(Distribution as, Matrices const& whole, int ranks) {
  if (as == varying) return whole.size() == static_cast<std::size_t>(ranks);
  return whole.size() == 1 && (as.kind != Distribution::Kind::sharded || whole[0].size(as.dim) % ranks == 0);
}

/// What ranks have of a value of one device.
inline Matrices dealt(Distribution as, Matrices const& whole, int ranks, unsigned seed) {
  if (as == varying) return whole;
  auto parts = Matrices{};
  auto rest  = whole[0];
  for (int r = 0; r < ranks; ++r) {
    if (as.kind == Distribution::Kind::sharded) parts.push_back(part_of(whole[0], as.dim, r, ranks));
    else if (as != partial) parts.push_back(whole[0]);
    else {
      auto part = r + 1 == ranks ? rest : drawn(rest.rows, rest.columns, seed + static_cast<unsigned>(r));
      for (std::size_t i = 0; i < part.x.size(); ++i) rest.x[i] -= part.x[i];
      parts.push_back(part);
    }
  }
  return parts;
}

/// One example of what a layer computes, and its gradients.
struct Layer {
  std::string name;
  Operation operation;
  int over;  // last dimensions that it works over
  Matrix (*forward)(Matrix const& a, Matrix const& b);
  std::pair<Matrix, Matrix> (*backward)(Matrix const& a, Matrix const& b, Matrix const& dy);
  bool (*takes)(Matrix const& a, Matrix const& b) = [](Matrix const& a, Matrix const& b) { return a.has_shape_of(b); };
  bool is_binary() const { return operation >= Operation::add; }
};

inline std::int64_t row_sum(Matrix const& a, int i) {
  auto sum = std::int64_t{0};
  for (int k = 0; k < a.columns; ++k) sum += a.at(i, k);
  return sum;
}
/// Σ over k of the products of row i.
inline std::int64_t row_dot(Matrix const& a, Matrix const& b, int i) {
  auto sum = std::int64_t{0};
  for (int k = 0; k < a.columns; ++k) sum += a.at(i, k) * b.at(i, k);
  return sum;
}
inline Matrix like(Matrix const& a, auto&& f) { return made(a.rows, a.columns, f); }

/// The mirrored matrix and bias of a Dense of 2 units for inputs of this width.
inline Matrix weights(int width) { return drawn(width, 2, 77); }
inline Matrix bias() { return drawn(1, 2, 78); }
inline Matrix gradient_of_weights(Matrix const& x, Matrix const& dy) {
  return made(x.columns, 2, [&](int k, int j) {
    auto sum = std::int64_t{0};
    for (int i = 0; i < x.rows; ++i) sum += x.at(i, k) * dy.at(i, j);
    return sum;
  });
}

inline Layer const layers[] = {
    {"3 x", Operation::linear, 0,
     [](auto const& a, auto const&) { return like(a, [&](int i, int j) { return 3 * a.at(i, j); }); },
     [](auto const& a, auto const&, auto const& dy) {
       return std::pair{like(a, [&](int i, int j) { return 3 * dy.at(i, j); }), Matrix{}};
     }},
    {"reversed x", Operation::linear, 1,
     [](auto const& a, auto const&) { return like(a, [&](int i, int j) { return a.at(i, a.columns - 1 - j); }); },
     [](auto const& a, auto const&, auto const& dy) {
       return std::pair{like(a, [&](int i, int j) { return dy.at(i, a.columns - 1 - j); }), Matrix{}};
     }},
    {"row sums of x", Operation::sum, 1,
     [](auto const& a, auto const&) { return made(a.rows, 1, [&](int i, int) { return row_sum(a, i); }); },
     [](auto const& a, auto const&, auto const& dy) {
       return std::pair{like(a, [&](int i, int) { return dy.at(i, 0); }), Matrix{}};
     }},
    {"x squared", Operation::nonlinear, 0,
     [](auto const& a, auto const&) { return like(a, [&](int i, int j) { return a.at(i, j) * a.at(i, j); }); },
     [](auto const& a, auto const&, auto const& dy) {
       return std::pair{like(a, [&](int i, int j) { return 2 * a.at(i, j) * dy.at(i, j); }), Matrix{}};
     }},
    {"x + 1", Operation::nonlinear, 0,
     [](auto const& a, auto const&) { return like(a, [&](int i, int j) { return a.at(i, j) + 1; }); },
     [](auto const&, auto const&, auto const& dy) { return std::pair{dy, Matrix{}}; }},
    {"x times row sums of x", Operation::nonlinear, 1,
     [](auto const& a, auto const&) { return like(a, [&](int i, int j) { return a.at(i, j) * row_sum(a, i); }); },
     [](auto const& a, auto const&, auto const& dy) {
       return std::pair{like(a, [&](int i, int j) { return dy.at(i, j) * row_sum(a, i) + row_dot(a, dy, i); }),
                        Matrix{}};
     }},
    {"Dense<2>", Operation::trained, 1,
     [](auto const& a, auto const&) {
       auto const w = weights(a.columns), b = bias();
       return made(a.rows, 2, [&](int i, int j) {
         auto sum = b.at(0, j);
         for (int k = 0; k < a.columns; ++k) sum += a.at(i, k) * w.at(k, j);
         return sum;
       });
     },
     [](auto const& a, auto const&, auto const& dy) {
       auto const w = weights(a.columns);
       return std::pair{like(a, [&](int i, int k) { return dy.at(i, 0) * w.at(k, 0) + dy.at(i, 1) * w.at(k, 1); }),
                        Matrix{}};
     }},
    {"a + b", Operation::add, 0,
     [](auto const& a, auto const& b) { return like(a, [&](int i, int j) { return a.at(i, j) + b.at(i, j); }); },
     [](auto const&, auto const&, auto const& dy) { return std::pair{dy, dy}; }},
    {"a - reversed b", Operation::add, 1,
     [](auto const& a, auto const& b) {
       return like(a, [&](int i, int j) { return a.at(i, j) - b.at(i, b.columns - 1 - j); });
     },
     [](auto const& a, auto const&, auto const& dy) {
       return std::pair{dy, like(a, [&](int i, int j) { return -dy.at(i, a.columns - 1 - j); })};
     }},
    {"a * b", Operation::multiply, 0,
     [](auto const& a, auto const& b) { return like(a, [&](int i, int j) { return a.at(i, j) * b.at(i, j); }); },
     [](auto const& a, auto const& b, auto const& dy) {
       return std::pair{like(a, [&](int i, int j) { return dy.at(i, j) * b.at(i, j); }),
                        like(a, [&](int i, int j) { return dy.at(i, j) * a.at(i, j); })};
     }},
    {"a times row sums of b", Operation::multiply, 1,
     [](auto const& a, auto const& b) { return like(a, [&](int i, int j) { return a.at(i, j) * row_sum(b, i); }); },
     [](auto const& a, auto const& b, auto const& dy) {
       return std::pair{like(a, [&](int i, int j) { return dy.at(i, j) * row_sum(b, i); }),
                        like(a, [&](int i, int) { return row_dot(a, dy, i); })};
     }},
    {"(a + 2 b) squared", Operation::combine, 0,
     [](auto const& a, auto const& b) {
       return like(a, [&](int i, int j) { return (a.at(i, j) + 2 * b.at(i, j)) * (a.at(i, j) + 2 * b.at(i, j)); });
     },
     [](auto const& a, auto const& b, auto const& dy) {
       auto const d = like(a, [&](int i, int j) { return 2 * dy.at(i, j) * (a.at(i, j) + 2 * b.at(i, j)); });
       return std::pair{d, sum_of(d, d)};
     }},
    {"(a + row sums of b) squared", Operation::combine, 1,
     [](auto const& a, auto const& b) {
       return like(a, [&](int i, int j) { return (a.at(i, j) + row_sum(b, i)) * (a.at(i, j) + row_sum(b, i)); });
     },
     [](auto const& a, auto const& b, auto const& dy) {
       auto const d = like(a, [&](int i, int j) { return 2 * dy.at(i, j) * (a.at(i, j) + row_sum(b, i)); });
       return std::pair{d, like(a, [&](int i, int) { return row_sum(d, i); })};
     }},
    {"a times b transposed", Operation::contract, 1,
     [](auto const& a, auto const& b) {
       return made(a.rows, b.rows, [&](int i, int j) {
         auto sum = std::int64_t{0};
         for (int k = 0; k < a.columns; ++k) sum += a.at(i, k) * b.at(j, k);
         return sum;
       });
     },
     [](auto const& a, auto const& b, auto const& dy) {
       auto da = zeros(a.rows, a.columns), db = zeros(b.rows, b.columns);
       for (int i = 0; i < a.rows; ++i)
         for (int j = 0; j < b.rows; ++j)
           for (int k = 0; k < a.columns; ++k)
             da.at(i, k) += dy.at(i, j) * b.at(j, k), db.at(j, k) += dy.at(i, j) * a.at(i, k);
       return std::pair{da, db};
     },
     [](auto const& a, auto const& b) { return a.columns == b.columns; }}};

/// What each rank has after a conversion.
inline Matrices converted(Change change, Distribution from, Distribution to, Matrices const& parts) {
  auto const ranks = static_cast<int>(parts.size());
  auto sum         = parts[0];
  for (std::size_t r = 1; r < parts.size(); ++r) sum = sum_of(sum, parts[r]);
  auto y = Matrices{};
  for (int r = 0; r < ranks; ++r) {
    auto const& mine = parts[static_cast<std::size_t>(r)];
    switch (change) {
      case Change::all_reduce: y.push_back(sum); break;
      case Change::all_gather: y.push_back(joined(parts, from.dim)); break;
      case Change::reduce_scatter: y.push_back(part_of(sum, to.dim, r, ranks)); break;
      case Change::all_to_all: y.push_back(part_of(joined(parts, from.dim), to.dim, r, ranks)); break;
      case Change::scatter: y.push_back(part_of(mine, to.dim, r, ranks)); break;
      case Change::pad: {
        auto all                         = Matrices(parts.size(), zeros(mine.rows, mine.columns));
        all[static_cast<std::size_t>(r)] = mine;
        y.push_back(joined(all, from.dim));
        break;
      }
      case Change::on_one_rank: y.push_back(r == 0 ? mine : zeros(mine.rows, mine.columns)); break;
      case Change::replicate:
      case Change::count_once:
      case Change::vary:
      case Change::as_parts:
      case Change::as_shards: y.push_back(mine); break;
    }
  }
  return y;
}

/// What a conversion is on one device: nothing, unless one value becomes N, or N values one.
inline Matrices whole_converted(Distribution from, Distribution to, Matrices const& x, int ranks) {
  if (from == varying && to.kind == Distribution::Kind::sharded) return {joined(x, to.dim)};
  if (from == varying && to != varying) {
    auto sum = x[0];
    for (std::size_t r = 1; r < x.size(); ++r) sum = sum_of(sum, x[r]);
    return {sum};
  }
  if (to == varying && from.kind == Distribution::Kind::sharded) return dealt(from, x, ranks, 0);
  if (to == varying && from != varying) return Matrices(static_cast<std::size_t>(ranks), x[0]);
  return x;
}
/// Its gradient.
inline Matrices whole_converted_back(Distribution from, Distribution to, Matrices const& dy, int ranks) {
  if (from == varying && to.kind == Distribution::Kind::sharded) return dealt(to, dy, ranks, 0);
  if (from == varying && to != varying) return Matrices(static_cast<std::size_t>(ranks), dy[0]);
  if (to == varying && from.kind == Distribution::Kind::sharded) return {joined(dy, from.dim)};
  if (to == varying && from != varying) return whole_converted(varying, invariant, dy, ranks);
  return dy;
}

}  // namespace chorale::test::ranks
