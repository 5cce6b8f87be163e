// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/pjrt/device/api_programs.hpp>
#include <chorale/pjrt/device/buffer.hpp>
#include <chorale/pjrt/device/connection.hpp>
#include <chorale/pjrt/device/executable.hpp>
#include <chorale/pjrt/device/key_value_store.hpp>
#include <chorale/pjrt/device/plugin.hpp>
#include <chorale/pjrt/device/program.hpp>
#include <chorale/pjrt/device/shape.hpp>
#include <chorale/pjrt/device/signature.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::pjrt {

/// The devices of a plug-in that this process uses, and what is made for them: buffers and executables.
///
///   auto const client = Client{Plugin::open(path), {{"cpu_device_count", 8}}};
///   auto step         = client.compile(text, {.arguments = {x}, .results = {y}}, 8);
///
/// keeps   a value, cheap to copy; copies are one client. It ends with the last of its copies, buffers and executables
class Client {
 public:
  /// options   typed values by name. Plug-ins for CPUs have cpu_device_count, 4 by default; those for CUDA
  ///           memory_fraction, preallocate, allocator. A name that a plug-in does not know is ignored by some
  /// store     for clients of several processes that find one another; else empty
  /// throws    BadArgument for a value that the plug-in would abort for; PluginError when it has no device
  explicit Client(Plugin plugin, std::vector<Option> const& options = {}, KeyValueStore store = {})
      : connection_{std::make_shared<detail::Connection>(plugin, options, std::move(store))} {}

  Plugin const& plugin() const { return connection_->plugin(); }
  std::string platform() const { return text<api::PlatformName>(); }  // "cpu", "tpu", "cuda"
  std::string version() const { return text<api::PlatformVersion>(); }

  /// Number of this process among the processes of the job.
  int process() const {
    auto record = api::ProcessIndex{.handle = connection_->handle()};
    plugin().call(record);
    return record.value;
  }

  std::vector<DeviceInfo> const& devices() const { return connection_->own_devices(); }  // of this process
  std::vector<DeviceInfo> const& all_devices() const { return connection_->devices(); }  // of all processes

  /// Copies an array to a device. The host's memory may change when this returns.
  ///
  /// data     row-major, shape.bytes() bytes
  /// device   id of one of devices()
  Buffer put(void const* data, Shape const& shape, int device) const {
    auto record = start_put(data, shape, device, api::HostSemantics::only_during_call);
    auto buffer = Buffer{connection_, record.buffer, shape, device};
    Event{connection_, record.done_with_host_buffer}.wait();
    return buffer;
  }

  /// Starts put(): the host's memory has to stay as it is until `copied`, which is assigned, is done.
  Buffer put_later(void const* data, Shape const& shape, int device, Event& copied) const {
    auto record = start_put(data, shape, device, api::HostSemantics::until_transfer_completes);
    auto buffer = Buffer{connection_, record.buffer, shape, device};
    copied      = Event{connection_, record.done_with_host_buffer};
    return buffer;
  }

  /// Compiles a module of StableHLO, one replica on each of some devices.
  ///
  /// text        the module, with a public @main
  /// signature   what @main takes and gives, which run() checks: the plug-in does not
  /// replicas    at least 1
  /// devices     ids, one per replica; empty: the first ones of all_devices()
  /// throws      BadArgument when there are fewer devices, or the text has another signature; CompileError with the
  ///             line and column of the text
  Executable compile(std::string text, Signature signature, int replicas, std::vector<int> devices = {}) const {
    auto const& all = all_devices();
    CHORALE_EXPECTS(replicas >= 1, sentence("a program runs on at least 1 replica, got {}", replicas));
    if (devices.empty()) {
      if (static_cast<std::size_t>(replicas) > all.size())
        throw BadArgument{sentence("{} replicas do not fit on the {} devices of the PJRT plug-in {}.", replicas,
                                   all.size(), plugin().path()),
                          "fewer replicas, or the option cpu_device_count of a plug-in for CPUs."};
      for (std::size_t i = 0; i < static_cast<std::size_t>(replicas); ++i) devices.push_back(all[i].id);
    }
    CHORALE_EXPECTS(devices.size() == static_cast<std::size_t>(replicas),
                    sentence("{} replicas need as many devices, and {} are named", replicas, devices.size()));
    for (int const id : devices) {
      CHORALE_EXPECTS(
          std::ranges::count(all, id, &DeviceInfo::id) == 1,
          sentence("there is no device {} among the {} of the PJRT plug-in {}", id, all.size(), plugin().path()));
      CHORALE_EXPECTS(std::ranges::count(devices, id) == 1, sentence("device {} is named for two replicas", id));
    }
    connection_->free_programs();
    auto const in_text = read_signature(text);
    if (in_text) expect_same(*in_text, signature);
    auto const options = detail::compile_options(replicas, devices);
    auto const program = detail::program_of(text);
    auto record        = api::ClientCompile{.client       = connection_->handle(),
                                            .program      = &program,
                                            .options      = options.data(),
                                            .options_size = options.size()};
    if (auto* const error = plugin().try_call(record)) detail::fail_compile(plugin(), error, text);
    auto executable = Executable{connection_, record.executable, std::move(signature)};
    if (!in_text) static_cast<void>(signature_of(text));  // throws: nobody could check the arguments
    return executable;
  }

