#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mpi_test.sh PROGRAM: runs it as 2 and as 3 ranks; skipped by name where mpirun is not that of Open MPI.
program=$1
failed=0

if ! mpirun --version 2> /dev/null | grep -q "Open MPI"; then
  echo "SKIPPED: MpiTransport under mpirun: openmpi-bin is not installed"
  exit 0
fi
export TMPDIR=/tmp                                                        # its sockets are in there: the path is short
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1          # containers have no other user
for ranks in 2 3; do
  timeout 100 mpirun --oversubscribe -np "$ranks" "$program"
  rc=$?
  ((rc == 0)) && continue
  echo "FAILED: $ranks ranks under mpirun end with exit code $rc"
  failed=1
done
exit $failed
