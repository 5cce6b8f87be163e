// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/hash.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// A short text in a constexpr value.
struct Name {
  std::array<char, 96> text{};
  std::size_t length = 0;

  constexpr Name() = default;
  constexpr Name(std::string_view s) { *this += s; }
  constexpr Name& operator+=(std::string_view s) {
    for (char const c : s) text.at(length++) = c;  // .at: too long a name does not compile
    return *this;
  }
  constexpr operator std::string_view() const { return {text.data(), length}; }
};

/// How a variable gets its first values. Limits as in Keras: uniform has limit sqrt(3 · scale), normal is not
/// truncated. `orthogonal` is a matrix, whose last dimension are its columns: see write_orthogonal. `unit_forget` is the
/// bias of an LSTM: zeros, and ones in the second quarter.
///
/// source  Glorot & Bengio, AISTATS 2010: scale 2 / (fan_in + fan_out); He et al., ICCV 2015: scale 2 / fan_in;
///         Saxe et al., ICLR 2014; Jozefowicz et al., ICML 2015
enum class Init { zeros, ones, glorot_uniform, glorot_normal, he_uniform, he_normal, orthogonal, unit_forget };

/// Name of an initializer as a network writes it.
constexpr std::string_view text_of(Init init) {
  constexpr auto names = std::array<std::string_view, 8>{"Zeros",     "Ones",     "GlorotUniform", "GlorotNormal",
                                                         "HeUniform", "HeNormal", "Orthogonal",    "UnitForget"};
  return names.at(static_cast<std::size_t>(init));
}

/// How an update moves a variable that is not trained: next = keep · now + take · mean, where `mean`, over the rows of all
/// replicas, is of what replicas wrote in place of its gradient.
struct Movement {
  float keep, take;

  friend constexpr bool operator==(Movement, Movement) = default;
};

/// How a variable is split over the ranks along an axis of a mesh: each has one of `parts` parts of dimension `dim`. The
/// variable's dims are one part's, and equal on all ranks. Where the whole does not divide, or is not dealt out in
/// order, `index_of` says which index of the whole a part has where, and what no part needs is padding. See each_run.
struct Split {
  int dim = 0, parts = 1;
  std::string_view along{};                    // name of the axis
  int blocks                       = 1;        // of the dimension: a part of each of them
  int whole                        = 0;        // extent of the whole; 0: parts times a part's
  int (*index_of)(int part, int i) = nullptr;  // index i of a part in the whole; -1: padding

  /// Extent of the dimension in the whole variable, where a part has `extent`.
  constexpr int extent_of_whole(int extent) const { return whole == 0 ? parts * extent : whole; }
  /// The index in the whole of index i of a part; -1: it is padding, which is never read and never saved.
  constexpr int in_whole(int part, int i, int extent) const {
    if (index_of != nullptr) return index_of(part, i);
    auto const run = extent / blocks;
    return (i / run * parts + part) * run + i % run;
  }

  friend constexpr bool operator==(Split const&, Split const&) = default;
};

/// One variable of a network, as its layer declares it.
struct VariableSpec {
  std::string_view name;  // within its layer: "kernel", "bias"
  std::array<int, 4> dims{};
  int rank   = 0;
  Init init  = Init::zeros;
  int fan_in = 1, fan_out = 1;
  float momentum = 0;      // not 0: a moving average, not trained
  bool by_rows   = false;  // its gradient is rows. See RowGradients
  bool tracked   = false;  // true: an update adds the mean change to it
  Split split{};

  constexpr bool trained() const { return momentum == 0 && !tracked; }
  constexpr Movement movement() const { return tracked ? Movement{1, 1} : Movement{momentum, 1 - momentum}; }
  constexpr std::size_t size() const {
    std::size_t n = 1;
    for (int i = 0; i < rank; ++i) n *= static_cast<std::size_t>(dims[static_cast<std::size_t>(i)]);
    return n;
  }
};

/// One variable of a network, as the plan places it.
struct PlannedVariable {
  Name name;  // in the network: "conv2d/kernel"
  VariableSpec spec;
  int layer          = 0;  // position in the network, 0-based
  std::size_t offset = 0;  // elements from the start of the arena part
  std::size_t size   = 0;  // elements, padding not counted

  constexpr std::size_t end() const { return offset + size; }
  /// The first element in a slot of an optimizer, which has neither header nor trailer.
  constexpr std::size_t slot_offset() const;
};

namespace detail {

constexpr std::size_t arena_bytes(std::size_t elements, std::size_t table_elements, int slots) {
  auto const n = static_cast<std::size_t>(slots);
  return sizeof(float) * (elements * (2 + n) + table_elements * (1 + n));
}

}  // namespace detail