  /// Compiles a module whose signature is read from its text.
  Executable compile(std::string const& text, int replicas, std::vector<int> devices = {}) const {
    return compile(text, read_signature(text).value_or(Signature{}), replicas, std::move(devices));
  }

  /// Returns when all runs of this client have ended.
  ///
  /// throws  PluginError when one of them failed
  void synchronize() const { connection_->synchronize(); }

  friend bool operator==(Client const&, Client const&) = default;  // the same client

 private:
  template <class Record> std::string text() const {
    auto record = Record{.handle = connection_->handle()};
    plugin().call(record);
    return {record.text, record.size};
  }

  /// The signature in a text; nothing when it cannot be read: then the plug-in's own error has the line.
  static std::optional<Signature> read_signature(std::string const& text) {
    try {
      return signature_of(text);
    } catch (BadArgument const&) { return {}; }
  }

  static void expect_same(Signature const& text, Signature const& given) {
    auto const expect = [](std::vector<Shape> const& in_text, std::vector<Shape> const& said, std::string const& what) {
      CHORALE_EXPECTS(in_text.size() == said.size(), sentence("the text of a program has {} {}s, and its signature {}",
                                                              in_text.size(), what, said.size()));
      for (std::size_t i = 0; i < said.size(); ++i)
        CHORALE_EXPECTS(in_text[i] == said[i], sentence("{} {} is tensor<{}> in the text of a program, and tensor<{}> "
                                                        "in its signature",
                                                        what, i, in_text[i].text(), said[i].text()));
    };
    expect(text.arguments, given.arguments, "argument");
    expect(text.results, given.results, "result");
    for (std::size_t a = 0; a < given.arguments.size(); ++a) {
      auto const in_text = std::ranges::count(text.donated, a), said = std::ranges::count(given.donated, a);
      CHORALE_EXPECTS(in_text == said,
                      sentence("argument {} of a program {} in its text, and {} in its signature", a,
                               in_text > 0 ? "is donated" : "is not donated", said > 0 ? "is donated" : "is not"));
    }
    for (auto const a : given.donated)
      CHORALE_EXPECTS(a < given.arguments.size(),
                      sentence("argument {} of a program is to be donated, of {}", a, given.arguments.size()));
  }

  api::BufferFromHost start_put(void const* data, Shape const& shape, int device, api::HostSemantics semantics) const {
    CHORALE_EXPECTS(bytes_of(shape.type) > 0,
                    "a buffer cannot have elements of the type number " + std::to_string(static_cast<int>(shape.type)));
    CHORALE_EXPECTS(data != nullptr || shape.bytes() == 0, "a buffer of tensor<" + shape.text() + "> has no data");
    auto record = api::BufferFromHost{.client    = connection_->handle(),
                                      .data      = data,
                                      .type      = static_cast<int>(shape.type),
                                      .dims      = shape.dims.data(),
                                      .num_dims  = shape.dims.size(),
                                      .semantics = semantics,
                                      .device    = connection_->device(device)};
    plugin().call(record);
    return record;
  }

  std::shared_ptr<detail::Connection> connection_;
};

}  // namespace chorale::pjrt
