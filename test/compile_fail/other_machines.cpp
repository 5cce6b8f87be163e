// SPDX-License-Identifier: Apache-2.0

// expect: compiles
#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/data/formats/npy.hpp>
#include <chorale/data/stages/file_cache_format.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/tensor/cpu/onednn_api.hpp>

// expect: chorale: safetensors files are little-endian. This header needs a little-endian machine.
#undef __BYTE_ORDER__
#define __BYTE_ORDER__ __ORDER_BIG_ENDIAN__
#include <chorale/checkpoint/safetensors.hpp>

// expect: chorale: files of cached rows hold little-endian numbers. Swap them here for another processor.
#undef __BYTE_ORDER__
#define __BYTE_ORDER__ __ORDER_BIG_ENDIAN__
#include <chorale/data/stages/file_cache_format.hpp>

// expect: chorale: these messages travel as they lie in memory
#undef __BYTE_ORDER__
#define __BYTE_ORDER__ __ORDER_BIG_ENDIAN__
#include <chorale/strategy/parameter_server/messages.hpp>

// expect: chorale: this oneDNN computes on threads of TBB or SYCL, whose number a Cpu does not set
#include <oneapi/dnnl/dnnl_config.h>
#undef DNNL_CPU_RUNTIME
#define DNNL_CPU_RUNTIME DNNL_RUNTIME_TBB
#include <chorale/tensor/cpu/onednn_api.hpp>