namespace plan {

inline constexpr std::size_t header  = 16;  // elements before the first variable
inline constexpr std::size_t trailer = 16;  // and after the last one
inline constexpr std::size_t align   = 16;  // elements: one cache line of float

/// The first element from `offset` on where a variable may begin.
constexpr std::size_t aligned(std::size_t offset) { return (offset + align - 1) / align * align; }

inline constexpr std::size_t bucket_bytes = std::size_t{256} << 10;  // a bucket closes when it holds at least this

}  // namespace plan

constexpr std::size_t PlannedVariable::slot_offset() const {
  return offset - plan::header - (spec.by_rows ? plan::trailer : 0);
}

/// Everything about a network that does not depend on the number of ranks, as one constexpr value.
///
///   variables, gradients and optimizer slots share one layout:
///
///   | header | last layer | ... | first layer | trailer |     offsets grow in the order in which backward finishes
///   |<-- bucket 0 -->|<--     bucket 1     -->|            gradients: contiguous buckets, closed from the front
///
///   A moving average has a place, too. Its place in the gradients holds the target that it moves towards, times rows:
///   the target is reduced with the gradients, so that all replicas move the average alike. For a tracked variable the
///   place holds, times rows, the change that this replica made to it in the step: all replicas add the mean of these.
///
///   Tables whose gradients are rows lie after the trailer, and have no place in the gradients: see RowGradients.
///
///   values     | header | dense variables | trailer | table | table |        elements + table_elements
///   gradients  | header | dense variables | trailer |                        elements
///   slot       | dense variables | table | table |                           slot_stride()
///
///   In the gradients the header carries the step's loss, rows and metrics, and the trailer carries which replicas had
///   a NaN: neither needs a separate message between ranks. See StepHeader and StepTrailer.
///
/// keeps   `variables` is in reading order; each offset is a multiple of plan::align; padding is always zero
template <std::size_t N, std::size_t Layers> struct Plan {
  std::array<PlannedVariable, N> variables{};
  std::array<std::size_t, Layers> ready{};  // gradients below this are final after layer i
  std::array<std::size_t, N + 1> bucket_ends{};
  std::size_t buckets             = 0;
  std::size_t elements            = 0;  // of the gradients, padding included
  std::size_t table_elements      = 0;  // of tables whose gradients are rows
  std::size_t parameters          = 0;  // trainable numbers
  std::size_t activations_per_row = 0;  // elements that forward writes for one row
  std::size_t products_per_row    = 0;  // and multiplications in matrix products
  std::uint64_t hash              = 0;  // of names, shapes, places, and what is trained

  constexpr std::size_t bytes_per_step() const { return elements * sizeof(float); }  // what an all-reduce combines
  constexpr Span<std::size_t const> ends() const { return {bucket_ends.data(), buckets}; }
  constexpr Range body() const { return {plan::header, elements - plan::trailer}; }  // of the dense variables

  /// Bytes of one replica's arena with an optimizer of that many slots per variable.
  constexpr std::size_t arena_bytes(int slots) const { return detail::arena_bytes(elements, table_elements, slots); }
};

namespace detail {

/// Sizes that lay_out() computes.
struct PlanSizes {
  std::size_t elements = 0, table_elements = 0, parameters = 0, buckets = 0;
};

/// Gives each variable its offset. The variables have their names, specs, sizes and layers, which ascend.
///
/// ready     one for each layer; bucket_ends: room for one more than there are variables
constexpr PlanSizes lay_out(Span<PlannedVariable> variables, Span<std::size_t> ready, Span<std::size_t> bucket_ends) {
  auto made         = PlanSizes{};
  auto offset       = plan::header;
  auto bucket_begin = std::size_t{0};
  auto end          = variables.size();  // of the variables of one layer
  for (std::size_t layer = ready.size(); layer-- > 0;) {
    auto begin = end;
    while (begin > 0 && variables[begin - 1].layer == static_cast<int>(layer)) --begin;
    for (std::size_t i = begin; i < end; ++i) {
      made.parameters += variables[i].spec.trained() ? variables[i].size : 0;
      if (variables[i].spec.by_rows) continue;
      variables[i].offset = offset;
      offset += plan::aligned(variables[i].size);
    }
    end          = begin;
    ready[layer] = offset;
    if (layer == 0) offset += plan::trailer;
    if ((offset - bucket_begin) * sizeof(float) >= plan::bucket_bytes || layer == 0) {
      if (offset > bucket_begin) bucket_ends[made.buckets++] = offset;
      bucket_begin = offset;
    }
  }
  made.elements = offset;
  for (auto& v : variables)
    if (v.spec.by_rows) v.offset = std::exchange(offset, offset + plan::aligned(v.size));
  made.table_elements = offset - made.elements;
  return made;
}

/// Hash of the names, shapes and places of variables, and of whether each is trained.
constexpr std::uint64_t plan_hash(Span<PlannedVariable const> variables) {
  auto hash = Fnv1a<std::uint64_t>{};
  for (auto const& v : variables) {
    hash.add(std::string_view{v.name});
    for (int const d : v.spec.dims) hash.add(static_cast<std::uint64_t>(d), 4);
    hash.add(v.offset);
    if (!v.spec.trained()) hash.add(v.spec.tracked ? 3 : 1, 1);
    if (v.spec.by_rows) hash.add(2, 1);
  }
  return hash.value();
}

}  // namespace detail

