// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/checkpoint/manifest.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace chorale::test {

/// Any bytes as a manifest: is it one? If so it has only names that stay in their folder, and is the same one when it
/// is written and read again.
inline bool fuzz_manifest_text(std::string_view text) {
  try {
    auto const manifest = Manifest::parse(text, "m");
    for (auto const& file : manifest.files) {
      auto const name = file.name();
      must(name.find('/') == name.npos && name.find("..") == name.npos && name.ends_with(".safetensors") &&
               name.size() < 64,
           "a name that could lead elsewhere");
      must(file.crc32c.size() <= text.size(), "checksums come from nowhere");
    }
    must(Manifest::parse(manifest.write(), "m") == manifest, "what was written is another manifest");
    return true;
  } catch (BadFile const&) { return false; }
}

/// Any bytes: as they are, and with the checksum that they should have. Then every part of what was a manifest is none.
inline void fuzz_manifest(ConstBytes in) {
  auto const text = std::string{reinterpret_cast<char const*>(in.data()), in.size()};
  fuzz_manifest_text(text);
  auto const sealed = ManifestText::sealed(text);
  if (!fuzz_manifest_text(sealed)) return;
  for (std::size_t n = 0; n < sealed.size(); n += 1 + n / 8)
    must(!fuzz_manifest_text(std::string_view{sealed}.substr(0, n)), "a manifest that is cut off is one");
}

}  // namespace chorale::test
