#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program of examples/gpu that Bazel has built under --config=cuda, with our kernels by nvcc: it trains where there is
# a GPU, and says so where there is none.
name='02_mirrored under --config=cuda'
if (($# == 0)); then
  echo "SKIPPED: $name: the toolkit is not complete. Try: CUDA_HOME with nvcc, cuBLASLt, cuDNN and NCCL"
  exit 0
fi
said=$("$1" --rows 256 --epochs 1 2>&1)
code=$?
echo "$said"
if [[ $code == 0 && $said == *"test: loss"* ]]; then echo "PASSED: $name, trained"; exit 0; fi
if [[ $code == 2 && $said == *"there is no device"* ]]; then echo "PASSED: $name, says that there is no GPU"; exit 0; fi
echo "FAILED: $name: exit code $code"
exit 1
