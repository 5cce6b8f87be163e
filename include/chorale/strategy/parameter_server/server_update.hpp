// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/plain_data.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// Values of the variables that a ServerUpdate was called for, in the order in which they were named.
using ServerValues = Span<Span<float> const>;

namespace detail {

template <class F> struct ServerSignature;  // not defined for a function with auto
template <class C, class R, class... A> struct ServerSignature<R (C::*)(ServerValues, A...) const> {
  using result    = R;
  using arguments = std::tuple<std::decay_t<A>...>;
  using type      = R(A...);
};

template <class F> concept HasServerSignature = requires { typename ServerSignature<decltype(&F::operator())>::type; };

template <class T> inline constexpr bool all_plain                      = false;
template <class... A> inline constexpr bool all_plain<std::tuple<A...>> = (PlainData<A> && ...);

}  // namespace detail

/// A function that a parameter server calls with the values of related variables, which it may change together.
///
///   auto const swap = ServerUpdate{"swap", [](ServerValues values, float scale) {
///     for (std::size_t i = 0; i < values[0].size(); ++i) {
///       std::swap(values[0][i], values[1][i]);
///       values[0][i] *= scale;
///     }
///   }};
///   auto strategy = ParameterServerStrategy{Cluster::from_env()}.with_updates(swap);      // in every process
///   replica.update_on_server(copy.net.variables(), swap, {"first", "second"}, 0.5F);      // in a step of a worker
///   here.update_on_server(swap, {"first", "second"}, 0.5F);                               // in a coordinator's program
///
/// f       f(ServerValues, arguments...), all of named types; arguments and result are PlainData
/// keeps   all changes are one version: no reader sees a part of them, and if f throws there are none. Slots of the
///         optimizer stay. Applied once, when it arrives, between two pushes or rounds
/// source  what Dean et al., NIPS 2012, lacks: an update of related parameters, and computing at the server
template <class F> class ServerUpdate {
  static_assert(detail::HasServerSignature<F>,
                "chorale: the function of a ServerUpdate is called as f(ServerValues, arguments...) const, and its "
                "arguments have named types: no auto");

 public:
  ServerUpdate(std::string name, F f) : name_{std::move(name)}, f_{std::move(f)} {}

  std::string const& name() const { return name_; }
  F const& function() const { return f_; }

  /// A hash of name, arguments and result: workers and servers that disagree about them find out.
  std::uint64_t key() const {
    if constexpr (detail::HasServerSignature<F>)
      return Fnv1a<std::uint64_t>{}
          .add(name_ + ' ' + type_name<typename detail::ServerSignature<decltype(&F::operator())>::type>())
          .value();
    else return 0;
  }

 private:
  std::string name_;
  F f_;
};

namespace parameter_server {

/// A ServerUpdate as a server keeps it.
struct KnownUpdate {
  std::string name;
  std::uint64_t key;
  std::size_t argument_bytes;
  std::function<std::vector<std::byte>(ServerValues, ConstBytes arguments)> call;  // returns the result's bytes
};

/// The bytes of some values, one after another.
template <class... A> constexpr std::size_t bytes_of_plain() { return (sizeof(A) + ... + 0); }

template <class F> KnownUpdate known(ServerUpdate<F> const& update) {
  using Signature = chorale::detail::ServerSignature<decltype(&F::operator())>;
  using Arguments = typename Signature::arguments;
  using Result    = typename Signature::result;
  static_assert(chorale::detail::all_plain<Arguments> && (std::is_void_v<Result> || PlainData<Result>),
                "chorale: arguments and result of a ServerUpdate are plain data, such as numbers and structs of them");
  constexpr auto bytes = []<class... A>(std::type_identity<std::tuple<A...>>) {
    return bytes_of_plain<A...>();
  }(std::type_identity<Arguments>{});
  return {update.name(), update.key(), bytes, [f = update.function()](ServerValues values, ConstBytes from) {
            auto arguments  = Arguments{};
            auto const read = [&](auto& one) {
              std::memcpy(&one, from.data(), sizeof one);
              from = from.subspan(sizeof one);
            };
            std::apply([&](auto&... each) { (read(each), ...); }, arguments);
            auto const call = [&](auto const&... each) -> Result { return f(values, each...); };
            auto result     = std::vector<std::byte>{};
            if constexpr (std::is_void_v<Result>) {
              std::apply(call, arguments);
            } else {
              auto const made = std::apply(call, arguments);
              result.resize(sizeof made);
              std::memcpy(result.data(), &made, sizeof made);
            }
            return result;
          }};
}

/// The largest message of a call of an update, in bytes: ranges of values, then arguments.
inline constexpr std::size_t most_update_bytes = std::size_t{1} << 20;

}  // namespace parameter_server
}  // namespace chorale
