// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <string_view>

namespace chorale {

/// Points at which a save may be interrupted, in the order in which a save reaches them.
inline constexpr auto save_points =
    std::array<std::string_view, 15>{"ckpt.begin",         // nothing has been touched
                                     "ckpt.cleaned",       // leftovers of earlier saves of this job are gone
                                     "ckpt.folder",        // the temporary folder exists, empty
                                     "ckpt.file.half",     // some blocks of a file are written
                                     "ckpt.file.written",  // all of them are
                                     "ckpt.file.synced",   // and they are on the disk
                                     "ckpt.manifest.half",
                                     "ckpt.manifest.written",
                                     "ckpt.manifest.synced",
                                     "ckpt.folder.synced",  // all is on the disk, under a name that no reader opens
                                     "ckpt.renamed",        // committed, unless the power fails now
                                     "ckpt.parent.synced",  // committed
                                     "ckpt.aside",          // the oldest has a name that no reader opens
                                     "ckpt.removing",       // some files of it are gone
                                     "ckpt.end"};

/// Action of a test when a save reaches a point; a parameter of the classes that save.
///
///   struct Kill { void hit(std::string_view point) const { if (point == "ckpt.renamed") ::raise(SIGKILL); } };
template <class F>
concept FaultPoints =
    std::copy_constructible<F> && requires(F const& faults, std::string_view point) { faults.hit(point); };

/// Fault points that do nothing, at no cost.
struct NoFaults {
  static constexpr void hit(std::string_view) noexcept {}
};

}  // namespace chorale
