#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA tests, built by tools/gpu: their program has code for a GPU; they pass on one where there is one, and against
# the stand-in everywhere.
root=$TEST_TMPDIR/root                                                    # files, where Bazel has links to them
mkdir -p "$root"
cp -RL bench examples include test tools "$root/"
CHORALE_GPU_FOLDER=$TEST_TMPDIR JOBS=1 "$root/tools/gpu" --stand-in
