// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "asked.hpp"
#include "report.hpp"

#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace bench {

/// The peers of one model, which stay in their processes, because they start slowly. One that cannot start is told and
/// left out.
class ModelPeers {
 public:
  ModelPeers(std::string const& model, std::size_t batch, int threads) {
    auto const start = [&](std::string const& name, std::string const& file, std::string const& how) {
      try {
        all_[name] = std::make_unique<Asked>(python() + " '" + script(file) + "' " + model + " --batch " +
                                             std::to_string(batch) + " --threads " + std::to_string(threads) + how);
      } catch (std::exception const& error) {
        std::fprintf(stderr, "SKIPPED: %s of %s: %s\n", name.c_str(), model.c_str(), error.what());
      }
    };
    if (has("torch")) {
      start("torch eager", "models_torch_peer.py", "");
      start("torch compiled", "models_torch_peer.py", " --compiled");
    }
    if ((model == "tickets" || model == "resnet") && has("tensorflow")) {
      start("tensorflow", "models_keras_peer.py", "");
      start("tensorflow xla", "models_keras_peer.py", " --compiled");
    }
  }

  void measure(int steps) {
    for (auto& [name, peer] : all_) {
      auto const said = peer->ask(std::to_string(steps));
      ms_[name].push_back(number_after(said, "ms_per_step"));
      megabytes_[name] = said.find("megabytes") == said.npos ? 0 : number_after(said, "megabytes");
    }
  }
  /// By how much each peer's memory has grown at the most since its libraries were loaded; 0 if it does not say.
  std::map<std::string, double> const& megabytes() const { return megabytes_; }
  std::map<std::string, std::vector<double>> const& ms() const { return ms_; }

 private:
  static bool has(std::string const& package) {
    try {
      output_of(python() + " -c 'import " + package + "'");
      return true;
    } catch (std::exception const&) {
      std::fprintf(stderr, "SKIPPED: %s: %s has none\n         Try: CHORALE_PYTHON=interpreter\n", package.c_str(),
                   python().c_str());
      return false;
    }
  }

  std::map<std::string, std::unique_ptr<Asked>> all_;
  std::map<std::string, std::vector<double>> ms_;
  std::map<std::string, double> megabytes_;
};

}  // namespace bench
