#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The heat solvers of examples/25_surrogate in C, Fortran and C++ under each MPI that is installed: their losses on 2
# and on 4 ranks, and in all languages, are those of one rank within 1e-5. What is absent is skipped by name.
set -u
root=$(readlink -f "$(dirname "$(readlink -f examples/25_surrogate/CMakeLists.txt)")/../..")
failed=0 folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TMPDIR=/tmp                                                        # MPI's sockets are there: a short path
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1          # containers have no other user

report() {                                                                # report HOLDS WHAT
  if (($1)); then echo "PASSED: $2"; else echo "FAILED: $2"; failed=1; fi
}
run_on() {                                                                # run_on MPI RANKS PROGRAM ARGS..
  local mpi=$1 ranks=$2
  shift 2
  if [[ $mpi == openmpi ]]; then timeout 200 mpirun.openmpi --oversubscribe -n "$ranks" "$@"
  else timeout 200 mpiexec.mpich -n "$ranks" "$@"
  fi
}
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < 1e-5 && d > -1e-5) }'; }

if ! command -v cmake > /dev/null; then
  echo "SKIPPED: 25_surrogate in C, Fortran and C++: cmake is not installed"
  exit 0
fi
languages=all                                                             # C++ with the first MPI only: it is slow
for mpi in openmpi mpich; do
  if ! command -v "mpicxx.$mpi" > /dev/null; then
    echo "SKIPPED: 25_surrogate under $mpi: lib$mpi-dev is not installed"
    continue
  fi
  command -v gfortran > /dev/null || echo "SKIPPED: 25_surrogate in Fortran under $mpi: gfortran is not installed"
  build=$folder/$mpi targets=$languages languages=heat_c
  command -v gfortran > /dev/null && languages+=" heat_fortran"
  if ! { cmake -S "$root/examples/25_surrogate" -B "$build" -DCHORALE_SOURCE="$root" -DMPI_C_COMPILER="mpicc.$mpi" \
         -DMPI_CXX_COMPILER="mpicxx.$mpi" -DMPI_Fortran_COMPILER="mpifort.$mpi" &&
         cmake --build "$build" -j 2 --target $targets; } > "$folder/log" 2>&1; then
    tail -40 "$folder/log"
    report 0 "25_surrogate is built by chorale_c_library with $mpi"
    continue
  fi
  "mpicc.$mpi" -I "$root/include" "$root/test/c/mistakes.c" -L "$build" -lmodel "-Wl,-rpath,$build" -o "$build/mistakes"
  for ranks in 2 3; do
    run_on $mpi $ranks "$build/mistakes" 2> "$folder/log"
    rc=$?
    ((rc == 0)) || tail -5 "$folder/log"
    report $((rc == 0)) "$ranks ranks under $mpi are told of each mistake"
  done
  loss='' mean=''
  for program in heat_c heat_fortran heat_cpp; do
    [[ -x $build/$program ]] || continue
    for ranks in 1 2 4; do
      line=$(run_on $mpi $ranks "$build/$program" "$folder/$program.safetensors" 2> "$folder/log")
      losses='s/^loss \([0-9.]*\), on average \([0-9.]*\), after 99 .*/\1 \2/p'
      read -r got got_mean <<< "$(sed -n "$losses" <<< "$line")"
      [[ $loss ]] || loss=${got-} mean=${got_mean-}                       # of one rank
      if near "${got-}" "$loss" && near "${got_mean-}" "$mean" && near 0 "$(awk "BEGIN { print $got / 100 }")"; then
        report 1 "$program on $ranks ranks under $mpi: loss $got, on average $got_mean; one rank $loss, $mean"
      else
        tail -5 "$folder/log"
        report 0 "$program on $ranks ranks under $mpi says: $line; one rank had $loss, on average $mean"
      fi
    done
  done
done
exit $failed
