// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/manifest.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

namespace chorale {

/// What happens when a checkpoint cannot be written, because the disk is full for example.
enum class OnSaveError { go_on, stop };  // go_on: a line in the log, and training continues

/// What happens when the newest checkpoint is damaged.
enum class OnDamage { fall_back, stop };  // fall_back: a line in the log, and the one before it

/// When save() returns: `now`, with the checkpoint written; `behind`, while another thread writes a copy of the state.
enum class Saving { now, behind };

/// What save() does with Saving::behind, when the last checkpoint is still being written.
enum class WhenBusy { wait, skip };

/// Where checkpoints go and what happens when that fails.
struct CheckpointOptions {
  std::filesystem::path folder{};                       // made when it is not there
  std::string job                             = "job";  // what this job has left unfinished, its next save removes
  int keep                                    = 2;      // how many stay; 2 at least
  OnSaveError on_save_error                   = OnSaveError::go_on;
  OnDamage on_damage                          = OnDamage::fall_back;
  Saving saving                               = Saving::now;
  WhenBusy when_busy                          = WhenBusy::wait;
  std::uint64_t block                         = Manifest::default_block;  // bytes under one checksum
  std::function<void(std::string const&)> log =                           // may be called by the thread that writes
      [](std::string const& line) { std::clog << "chorale: " + line + "\n"; };
};

}  // namespace chorale
