// SPDX-License-Identifier: Apache-2.0
//
// The operations in one piece: each is a line or two, and layers, gradients and text name any of them.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Programs of StableHLO, the language in which compilers such as XLA take a whole step: values with a shape, each
/// computed once by an operation from others. Layers, losses and update rules are written in these operations; see
/// Lowering in call.hpp, gradients() in gradient.hpp, and text_of() in text.hpp.
///
/// source  the specification of StableHLO
namespace chorale::nn::stablehlo {

enum class Element : unsigned char { f32, bf16, f16, i32, u32, i1 };

constexpr bool is_float(Element e) { return e == Element::f32 || e == Element::bf16 || e == Element::f16; }

using Dims = std::vector<std::int64_t>;

/// Elements of a value with these dimensions.
inline std::int64_t count(Dims const& dims) {
  auto n = std::int64_t{1};
  for (auto const d : dims) n *= d;
  return n;
}

// clang-format off
/// What an operation does, and what its `lists` mean.
enum class Kind : unsigned char {
  parameter, constant, iota,                                               // iota: {dimension}
  convert, reshape, stop,                                                  // stop: x itself, without a gradient
  broadcast,                                                               // {the dimension of y of each one of x}
  transpose, reverse,                                                      // {permutation}, {dimensions}
  slice, concatenate,                                                      // {begin, end, step}, {dim}
  pad,                                                                     // {low, high, inner}
  add, subtract, multiply, divide, maximum, minimum, power, remainder,
  and_, or_, xor_, shift_left, shift_right,
  negate, abs, sign, exponential, log, sqrt, rsqrt, tanh, logistic, erfc, floor, not_, cosine, sine,
  log_plus_one, exponential_minus_one,                                     // log(1 + x), exp(x) - 1, exact near 0
  compare, select,                                                         // compare: `word` is LT, EQ, ..
  reduce,                                                                  // {dimensions};
// clang-format on `word` is add or maximum
  reduce_window, select_and_scatter,                                       // {window, strides}; `word` as in reduce
  dot,                                                                     // {batch a, batch b, summed a, summed b}
  convolution,                                                             // see Convolved
  gather, scatter,                                                         // rows of a matrix by ids
  all_reduce, all_gather, reduce_scatter, replica_id                       // over all replicas, along dimension 0
};

/// One operation, and the value that it gives.
struct Operation {
  Kind kind;
  Element element;
  Dims dims;
  std::vector<int> in{};
  std::vector<Dims> lists{};
  std::string_view word{};
  double number = 0;                                                       // of a constant
};

class Program;

/// A value of a program. Cheap to copy; the program outlives it.
struct Value {
  Program* program = nullptr;
  int id           = -1;

  explicit operator bool() const { return id >= 0; }
  Dims const&  dims() const;
  std::int64_t dim(std::size_t i) const { return dims()[i]; }
  std::size_t  rank() const { return dims().size(); }
  Element      element() const;
};

/// The operations of a step in the order in which they were written. Functions below append to it.
class Program {
 public:
  /// replicas    that run the program at one time
  /// products    the type to which all products round their factors
  explicit Program(int replicas = 1, Products products = Products::f32) : replicas_{replicas}, products_{products} {}
  Program(Program const&)            = delete;                             // values point to it
  Program& operator=(Program const&) = delete;

  int      replicas() const { return replicas_; }
  Products products() const { return products_; }

  Value append(Operation operation) {
    operations_.push_back(std::move(operation));
    return {this, static_cast<int>(operations_.size()) - 1};
  }
  /// An argument of the program.
  Value parameter(Element element, Dims dims) {
    auto const made = append({Kind::parameter, element, std::move(dims)});
    parameters_.push_back(made.id);
    return made;
  }
  Value constant(double number, Dims dims = {}, Element element = Element::f32) {
    return append({.kind = Kind::constant, .element = element, .dims = std::move(dims), .number = number});
  }
  /// 0, 1, 2, .. along a dimension.
  Value iota(Element element, Dims dims, std::int64_t along) {
    return append({.kind = Kind::iota, .element = element, .dims = std::move(dims), .lists = {{along}}});
  }
  /// The number of the replica that runs the program.
  Value replica() { return append({Kind::replica_id, Element::u32, {}}); }

  std::vector<Operation> const& operations() const { return operations_; }
  std::vector<int> const& parameters() const { return parameters_; }
  Operation const& at(int id) const { return operations_[static_cast<std::size_t>(id)]; }

