// SPDX-License-Identifier: Apache-2.0
#pragma once

// The languages that the library is written in. #error lets a compiler go on, and what is missing on the next line does
// not: thousands of errors would follow.
#if __cplusplus < 202002L
#error "chorale: the library is written in C++20. Compile with -std=c++20, by g++ 12 or clang++ 14, or later"
#include <chorale_ends_here>
#elif !defined(__cpp_exceptions)
#error "chorale: the library reports errors by exceptions. Compile without -fno-exceptions"
#include <chorale_ends_here>
#elif !defined(__cpp_rtti)
#error "chorale: the library and its standard library need type information. Compile without -fno-rtti"
#include <chorale_ends_here>
#endif

/// The version of the library, for programs that check at compile time whether a feature is available.
#define CHORALE_VERSION_MAJOR 0
#define CHORALE_VERSION_MINOR 1
#define CHORALE_VERSION_PATCH 0
