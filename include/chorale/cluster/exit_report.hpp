// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error \
    "chorale: <nlohmann/json.hpp> is not on the include path. Try: apt-get install nlohmann-json3-dev \
(Debian), dnf install json-devel (Fedora), brew install nlohmann-json (Homebrew) or vcpkg install \
nlohmann-json"
#endif

#include <chorale/core/error.hpp>

#include <chorale/cluster/environment.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <exception>
#include <fstream>
#include <iostream>
#include <ostream>
#include <string>

namespace chorale {

/// Reports why this process ends: on standard error, and in the file that a launcher provides for that.
///
///   catch (std::exception const& error) { return report_exit(error); }
///
/// env       TORCHELASTIC_ERROR_FILE of torchrun, which can then report this sentence as the root cause
/// returns   exit_code(error), for main()
/// source    torch.distributed.elastic.multiprocessing.errors.ErrorHandler
inline int report_exit(std::exception const& error, Environment const& env = Environment::of_process(),
                       std::ostream& out = std::cerr) {
  out << error.what() << '\n';
  if (!env.has("TORCHELASTIC_ERROR_FILE")) return exit_code(error);
  auto const path = std::string{env.get("TORCHELASTIC_ERROR_FILE")};
  auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  if (detail::is_a<PeerLost>(error)) now += std::chrono::seconds{1};  // torchrun's root cause is the first
  auto const told = nlohmann::json{
      {"message", {{"message", error.what()}, {"extraInfo", {{"timestamp", std::to_string(now.count())}}}}}};
  auto file = std::ofstream{path};
  file << told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::flush;
  if (!file) out << "chorale: cannot write TORCHELASTIC_ERROR_FILE, " << path << '\n';
  return exit_code(error);
}

}  // namespace chorale