 private:
  int replicas_;
  Products products_;
  std::vector<Operation> operations_;
  std::vector<int> parameters_;
};

inline Dims const& Value::dims() const { return program->at(id).dims; }
inline Element Value::element() const { return program->at(id).element; }

namespace detail {

inline void expect(bool good, std::string_view what) {
  CHORALE_EXPECTS(good, "a program of StableHLO combines values that do not fit: " + std::string{what});
}

inline Value unary(Kind kind, Value x) { return x.program->append({kind, x.element(), x.dims(), {x.id}}); }
inline Value binary(Kind kind, Value a, Value b) {
  expect(a.dims() == b.dims() && a.element() == b.element(), "two operands have different shapes or element types");
  return a.program->append({kind, a.element(), a.dims(), {a.id, b.id}});
}
/// A number in the shape of a value.
inline Value like(Value x, double number) { return x.program->constant(number, x.dims(), x.element()); }

}  // namespace detail

// Element by element. A number stands for a value of that number.
inline Value operator+(Value a, Value b) { return detail::binary(Kind::add, a, b); }
inline Value operator-(Value a, Value b) { return detail::binary(Kind::subtract, a, b); }
inline Value operator*(Value a, Value b) { return detail::binary(Kind::multiply, a, b); }
inline Value operator/(Value a, Value b) { return detail::binary(Kind::divide, a, b); }
inline Value operator+(Value a, double b) { return a + detail::like(a, b); }
inline Value operator-(Value a, double b) { return a - detail::like(a, b); }
inline Value operator*(Value a, double b) { return a * detail::like(a, b); }
inline Value operator/(Value a, double b) { return a / detail::like(a, b); }
inline Value operator+(double a, Value b) { return detail::like(b, a) + b; }
inline Value operator-(double a, Value b) { return detail::like(b, a) - b; }
inline Value operator*(double a, Value b) { return detail::like(b, a) * b; }
inline Value operator/(double a, Value b) { return detail::like(b, a) / b; }
inline Value operator-(Value x) { return detail::unary(Kind::negate, x); }
inline Value operator&(Value a, Value b) { return detail::binary(Kind::and_, a, b); }
inline Value operator|(Value a, Value b) { return detail::binary(Kind::or_, a, b); }
inline Value operator^(Value a, Value b) { return detail::binary(Kind::xor_, a, b); }
inline Value complement(Value x) { return detail::unary(Kind::not_, x); }     // of each bit
inline Value shifted_left(Value x, int by) { return detail::binary(Kind::shift_left, x, detail::like(x, by)); }
inline Value shifted_right(Value x, int by) { return detail::binary(Kind::shift_right, x, detail::like(x, by)); }
inline Value maximum(Value a, Value b) { return detail::binary(Kind::maximum, a, b); }
inline Value maximum(Value a, double b) { return maximum(a, detail::like(a, b)); }
inline Value minimum(Value a, Value b) { return detail::binary(Kind::minimum, a, b); }
inline Value minimum(Value a, double b) { return minimum(a, detail::like(a, b)); }
inline Value power(Value a, Value b) { return detail::binary(Kind::power, a, b); }
inline Value remainder(Value a, Value b) { return detail::binary(Kind::remainder, a, b); }
inline Value abs(Value x) { return detail::unary(Kind::abs, x); }
inline Value sign(Value x) { return detail::unary(Kind::sign, x); }
inline Value exp(Value x) { return detail::unary(Kind::exponential, x); }
inline Value log(Value x) { return detail::unary(Kind::log, x); }
inline Value log1p(Value x) { return detail::unary(Kind::log_plus_one, x); }
inline Value expm1(Value x) { return detail::unary(Kind::exponential_minus_one, x); }
inline Value sqrt(Value x) { return detail::unary(Kind::sqrt, x); }
inline Value rsqrt(Value x) { return detail::unary(Kind::rsqrt, x); }
inline Value tanh(Value x) { return detail::unary(Kind::tanh, x); }
inline Value logistic(Value x) { return detail::unary(Kind::logistic, x); }   // 1 / (1 + exp(-x))
inline Value erfc(Value x) { return detail::unary(Kind::erfc, x); }           // 1 - erf(x)
inline Value floor(Value x) { return detail::unary(Kind::floor, x); }
inline Value cos(Value x) { return detail::unary(Kind::cosine, x); }
inline Value sin(Value x) { return detail::unary(Kind::sine, x); }
/// x, whose gradient is not asked for.
inline Value stop_gradient(Value x) { return detail::unary(Kind::stop, x); }

/// Where a and b compare as a word says: "LT", "LE", "GT", "GE", "EQ" or "NE". The result is of Element::i1.
inline Value compare(Value a, std::string_view word, Value b) {
  detail::expect(a.dims() == b.dims() && a.element() == b.element(), "compare takes values of one shape and type");
  return a.program->append(
      {.kind = Kind::compare, .element = Element::i1, .dims = a.dims(), .in = {a.id, b.id}, .word = word});
}
inline Value compare(Value a, std::string_view word, double b) { return compare(a, word, detail::like(a, b)); }
/// a where `where` is true, else b.
inline Value select(Value where, Value a, Value b) {
  detail::expect(where.dims() == a.dims() && a.dims() == b.dims() && a.element() == b.element(),
                 "select takes values of one shape");
  return a.program->append({Kind::select, a.element(), a.dims(), {where.id, a.id, b.id}});
}
inline Value select(Value where, Value a, double b) { return select(where, a, detail::like(a, b)); }
inline Value select(Value where, double a, Value b) { return select(where, detail::like(b, a), b); }

inline Value convert(Value x, Element element) {
  if (x.element() == element) return x;
  return x.program->append({Kind::convert, element, x.dims(), {x.id}});
}
inline Value reshape(Value x, Dims dims) {
  if (x.dims() == dims) return x;
  detail::expect(count(x.dims()) == count(dims), "reshape changes the number of elements");
  return x.program->append({Kind::reshape, x.element(), std::move(dims), {x.id}});
}
/// x, repeated along the other dimensions.
///
/// where   the dimension of the result of each dimension of x, which has that size; ascending
inline Value broadcast(Value x, Dims dims, Dims where) {
  detail::expect(where.size() == x.rank(), "broadcast needs a dimension for each one of the operand");
  for (std::size_t i = 0; i < where.size(); ++i)
    detail::expect(x.dim(i) == dims[static_cast<std::size_t>(where[i])], "broadcast keeps the sizes of dimensions");
  if (x.dims() == dims) return x;
  return x.program->append({Kind::broadcast, x.element(), std::move(dims), {x.id}, {std::move(where)}});
}
/// A vector or scalar along the last dimensions of y, repeated over the first ones.
inline Value along_last(Value x, Value y) {
  auto where = Dims{};
  for (auto i = y.rank() - x.rank(); i < y.rank(); ++i) where.push_back(static_cast<std::int64_t>(i));
  return broadcast(x, y.dims(), where);
}
/// A value along the first dimensions of y, repeated over the last ones: of one number a row, the number for all of it.
inline Value along_first(Value x, Value y) {
  auto where = Dims{};
  for (std::size_t i = 0; i < x.rank(); ++i) where.push_back(static_cast<std::int64_t>(i));
  return broadcast(x, y.dims(), where);
}
/// Dimension i of the result is dimension order[i] of x.
inline Value transpose(Value x, Dims order) {
  auto dims = Dims{};
  auto same = true;
  for (auto const d : order) {
    same = same && d == static_cast<std::int64_t>(dims.size());
    dims.push_back(x.dim(static_cast<std::size_t>(d)));
  }
  if (same) return x;
  return x.program->append({Kind::transpose, x.element(), std::move(dims), {x.id}, {std::move(order)}});
}
inline Value reverse(Value x, Dims along) {
  return x.program->append({Kind::reverse, x.element(), x.dims(), {x.id}, {std::move(along)}});
}
/// The elements from begin to before end along each dimension, at every step'th place.
inline Value slice(Value x, Dims begin, Dims end, Dims step = {}) {
  if (step.empty()) step.assign(x.rank(), 1);
  auto dims = Dims{};
  for (std::size_t i = 0; i < x.rank(); ++i) dims.push_back((end[i] - begin[i] + step[i] - 1) / step[i]);
  return x.program->append(
      {Kind::slice, x.element(), std::move(dims), {x.id}, {std::move(begin), std::move(end), std::move(step)}});
}
/// The elements from begin to before end along one dimension.
inline Value slice_of(Value x, std::size_t along, std::int64_t begin, std::int64_t end) {
  auto from = Dims(x.rank(), 0), to = x.dims();
  from[along] = begin, to[along] = end;
  return slice(x, from, to);
}
inline Value concatenate(std::vector<Value> const& all, std::size_t along) {
  if (all.size() == 1) return all[0];
  auto dims   = all[0].dims();
  dims[along] = 0;
  auto in     = std::vector<int>{};
  for (auto const x : all) dims[along] += x.dim(along), in.push_back(x.id);
  return all[0].program->append(
      {Kind::concatenate, all[0].element(), std::move(dims), std::move(in), {{static_cast<std::int64_t>(along)}}});
}
/// x with `low` and `high` numbers added at the ends of each dimension, and `inner` ones between its elements.
inline Value pad(Value x, double number, Dims low, Dims high, Dims inner = {}) {
  if (inner.empty()) inner.assign(x.rank(), 0);
  auto dims = Dims{};
  for (std::size_t i = 0; i < x.rank(); ++i)
    dims.push_back(x.dim(i) == 0 ? low[i] + high[i] : x.dim(i) + (x.dim(i) - 1) * inner[i] + low[i] + high[i]);
  auto const filled = x.program->constant(number, {}, x.element());
  return x.program->append({Kind::pad, x.element(), std::move(dims), {x.id, filled.id},
                            {std::move(low), std::move(high), std::move(inner)}});
}

namespace detail {

inline Value reduce(Value x, Dims along, std::string_view word) {
  if (along.empty()) return x;
  auto dims = Dims{};
  for (std::size_t i = 0; i < x.rank(); ++i) {
    auto kept = true;
    for (auto const d : along) kept = kept && static_cast<std::size_t>(d) != i;
    if (kept) dims.push_back(x.dim(i));
  }
  return x.program->append({.kind = Kind::reduce, .element = x.element(), .dims = std::move(dims), .in = {x.id},
                            .lists = {std::move(along)}, .word = word});
}
inline Dims all_dimensions(Value x, std::size_t from = 0) {
  auto all = Dims{};
  for (auto i = from; i < x.rank(); ++i) all.push_back(static_cast<std::int64_t>(i));
  return all;
}

}  // namespace detail

/// The sum along some dimensions, which the result does not have.
inline Value sum(Value x, Dims along) { return detail::reduce(x, std::move(along), "add"); }
inline Value sum(Value x) { return sum(x, detail::all_dimensions(x)); }
/// The sum along all dimensions but the first: (B, ..) to (B).
inline Value sum_of_rows(Value x) { return sum(x, detail::all_dimensions(x, 1)); }
inline Value largest(Value x, Dims along) { return detail::reduce(x, std::move(along), "maximum"); }
inline Value sum_last(Value x) { return sum(x, {static_cast<std::int64_t>(x.rank()) - 1}); }
inline Value largest_last(Value x) { return largest(x, {static_cast<std::int64_t>(x.rank()) - 1}); }

/// The sum, or the largest, of each window over all dimensions of x. Windows lie within x.
///
/// word    "add" or "maximum"
inline Value windows(Value x, std::string_view word, Dims window, Dims strides) {
  auto dims = Dims{};
  for (std::size_t i = 0; i < x.rank(); ++i) dims.push_back((x.dim(i) - window[i]) / strides[i] + 1);
  return x.program->append({.kind = Kind::reduce_window, .element = x.element(), .dims = std::move(dims), .in = {x.id},
                            .lists = {std::move(window), std::move(strides)}, .word = word});
}

namespace detail {

/// Appends a product of two factors, rounded as the program says; sums of rounded factors are float.
///
/// operation   but for its operands and element type
inline Value product(Value a, Value b, Operation operation) {
  auto const by     = a.program->products();
  auto const rounds = by == Products::bf16 || by == Products::fp16;
  auto const to     = by == Products::bf16 ? Element::bf16 : Element::f16;
  operation.element = rounds ? Element::f32 : a.element();
  if (rounds) a = convert(a, to), b = convert(b, to);
  operation.in = {a.id, b.id};
  return a.program->append(std::move(operation));
}

}  // namespace detail

/// Products of matrices: the sum over the dimensions `sum_a` of a and `sum_b` of b, for each place along the dimensions
/// `batch_a` and `batch_b`, which are equal.
///
/// returns   the batch dimensions, the others of a, the others of b
inline Value dot(Value a, Value b, Dims sum_a, Dims sum_b, Dims batch_a = {}, Dims batch_b = {}) {
  auto dims        = Dims{};
  auto const is_in = [](Dims const& some, std::size_t d) {
    for (auto const s : some)
      if (static_cast<std::size_t>(s) == d) return true;
    return false;
  };
  for (auto const d : batch_a) dims.push_back(a.dim(static_cast<std::size_t>(d)));
  for (std::size_t i = 0; i < a.rank(); ++i)
    if (!is_in(sum_a, i) && !is_in(batch_a, i)) dims.push_back(a.dim(i));
  for (std::size_t i = 0; i < b.rank(); ++i)
    if (!is_in(sum_b, i) && !is_in(batch_b, i)) dims.push_back(b.dim(i));
  for (std::size_t i = 0; i < sum_a.size(); ++i)
    detail::expect(a.dim(static_cast<std::size_t>(sum_a[i])) == b.dim(static_cast<std::size_t>(sum_b[i])),
                   "dot sums over dimensions of one size");
  return detail::product(a, b, {.kind = Kind::dot, .element = {}, .dims = std::move(dims),
                                .lists = {std::move(batch_a), std::move(batch_b), std::move(sum_a), std::move(sum_b)}});
}
/// x W for vectors x of the last dimension: (.., In) and (In, Out) to (.., Out).
inline Value matmul(Value x, Value w) { return dot(x, w, {static_cast<std::int64_t>(x.rank()) - 1}, {0}); }

/// How a convolution of images (B, H, W, C) with kernels (H, W, C / groups, F) reads them.
struct Convolved {
  Dims stride{1, 1}, low{0, 0}, high{0, 0};                                // pixels of padding before and after
  Dims spread{1, 1}, dilation{1, 1};                                       // distance of pixels, and of kernel entries
  std::int64_t groups = 1;
};

namespace detail {

/// numbers   which dimension of x, kernel and result is which: "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
inline Value convolution(Value x, Value kernel, Convolved const& how, std::string_view numbers, Dims dims,
                         std::int64_t batch_groups = 1) {
  return product(x, kernel, {.kind = Kind::convolution, .element = {}, .dims = std::move(dims),
                             .lists = {how.stride, how.low, how.high, how.spread, how.dilation,
                                       {how.groups, batch_groups}},
                             .word = numbers});
}
inline constexpr std::string_view images = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]";

}  // namespace detail

