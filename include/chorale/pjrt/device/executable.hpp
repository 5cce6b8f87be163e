// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/pjrt/device/api_programs.hpp>
#include <chorale/pjrt/device/buffer.hpp>
#include <chorale/pjrt/device/connection.hpp>
#include <chorale/pjrt/device/program.hpp>
#include <chorale/pjrt/device/shape.hpp>
#include <chorale/pjrt/device/signature.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::pjrt {

/// A program that was compiled for devices of a client, one replica on each.
///
///   auto results = std::vector<std::vector<Buffer>>{};
///   step.run({{&w0, &x0}, {&w1, &x1}}, results);         // [device][argument] -> [device][result]
///
/// keeps   movable; one thread calls run() at a time. Several may run several programs of a client. The plug-in's object
///         is freed when the client compiles again, or ends
class Executable {
 public:
  /// Made by Client::compile.
  Executable(std::shared_ptr<detail::Connection> connection, api::LoadedExecutable* handle, Signature signature)
      : connection_{std::move(connection)}, handle_{handle}, signature_{std::move(signature)} {
    try {
      auto devices = api::LoadedDevices{.handle = handle_};
      plugin().call(devices);
      for (std::size_t d = 0; d < devices.size; ++d) devices_.push_back(connection_->id_of(devices.values[d]));
      expect_results();
    } catch (...) {
      connection_->free(handle_);
      throw;
    }
    arguments_.resize(devices_.size() * signature_.arguments.size());
    results_.resize(devices_.size() * signature_.results.size());
    complete_.resize(devices_.size());
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      argument_lists_.push_back(arguments_.data() + d * signature_.arguments.size());
      result_lists_.push_back(results_.data() + d * signature_.results.size());
    }
  }
  Executable(Executable&& other) noexcept
      : connection_{std::move(other.connection_)}, handle_{std::exchange(other.handle_, nullptr)},
        signature_{std::move(other.signature_)}, devices_{std::move(other.devices_)},
        arguments_{std::move(other.arguments_)}, results_{std::move(other.results_)},
        argument_lists_{std::move(other.argument_lists_)}, result_lists_{std::move(other.result_lists_)},
        complete_{std::move(other.complete_)} {}
  Executable& operator=(Executable&&) = delete;
  ~Executable() {
    if (handle_ != nullptr) connection_->retire(handle_);
  }

  Signature const& signature() const { return signature_; }
  std::vector<int> const& devices() const { return devices_; }  // ids, in the order of run()'s lists

  /// What can be asked about the program: memory, code size, the compiler's text.
  CompiledProgram program() const { return program_of(plugin(), handle_); }

  /// Starts the program on all its devices and returns; results are buffers that will be computed. Eight runs of a
  /// client may be waiting: the next one waits until one of them has ended.
  ///
  /// arguments   [device][argument], in the order of devices(). Donated arguments end with this call
  /// results     [device][result], assigned; buffers that it has are freed, after they were used: it may hold arguments
  /// throws      BadArgument when a number, an element type, a shape or a device is not what the program was compiled
  ///             for, or an argument is empty or was donated: nothing has started. PluginError when the plug-in
  ///             refuses, OutOfMemory when a device has none left. Failures while it runs: from Buffer::get, and from
  ///             Client::synchronize
  /// cost        nothing is allocated here when results has its sizes already; the plug-in allocates results and events
  void run(std::vector<std::vector<Buffer*>> const& arguments, std::vector<std::vector<Buffer>>& results) {
    take(arguments);
    std::fill(complete_.begin(), complete_.end(), nullptr);
    auto const order = connection_->starting();
    connection_->wait_for_room(devices_.size());
    auto options = api::ExecuteOptions{};
    auto execute = api::Execute{.executable    = handle_,
                                .options       = &options,
                                .arguments     = argument_lists_.data(),
                                .num_devices   = devices_.size(),
                                .num_arguments = signature_.arguments.size(),
                                .results       = result_lists_.data(),
                                .complete      = complete_.data()};
    if (auto* const error = plugin().try_call(execute)) {
      mark_donated(arguments, After::failure);
      plugin().fail(error, "starting a program");
    }
    for (auto* const event : complete_)
      if (event != nullptr) connection_->follow(event);
    mark_donated(arguments, After::success);
    give(results);
  }

 private:
  enum class After { success, failure };

  Plugin const& plugin() const { return connection_->plugin(); }

  static CompiledProgram program_of(Plugin const& plugin, api::LoadedExecutable* handle) {
    auto record = api::LoadedProgram{.handle = handle};
    plugin.call(record);
    return CompiledProgram{plugin, record.value};
  }

  /// Throws BadArgument unless the program gives what its signature says.
  void expect_results() const {
    auto const has = program_of(plugin(), handle_).results();
    CHORALE_EXPECTS(has.size() == signature_.results.size(),
                    sentence("a program has {} results, and its signature {}", has.size(), signature_.results.size()));
    for (std::size_t r = 0; r < has.size(); ++r)
      CHORALE_EXPECTS(has[r] == signature_.results[r],
                      sentence("result {} of a program is tensor<{}>, and its signature says tensor<{}>", r,
                               has[r].text(), signature_.results[r].text()));
  }

  /// Checks arguments and writes their handles where Execute reads them.
  void take(std::vector<std::vector<Buffer*>> const& arguments) {
    auto const wanted = signature_.arguments.size();
    CHORALE_EXPECTS(arguments.size() == devices_.size(),
                    sentence("a program on {} devices got arguments for {}", devices_.size(), arguments.size()));
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      CHORALE_EXPECTS(arguments[d].size() == wanted, sentence("a program of {} arguments got {} on device {}", wanted,
                                                              arguments[d].size(), devices_[d]));
      for (std::size_t a = 0; a < wanted; ++a) {
        auto const* const buffer = arguments[d][a];
        auto const& shape        = signature_.arguments[a];
        CHORALE_EXPECTS(buffer != nullptr, sentence("argument {} on device {} is null", a, devices_[d]));
        buffer->expect_usable("used as an argument");
        CHORALE_EXPECTS(buffer->connection() == connection_, sentence("argument {} on device {} belongs to another "
                                                                      "client",
                                                                      a, devices_[d]));
        CHORALE_EXPECTS(buffer->device() == devices_[d],
                        sentence("argument {} for device {} is on device {}", a, devices_[d], buffer->device()));
        if (!(buffer->shape() == shape))  // the plug-in takes any buffer of as many bytes
          throw BadArgument{sentence("argument {} on device {} is tensor<{}>, and the program takes tensor<{}>.", a,
                                     devices_[d], buffer->shape().text(), shape.text()),
                            "Client::put with the shape that the program was compiled for."};
        arguments_[d * wanted + a] = buffer->handle();
      }
    }
  }

  /// Marks what the plug-in has taken over. After a failure it may have taken some, which it is asked for.
  void mark_donated(std::vector<std::vector<Buffer*>> const& arguments, After how) const {
    for (auto const& list : arguments)
      for (auto const a : signature_.donated) {
        auto question = api::BufferIsDeleted{.handle = list[a]->handle()};
        if (how == After::failure) plugin().call(question);
        if (how == After::success || question.value) list[a]->mark_donated();
      }
  }

  /// Makes buffers of the handles that Execute wrote.
  void give(std::vector<std::vector<Buffer>>& results) {
    auto const count = signature_.results.size();
    auto fits        = results.size() == devices_.size();
    for (auto const& list : results) fits = fits && list.size() == count;
    auto fresh = std::vector<std::vector<Buffer>>{};  // arguments may lie in results: they stay where they are
    if (!fits) {
      fresh.resize(devices_.size());
      for (auto& list : fresh) list.resize(count);
    }
    auto& to = fits ? results : fresh;
    for (std::size_t d = 0; d < devices_.size(); ++d)
      for (std::size_t r = 0; r < count; ++r)
        to[d][r] = Buffer{connection_, results_[d * count + r], signature_.results[r], devices_[d]};
    if (!fits) results = std::move(fresh);
  }

  std::shared_ptr<detail::Connection> connection_;
  api::LoadedExecutable* handle_;
  Signature signature_;
  std::vector<int> devices_;                       // ids
  std::vector<api::Buffer*> arguments_, results_;  // [device * count + i]: where Execute reads and writes
  std::vector<api::Buffer* const*> argument_lists_;
  std::vector<api::Buffer**> result_lists_;
  std::vector<api::Event*> complete_;
};

}  // namespace chorale::pjrt
