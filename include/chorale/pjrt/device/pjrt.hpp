// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/device/device.hpp>
#include <chorale/pjrt/device/client.hpp>
#include <chorale/pjrt/device/plugin.hpp>

#include <cstddef>
#include <cstdint>
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
  static constexpr Memory memory = Memory::host;  // of its blocks: the host's variables
  using block                    = Cpu::block;

  struct Options {
    std::optional<int> devices{};        // how many; of CPUs the plug-in makes them
    std::vector<pjrt::Option> others{};  // of the plug-in, see pjrt::Client
  };

  /// Devices of a plug-in as one: all that this process may use, or the first `devices` of them.
  ///
  /// throws  BadArgument when the plug-in does not exist or has fewer devices; pjrt::PluginError when it has none
  static Pjrt open(pjrt::Plugin const& plugin, Options const& options) {
    auto client = client_of(plugin, options);
    auto ids    = std::vector<int>{};
    for (auto const& device : client.devices()) ids.push_back(device.id);
    auto const all = Pjrt{std::move(client), 0, std::move(ids)};
    return options.devices ? all.first(*options.devices) : all;
  }
  static Pjrt open(pjrt::Plugin const& plugin) { return open(plugin, Options{}); }
  static Pjrt open(std::string const& path, Options const& options) { return open(pjrt::Plugin::open(path), options); }
  static Pjrt open(std::string const& path) { return open(pjrt::Plugin::open(path)); }

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
    } catch (Error const& error) { return error.what(); }
  }

  int index() const { return index_; }                                  // of the first core, of the client's
  std::vector<int> const& cores() const { return cores_; }              // ids of its devices
  int num_replicas() const { return static_cast<int>(cores_.size()); }  // each computes its part of the rows
  pjrt::Client const& client() const { return client_; }

  /// The first n of these devices, as one.
  Pjrt first(int n) const {
    CHORALE_EXPECTS(
        n >= 1 && static_cast<std::size_t>(n) <= cores_.size(),
        sentence("{} devices are asked for, of {} of the PJRT plug-in {}", n, cores_.size(), client_.plugin().path()));
    return Pjrt{client_, index_, {cores_.begin(), cores_.begin() + n}};
  }

  /// These devices, each with a shard of the optimizer's state instead of all of it: see TPUStrategy<N, Zero::one>.
  Pjrt sharding_slots() const {
    auto same    = *this;
    same.shards_ = true;
    return same;
  }
  bool shards_slots() const { return shards_; }

  /// What a thread that computes on these devices holds: nothing, as they have threads of their own.
  struct Scope {
    explicit Scope(Pjrt const&) {}
    ~Scope() {}  // so that an object of it counts as used
  };

  block allocate(std::size_t bytes) const { return block{bytes}; }
  void synchronize() const { client_.synchronize(); }

 private:
  Pjrt(pjrt::Client client, int index, std::vector<int> cores)
      : client_{std::move(client)}, index_{index}, cores_{std::move(cores)} {}

  using Named = std::map<std::string, pjrt::OptionValue>;

  /// The client of a plug-in with these options. Plug-ins for CPUs have the option cpu_device_count; others refuse it,
  /// as their devices are what there is.
  static pjrt::Client client_of(pjrt::Plugin const& plugin, Options const& options) {
    auto named = Named{};
    for (auto const& option : options.others)
      CHORALE_EXPECTS(named.emplace(option.name, option.value).second,
                      "the option " + option.name + " of a PJRT client is given twice");
    if (!options.devices) return client_of(plugin, named);
    auto counted = named;
    CHORALE_EXPECTS(counted.emplace("cpu_device_count", std::int64_t{*options.devices}).second,
                    "the number of devices is given twice, as devices and as cpu_device_count");
    try {
      return client_of(plugin, counted);
    } catch (pjrt::PluginError const& error) {
      if (error.said().find("cpu_device_count") == std::string::npos) throw;
      auto client     = client_of(plugin, named);
      auto const lock = std::lock_guard{clients().mutex};
      clients().open.emplace_back(plugin, counted, client);  // is not asked for again
      return client;
    }
  }

  struct Clients {
    std::mutex mutex;
    std::vector<std::tuple<pjrt::Plugin, Named, pjrt::Client>> open;
  };
  static Clients& clients() {
    static auto& all = *new Clients;  // never freed, as plug-ins are
    return all;
  }

  /// The client that the process has with these options, or a new one: a TPU has one at a time.
  static pjrt::Client client_of(pjrt::Plugin const& plugin, Named const& named) {
    auto const lock = std::lock_guard{clients().mutex};
    for (auto const& [of, with, client] : clients().open)
      if (of == plugin && with == named) return client;
    auto options = std::vector<pjrt::Option>{};
    for (auto const& [name, value] : named) options.push_back({name, value});
    return std::get<2>(clients().open.emplace_back(plugin, named, pjrt::Client{plugin, options}));
  }

  pjrt::Client client_;
  int index_;
  std::vector<int> cores_;
  bool shards_ = false;  // slots
};

static_assert(Device<Pjrt>);

}  // namespace chorale
