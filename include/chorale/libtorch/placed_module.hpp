// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/libtorch/module_variables.hpp>
#include <chorale/tensor/variable.hpp>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::libtorch {

/// The variables of one module in the memory of one copy of a model: libtorch reads parameters and float buffers there,
/// and adds gradients up there.
///
///   | header | buffers | last parameter | ... | first parameter | trailer |
///
/// keeps   stays where it was made: libtorch's hooks point to it
/// source  hooks after the accumulation of each gradient: Li et al., "PyTorch Distributed", VLDB 2020
class PlacedModule {
  using Kind = ModuleVariable::Kind;

 public:
  explicit PlacedModule(ModuleVariables of) : of_{std::move(of)}, versions_(of_.constants.size()) {}

  PlacedModule(PlacedModule const&)            = delete;
  PlacedModule& operator=(PlacedModule const&) = delete;

  /// Puts the variables into this memory; the first call brings the module's values there.
  void place(Variables const& variables, Gradients const& gradients) {
    auto const guard = torch::NoGradGuard{};
    places_.resize(of_.variables.size());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      auto& variable  = of_.variables[i];
      auto const to   = Place{variables[i].value, gradients[i]};
      auto const move = to.value.data() != places_[i].value.data();
      places_[i]      = to;
      if (variable.kind == Kind::counter) {
        if (move) to.value[0] = static_cast<float>(variable.tensor.item<std::int64_t>());
        continue;
      }
      if (move) {
        auto const at = torch::from_blob(to.value.data(), variable.tensor.sizes());
        at.copy_(variable.tensor);
        variable.tensor.set_data(at);
      }
      if (variable.kind == Kind::trained) place_gradient(i);
    }
    tracked_.clear();
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (of_.variables[i].kind == Kind::tracked) tracked_.push_back(places_[i]);
    if (hooked_.empty()) hook();
  }

  /// Prepares a step: checks that nothing was moved, and remembers what forward changes.
  void begin_forward() {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      auto& [name, tensor, kind] = of_.variables[i];
      if (kind == Kind::counter) {
        tensor.fill_(static_cast<std::int64_t>(std::llround(places_[i].value[0])));
        continue;
      }
      if (tensor.data_ptr() != places_[i].value.data())
        throw BadArgument{"the module has moved " + name + " out of the memory of its copy of the model.",
                          "to() and set_data() where the module is made; later a step changes values in place."};
      if (kind == Kind::trained && !has_gradient(i)) place_gradient(i);
    }
    before_.clear();
    for (auto const& [value, gradient] : tracked_) before_.insert(before_.end(), value.begin(), value.end());
    for (std::size_t i = 0; i < versions_.size(); ++i) versions_[i] = version_of(i);
  }

  /// Puts the values of the buffers back, as they were before forward.
  void restore() {
    auto at = before_.begin();
    for (auto const& [value, gradient] : tracked_) {
      std::copy_n(at, value.size(), value.begin());
      at += static_cast<std::ptrdiff_t>(value.size());
    }
  }

  /// Writes by how much forward has changed the buffers, times rows, in place of their gradients, and puts their values
  /// back: an update then adds the mean change of all replicas.
  void end_forward(float rows) {
    for (std::size_t i = 0; i < versions_.size(); ++i)
      if (version_of(i) != versions_[i])
        throw BadArgument{"a step has changed " + of_.constants[i].first +
                              ", which is no variable of the model: it is " +
                              (of_.constants[i].second.is_floating_point() ? "a parameter that needs no gradient."
                                                                           : "a buffer of integers."),
                          "a buffer of Float for what a step changes, or one integer for a count."};
    auto at = before_.begin();
    for (auto const& [value, gradient] : tracked_)
      for (std::size_t k = 0; k < value.size(); ++k) {
        gradient[k] = (value[k] - *at) * rows;
        value[k]    = *at++;
      }
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (of_.variables[i].kind == Kind::counter) {
        auto const now         = static_cast<double>(of_.variables[i].tensor.item<std::int64_t>());
        places_[i].gradient[0] = static_cast<float>(now - static_cast<double>(places_[i].value[0])) * rows;
      }
  }

  /// Computes gradients by this loss, and reports each variable to the step as soon as it is final.
  ///
  /// throws   BadArgument when a parameter gets no gradient; what reporting has thrown
  template <class Step> void backward(torch::Tensor const& loss, Step& step) {
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (of_.variables[i].kind != Kind::trained) step.done(i);
    came_.assign(places_.size(), 0);
    thrown_ = nullptr;
    report_ = {&step, [](void* to, std::size_t i) { static_cast<Step*>(to)->done(i); }};
    struct End {
      Report& report;
      ~End() { report = {}; }
    } const end{report_};
    if (loss.requires_grad()) loss.backward();
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    expect_gradients();
  }

  /// Sets counters, which libtorch keeps in separate memory, to the values of the variables.
  void update_counters() {
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (of_.variables[i].kind == Kind::counter)
        of_.variables[i].tensor.fill_(static_cast<std::int64_t>(std::llround(places_[i].value[0])));
  }

 private:
  struct Place {
    Span<float> value, gradient;
  };
  struct Report {
    void* step                       = nullptr;
    void (*call)(void*, std::size_t) = nullptr;
  };

  /// Called by libtorch when it has added a gradient up.
  struct Hook : torch::autograd::FunctionPostHook {
    Hook(PlacedModule& of, std::size_t i) : module{&of}, variable{i} {}
    torch::autograd::variable_list operator()(torch::autograd::variable_list const& outputs,
                                              torch::autograd::variable_list const&) override {
      module->report(variable);
      return outputs;
    }
    PlacedModule* module;
    std::size_t variable;
  };
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<torch::Tensor const&>()));

  std::uint32_t version_of(std::size_t constant) const {
    return static_cast<std::uint32_t>(of_.constants[constant].second._version());
  }

  void place_gradient(std::size_t i) {
    auto& tensor          = of_.variables[i].tensor;
    tensor.mutable_grad() = torch::from_blob(places_[i].gradient.data(), tensor.sizes());
  }
  bool has_gradient(std::size_t i) const {
    auto const& gradient = of_.variables[i].tensor.grad();
    return gradient.defined() && gradient.is_contiguous() && gradient.data_ptr() == places_[i].gradient.data();
  }

  void hook() {
    for (std::size_t i = 0; i < of_.variables.size(); ++i) {
      if (of_.variables[i].kind != Kind::trained) continue;
      auto node = torch::autograd::impl::grad_accumulator(of_.variables[i].tensor);
      node->add_post_hook(std::make_unique<Hook>(*this, i));
      hooked_.push_back(std::move(node));  // a tensor holds it only weakly
    }
  }

  /// keeps   throws nothing: libtorch would have to carry it through its own code
  void report(std::size_t i) {
    if (report_.call == nullptr || thrown_) return;
    try {
      if (!has_gradient(i))
        throw BadArgument{"the gradient of " + of_.variables[i].name + " is not where its copy of the model has it.",
                          "no zero_grad() and no change of grad() in the loss: the library does both."};
      came_[i] = 1;
      report_.call(report_.step, i);
    } catch (...) { thrown_ = std::current_exception(); }
  }

  void expect_gradients() const {
    auto missing = std::size_t{0}, first = std::size_t{0}, trained = std::size_t{0};
    for (std::size_t i = places_.size(); i-- > 0;) {
      if (of_.variables[i].kind != Kind::trained) continue;
      ++trained;
      if (came_[i] == 0) ++missing, first = i;
    }
    if (missing != 0)
      throw BadArgument{std::to_string(missing) + " of " + std::to_string(trained) +
                            " parameters of the module get no "
                            "gradient, the first of them is " +
                            of_.variables[first].name + ".",
                        "a loss that depends on it, or requires_grad_(false) where the module is made."};
  }

  ModuleVariables of_;
  std::vector<Place> places_;   // of all variables
  std::vector<Place> tracked_;  // of float buffers
  std::vector<Accumulator> hooked_;
  std::vector<float> before_;            // values of buffers, before forward
  std::vector<std::uint32_t> versions_;  // of the constants, before forward
  std::vector<char> came_;               // 1: the gradient was reported in this step
  Report report_;
  std::exception_ptr thrown_;  // by a report, in this step
};

}  // namespace chorale::libtorch
