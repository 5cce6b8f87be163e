#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mpi_test.sh PROGRAM ENDS: runs PROGRAM as 2 and as 3 ranks, and ENDS in each of its ways; skipped by name where mpirun
# is not that of Open MPI.
program=$1 ends=$2
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

# as HOW TIMES SENTENCE: 2 ranks end well, and so many of them say the sentence.
as() {
  local said found
  said=$(timeout 50 mpirun --oversubscribe -np 2 "$ends" "$1" 2>&1)
  local rc=$?
  [[ $said == SKIPPED* ]] && { echo "${said%%$'\n'*}"; return; }
  found=$(grep -c "$3" <<< "$said")
  if ((rc == 0)) && [[ $found == "$2" ]] && [[ $(grep -c "^end$" <<< "$said") == 2 ]]; then
    echo "PASSED: MPI in another way: $1"
  else
    echo "FAILED: MPI in another way: $1: exit code $rc, and $found times \"$3\" in: $said"
    failed=1
  fi
}
as main 2 "^exchanged"
as thread 2 "MPI was started with MPI_THREAD_SINGLE or MPI_THREAD_FUNNELED, and MpiTransport is used in another thread"
as live 2 "uses MpiTransport after MPI_Finalize has ended MPI"
as one 1 "rank 1 lost rank 0 in step 0: it called MPI_Finalize while its Trainer, or another endpoint of MpiTransport"
exit $failed
