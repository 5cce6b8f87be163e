// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

namespace chorale::detail {

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that a program was started without. Otherwise the first file
/// or socket would get that number, and what the program reads and prints would go there.
inline bool open_missing_standard_files() {
  for (int file = 0; file <= 2; ++file)
    if (::fcntl(file, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));  // gets the lowest free number
  return true;
}

/// Makes it happen before main(), and so before this library opens anything.
inline bool const has_standard_files = open_missing_standard_files();

}  // namespace chorale::detail
