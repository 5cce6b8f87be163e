// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The version of the library, for programs that check at compile time whether a feature is available.
#define CHORALE_VERSION_MAJOR 0
#define CHORALE_VERSION_MINOR 1
#define CHORALE_VERSION_PATCH 0
