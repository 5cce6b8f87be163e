// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/device/device.hpp>
#include <chorale/device/pjrt/client.hpp>
#include <chorale/device/pjrt/plugin.hpp>

#include <cstddef>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale {

/// Devices of a PJRT plug-in: TPUs, or CPU devices of XLA. Named as one device with several cores, or as several.
///
///   auto const tpus = Pjrt::open("/lib/libtpu.so");                        all devices of this host
///   auto const four = Pjrt::open(path, {.devices = 8}).first(4);          four of eight CPU devices
///
/// keeps   a value, cheap to copy. A process has one client for each plug-in and number of devices; it stays open
class Pjrt {
 public:
  static constexpr Memory memory = Memory::host;                           // of its blocks: the host's copy of variables
  using block                    = Cpu::block;

  struct Options {
    std::optional<int> devices{};                                          // of a plug-in for CPUs, which makes so many
    std::vector<pjrt::Option> others{};                                    // of the plug-in, see pjrt::Client
  };

  /// All devices of a plug-in that this process may use, as one.
  ///
  /// throws  BadArgument when there is no such plug-in; pjrt::PluginError when it has no device
  static Pjrt open(std::string const& path, Options const& options) {
    auto client = client_of(path, options);
    auto ids    = std::vector<int>{};
    for (auto const& device : client.devices()) ids.push_back(device.id);
    return Pjrt{std::move(client), 0, std::move(ids)};
  }

  static Pjrt open(std::string const& path) { return open(path, Options{}); }

  /// The devices of the plug-in that the environment names, each alone; none where there is none, and missing() then
  /// returns the reason.
  static std::vector<Pjrt> visible() {
    auto devices = std::vector<Pjrt>{};
    if (!missing().empty()) return devices;
    auto const all = open(pjrt::Plugin::path_from_environment());
    for (std::size_t i = 0; i < all.cores_.size(); ++i)
      devices.push_back(Pjrt{all.client_, static_cast<int>(i), {all.cores_[i]}});
    return devices;
  }

  /// The reason why the environment gives no device, as a sentence; empty if it gives one.
  static std::string missing() {
    try {
      static_cast<void>(open(pjrt::Plugin::path_from_environment()));
      return {};
    } catch (Error const& error) {
      return error.what();
    }
  }

  int index() const { return index_; }                                     // of the first core among those of the client
  std::vector<int> const& cores() const { return cores_; }                 // ids of its devices
  pjrt::Client const& client() const { return client_; }

  /// The first n of these devices, as one.
  Pjrt first(int n) const {
    CHORALE_EXPECTS(n >= 1 && static_cast<std::size_t>(n) <= cores_.size(),
                    sentence("{} devices are asked for, of {} of the PJRT plug-in {}", n, cores_.size(),
                             client_.plugin().path()));
    return Pjrt{client_, index_, {cores_.begin(), cores_.begin() + n}};
  }

  block allocate(std::size_t bytes) const { return block{bytes}; }
  void  synchronize() const { client_.synchronize(); }

 private:
  Pjrt(pjrt::Client client, int index, std::vector<int> cores)
      : client_{std::move(client)}, index_{index}, cores_{std::move(cores)} {}

  /// The client of a plug-in with these options: the one that the process has, or a new one.
  static pjrt::Client client_of(std::string const& path, Options const& options) {
    struct Clients {
      std::mutex mutex;
      std::vector<std::tuple<pjrt::Plugin, std::map<std::string, pjrt::OptionValue>, pjrt::Client>> open;
    };
    static auto& clients = *new Clients;                                   // never freed, as plug-ins are
    auto const plugin    = pjrt::Plugin::open(path);
    auto named           = options.others;
    if (options.devices) named.push_back({"cpu_device_count", std::int64_t{*options.devices}});
    auto key             = std::map<std::string, pjrt::OptionValue>{};
    for (auto const& option : named)
      CHORALE_EXPECTS(key.emplace(option.name, option.value).second,
                      "the option " + option.name + " of a PJRT client is given twice");
    auto const lock      = std::lock_guard{clients.mutex};
    for (auto const& [p, k, client] : clients.open)
      if (p == plugin && k == key) return client;
    return std::get<2>(clients.open.emplace_back(plugin, key, pjrt::Client{plugin, named}));
  }

  pjrt::Client client_;
  int index_;
  std::vector<int> cores_;
};

static_assert(Device<Pjrt>);

}  // namespace chorale