/// A convolution of images (B, H, W, C) with kernels (H, W, C / groups, F), which are not mirrored.
inline Value convolution(Value x, Value kernel, Convolved const& how) {
  auto dims = Dims{x.dim(0), 0, 0, kernel.dim(3)};
  for (std::size_t i = 0; i < 2; ++i) {
    auto const in    = (x.dim(i + 1) - 1) * how.spread[i] + 1 + how.low[i] + how.high[i];
    auto const reach = (kernel.dim(i) - 1) * how.dilation[i] + 1;
    dims[i + 1]      = (in - reach) / how.stride[i] + 1;
  }
  return detail::convolution(x, kernel, how, detail::images, dims);
}

/// Rows of a matrix by ids: (V, W) and ids of any shape to (ids.., W).
inline Value gather(Value table, Value ids) {
  auto dims = ids.dims();
  dims.push_back(table.dim(1));
  return table.program->append({Kind::gather, table.element(), std::move(dims), {table.id, ids.id}});
}
/// A matrix of so many rows, each the sum of those vectors of x whose id it is: (ids.., W) to (V, W).
inline Value scatter(Value x, Value ids, std::int64_t rows) {
  auto const zeros = x.program->constant(0, {rows, x.dims().back()}, x.element());
  return x.program->append({Kind::scatter, x.element(), zeros.dims(), {zeros.id, ids.id, x.id}});
}

/// The sum over all replicas, equal on each.
inline Value all_reduce(Value x) {
  if (x.program->replicas() == 1) return x;
  return x.program->append({Kind::all_reduce, x.element(), x.dims(), {x.id}});
}
/// The parts of all replicas along dimension 0, in their order.
inline Value all_gather(Value x) {
  auto dims = x.dims();
  dims[0] *= x.program->replicas();
  if (x.program->replicas() == 1) return x;
  return x.program->append({Kind::all_gather, x.element(), std::move(dims), {x.id}});
}
/// This replica's part, along dimension 0, of the sum over all.
inline Value reduce_scatter(Value x) {
  auto dims = x.dims();
  dims[0] /= x.program->replicas();
  if (x.program->replicas() == 1) return x;
  return x.program->append({Kind::reduce_scatter, x.element(), std::move(dims), {x.id}});
}

}  // namespace chorale::nn::stablehlo
