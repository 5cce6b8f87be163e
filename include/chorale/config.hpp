// SPDX-License-Identifier: Apache-2.0
#pragma once

// The languages that the library is written in. After #error a compiler goes on, and thousands of errors would follow; it
// ends where a file is missing, and says its name. So the names of these are sentences.
#if __cplusplus < 202002L
#include <chorale: the library is written in C++20. Compile with -std=c++20, by g++ 12 or clang++ 14, or later>
#elif !defined(__cpp_exceptions)
#include <chorale: the library reports errors by exceptions. Compile without -fno-exceptions>
#elif !defined(__cpp_rtti)
#include <chorale: the library and its standard library need type information. Compile without -fno-rtti>
#endif

/// The version of the library, for programs that check at compile time whether a feature is available.
#define CHORALE_VERSION_MAJOR 0
#define CHORALE_VERSION_MINOR 1
#define CHORALE_VERSION_PATCH 0
