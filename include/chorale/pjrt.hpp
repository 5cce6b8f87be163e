// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a program includes that trains on TPUs, or on another plug-in of PJRT. See docs/46-tpu.md.

#include <chorale/chorale.hpp>

#include <chorale/pjrt/pjrt.hpp>
#include <chorale/pjrt/tpu.hpp>
