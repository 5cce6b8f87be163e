// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>
#include <chorale/libtorch/tensor.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/run_time_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale::libtorch {

/// One variable of a module. A trained one is a parameter. A tracked one is a buffer: of float32, which lies in the
/// copy's memory, or a counter, an integer that libtorch keeps beside it.
struct ModuleVariable {
  enum class Kind { trained, tracked, counter };

  std::string name;  // "layers.0.weight"
  torch::Tensor tensor;
  Kind kind;
};

/// What of a module becomes variables, and what stays in it.
///
/// variables   parameters that need a gradient, then buffers: what is computed first leaves last
/// constants   frozen parameters, and buffers of integers or bools: no step may change them
struct ModuleVariables {
  std::vector<ModuleVariable> variables;
  std::vector<std::pair<std::string, torch::Tensor>> constants;
};

namespace detail {

/// Throws where a tensor of a module cannot lie in a copy's memory.
inline void expect_plain(std::string const& what, torch::Tensor const& tensor) {
  auto const bad = [&](std::string const& is, std::string const& needs, std::string const& to_try) {
    throw BadArgument{"the " + what + " of the module is " + is + ", and a copy of a model has " + needs + ".", to_try};
  };
  if (!tensor.device().is_cpu())
    bad("on " + tensor.device().str(), "its variables on the CPU", "module->to(torch::kCPU) where it is made.");
  if (tensor.layout() != torch::kStrided) bad("sparse", "dense variables", "a dense tensor.");
  if (tensor.scalar_type() != torch::kFloat32)
    bad("of " + std::string{c10::toString(tensor.scalar_type())} + ", " + std::to_string(8 * tensor.element_size()) +
            " bits",
        "variables of Float, 32 bits", "module->to(torch::kFloat32) where it is made.");
}

/// The generator that libtorch's initializers draw from: one for the process.
inline std::mutex& generator_in_use() {
  static auto mutex = std::mutex{};
  return mutex;
}

inline void seed_generator(std::uint64_t seed) {
  auto generator   = at::detail::getDefaultCPUGenerator();
  auto const guard = std::lock_guard{generator.mutex()};
  generator.set_current_seed(seed);
}

}  // namespace detail

/// Makes a module whose first values are a function of the seed. libtorch's generator is as before when it returns.
template <class Make> auto made_with_seed(Make const& make, Seed seed) {
  struct Before {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    torch::Tensor state     = [this] {
      auto const guard = std::lock_guard{generator.mutex()};
      return generator.get_state();
    }();
    ~Before() {
      auto const guard = std::lock_guard{generator.mutex()};
      generator.set_state(state);
    }
  };
  auto const turn   = std::lock_guard{detail::generator_in_use()};
  auto const before = Before{};
  detail::seed_generator(seed.value);
  return make();
}

/// Lists the variables and constants of a module. A tensor that is registered twice counts once, by its first name.
///
/// throws   BadArgument in one sentence when a parameter or a buffer does not fit
inline ModuleVariables variables_of(torch::nn::Module const& module) {
  using Kind        = ModuleVariable::Kind;
  auto found        = ModuleVariables{};
  auto seen         = std::vector<void const*>{};
  auto const is_new = [&](torch::Tensor const& tensor) {
    auto const* const is = tensor.unsafeGetTensorImpl();
    if (std::ranges::count(seen, is) != 0) return false;
    seen.push_back(is);
    return true;
  };
  for (auto const& item : module.named_parameters()) {
    if (!is_new(item.value())) continue;
    if (!item.value().requires_grad()) found.constants.emplace_back(item.key(), item.value());
    else
      detail::expect_plain("parameter " + item.key(), item.value()),
          found.variables.push_back({item.key(), item.value(), Kind::trained});
  }
  if (found.variables.empty())
    throw BadArgument{"the module has 0 parameters that need a gradient, and 1 is needed.",
                      "register_parameter and register_module, in the constructor of the module."};
  for (auto const& item : module.named_buffers()) {
    if (!is_new(item.value())) continue;
    auto const& tensor = item.value();
    if (tensor.is_floating_point()) {
      detail::expect_plain("buffer " + item.key(), tensor);
      found.variables.push_back({item.key(), tensor, Kind::tracked});
    } else if (tensor.scalar_type() == torch::kInt64 && tensor.numel() == 1) {
      found.variables.push_back({item.key(), tensor, Kind::counter});
    } else {
      found.constants.emplace_back(item.key(), tensor);
    }
  }
  return found;
}

/// The variables of a module for a RunTimePlan. A tensor of more than four dimensions counts as one of four, the last
/// of them multiplied.
inline std::vector<NamedShape> shapes_of(ModuleVariables const& of) {
  constexpr auto most = std::tuple_size_v<decltype(VariableSpec::dims)>;
  auto shapes         = std::vector<NamedShape>{};
  for (auto const& v : of.variables) {
    auto dims = std::vector<int>(v.tensor.sizes().begin(), v.tensor.sizes().end());
    if (dims.size() > most) {
      dims[most - 1] = std::accumulate(dims.begin() + most - 1, dims.end(), 1, std::multiplies<>{});
      dims.resize(most);
    }
    shapes.push_back({.name = v.name, .dims = std::move(dims), .tracked = v.kind != ModuleVariable::Kind::trained});
  }
  return shapes;
}

/// Hash of the names and bytes of what stays in a module; ranks compare it.
inline std::uint64_t hash_of_constants(ModuleVariables const& of) {
  auto hash = Fnv1a<std::uint64_t>{};
  for (auto const& [name, tensor] : of.constants) {
    hash.add(std::string_view{name});
    auto const plain = tensor.detach().to(torch::kCPU).contiguous();
    hash.add(std::string_view{static_cast<char const*>(plain.data_ptr()), plain.nbytes()});
  }
  return hash.value();
}

}  // namespace chorale::libtorch
