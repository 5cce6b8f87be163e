// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The version of the library: a program that needs a feature can ask for it before it is compiled.
#define CHORALE_VERSION_MAJOR 0
#define CHORALE_VERSION_MINOR 1
#define CHORALE_VERSION_PATCH 0
