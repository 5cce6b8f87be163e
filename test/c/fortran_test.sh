#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fortran_test.sh LIBRARY MODULE PROGRAM: compiles the module chorale and the program over the library, and runs it;
# skipped by name where there is no gfortran.
library=$(readlink -f "$1") module=$(readlink -f "$2") program=$(readlink -f "$3")
if ! command -v gfortran > /dev/null; then
  echo "SKIPPED: the module chorale of Fortran: gfortran is not installed"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
flags=(-O1 -Wall -Wextra -Werror -Wno-compare-reals -Wno-function-elimination)
gfortran "${flags[@]}" -c "$module" -o module.o && gfortran "${flags[@]}" -c "$program" -o program.o &&
  gfortran program.o module.o "$library" -Wl,-rpath,"$(dirname "$library")" -o program && ./program "$folder"