/// Lays out the variables of a network; `specs` and `layers` in reading order, `layers[i]` the layer of specs[i].
///
/// source  packing in reverse layer order, so that the first bucket is sent while early layers still compute:
///         Li et al., "PyTorch Distributed", VLDB 2020
template <std::size_t N, std::size_t Layers>
constexpr Plan<N, Layers> make_plan(std::array<VariableSpec, N> const& specs, std::array<Name, N> const& names,
                                    std::array<int, N> const& layers) {
  auto made = Plan<N, Layers>{};
  for (std::size_t i = 0; i < N; ++i) made.variables[i] = {names[i], specs[i], layers[i], 0, specs[i].size()};
  auto const sizes    = detail::lay_out(made.variables, made.ready, made.bucket_ends);
  made.buckets        = sizes.buckets;
  made.elements       = sizes.elements;
  made.table_elements = sizes.table_elements;
  made.parameters     = sizes.parameters;
  made.hash           = detail::plan_hash(made.variables);
  return made;
}

/// A plan as code sees it that does not know the network: the constexpr plan of one, or a RunTimePlan. It has the
/// members of Plan.
///
/// keeps   a view: the plan outlives it
struct PlanView {
  Span<PlannedVariable const> variables;  // in reading order
  Span<std::size_t const> bucket_ends;
  std::size_t buckets        = 0;
  std::size_t elements       = 0;  // of the gradients, padding included
  std::size_t table_elements = 0;  // of tables whose gradients are rows
  std::size_t parameters     = 0;  // trainable numbers
  std::uint64_t hash         = 0;
  bool whole                 = true;  // false: of one stage of a network

  constexpr PlanView() = default;
  template <std::size_t N, std::size_t Layers>
  constexpr PlanView(Plan<N, Layers> const& p)
      : variables{p.variables}, bucket_ends{p.ends()}, buckets{p.buckets}, elements{p.elements},
        table_elements{p.table_elements}, parameters{p.parameters}, hash{p.hash} {}

  constexpr std::size_t bytes_per_step() const { return elements * sizeof(float); }  // what an all-reduce combines
  constexpr Span<std::size_t const> ends() const { return bucket_ends; }

  /// Elements of the variables, tables included.
  constexpr std::size_t values() const { return elements + table_elements; }
  /// Elements of one slot of an optimizer: all variables without header and trailer.
  constexpr std::size_t slot_stride() const { return values() - plan::header - plan::trailer; }
  constexpr Range body() const { return {plan::header, elements - plan::trailer}; }  // of the dense variables

  /// Bytes of one replica's arena with an optimizer of that many slots per variable.
  constexpr std::size_t arena_bytes(int slots) const { return detail::arena_bytes(elements, table_elements, slots); }
};

/// One line for each variable, in reading order: what ranks compare before they train together.
///
///   dense/kernel f32[784,256]
inline std::vector<std::string> lines_of(PlanView const& p) {
  auto lines = std::vector<std::string>{};
  for (auto const& v : p.variables) {
    auto line = std::string{std::string_view{v.name}} + " f32[";
    for (int i = 0; i < v.spec.rank; ++i)
      line.append(i ? "," : "") += std::to_string(v.spec.dims[static_cast<std::size_t>(i)]);
    lines.push_back(line + "]");
  }
  return lines;
}

/// Writes a readable table: one line for each variable, then buckets and bytes.
inline std::ostream& operator<<(std::ostream& out, PlanView const& p) {
  for (auto const& v : p.variables) {
    auto dims = std::string{};
    for (int i = 0; i < v.spec.rank; ++i)
      dims.append(i ? ", " : "") += std::to_string(v.spec.dims[static_cast<std::size_t>(i)]);
    out << sentence("{}  ({})  {} float32 at {}{}\n", std::string_view{v.name}, dims, v.size, v.offset,
                    !v.spec.trained() ? ", not trained"
                    : v.spec.by_rows  ? ", gradient by rows"
                                      : "");
  }
  return out << sentence("{} parameters, {} buckets, {} bytes reduced per step, hash {}\n", p.parameters, p.buckets,
                         p.bytes_per_step(), formatted("%llx", static_cast<unsigned long long>(p.hash)));
}

}  // namespace chorale
