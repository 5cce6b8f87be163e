#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every header of transport/, reduce/ and strategy/ that defines a policy says in its docstrings what holds (keeps or
# order); an algorithm also says what it costs, and a strategy where it comes from (source).
failed=0

# check FOLDER POLICY CHAPTERS...: POLICY matches the line that defines one; CHAPTERS are alternatives as a|b.
check() {
  local folder=$1 policy=$2 header missing found=0
  shift 2
  for header in $(find include/chorale/"$folder" -name "*.hpp" | sort); do
    grep -qE "$policy" "$header" || continue
    found=1
    missing=
    for chapters in "$@"; do
      grep -qE "^ */// ($chapters) +[^ ]" "$header" || missing+=" ${chapters/|/ or }"
    done
    if [[ -n $missing ]]; then
      echo "FAILED: ${header#include/chorale/} lacks the chapter$missing"
      failed=1
    else
      echo "PASSED: ${header#include/chorale/} has the chapters ${*/|/ or }"
    fi
  done
  ((found)) || { echo "FAILED: there is no policy in include/chorale/$folder"; failed=1; }
}

check transport '^(struct|class) [A-Z][A-Za-z]*Transport\b' 'keeps|order'
check reduce    '^ *static constexpr Cost cost\(' 'keeps|order' cost
check strategy  '^(struct|class) [A-Z][A-Za-z]*Strategy\b' 'keeps|order' source
exit $failed
