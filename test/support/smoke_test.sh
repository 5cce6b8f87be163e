#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# smoke_test.sh PROGRAM HOW DEVICES LOSS WITHIN ACCURACY LAUNCH SOURCE...: a short run on drawn digits reaches the loss
# and the accuracy that are expected; bad input, and a flag that the source does not use, end with 2 and one sentence.
#
# HOW        alone: one replica; replicas: --replicas 2; cluster: two workers that the program starts as threads;
#            launched: two processes, started by LAUNCH; plugin: the devices of the PJRT plug-in that
#            CHORALE_PJRT_PLUGIN names, and without it no training
# DEVICES    what the program says of its replicas, "Number of devices: 2"; "-" where it says nothing
# LOSS       of the test digits, at most WITHIN apart; the same for every strategy that does in each step what one replica
#            does with the whole batch
# ACCURACY   of the test digits, at least. Chance gives 0.1
set -u
program=$(readlink -f "$1")
how=$2 devices=$3 loss=$4 within=$5 accuracy=$6
launch=$(readlink -f "$7")
source=$(cat "${@:8}") || exit 1
cd "$TEST_TMPDIR" || exit 1                                # for what it writes
name=$(basename "$program")
digits=(--rows 1280)                                       # 1280 to train with, 320 to test with
failed=0

verdict() {  # verdict RC WHAT
  if [[ $1 == 0 ]]; then echo "PASSED: $name $2"; else echo "FAILED: $name $2"; failed=1; fi
}

# has FLAG: does --help list it?
help=$("$program" --help 2>&1)
if [[ $help == *"was absent when this was built"* ]]; then
  echo "SKIPPED: $name: ${help%%.*}"
  exit 0
fi
has() { grep -q -- "^ *$1 " <<< "$help"; }

# one_replica: the flags for it, where there are such
one_replica() { if has --replicas; then echo --replicas 1; fi; }

# uses FLAG: does the source read what the flag sets?
uses() {
  case $1 in
    --lr) [[ $source == *"o.rate()"* ]] ;;
    --shift) [[ $source == *"shifted(o)"* ]] ;;
    *) [[ $source == *"o.${1#--}"[!a-z_]* ]] ;;
  esac
}

# A flag is listed and taken where the source uses it, and refused elsewhere, before anything is written.
flag_is_right() {  # flag_is_right FLAG VALUE
  if uses "$1"; then has "$1"; return; fi
  if has "$1"; then echo "$1 is listed, and the source does not use it"; return 1; fi
  refuses "$1" "$2" || return 1
  [[ $sentence == *"$1 would change nothing"* ]] || { echo "standard error: $sentence"; return 1; }
  [[ ! -e $2 ]] || { echo "$2 was written"; return 1; }
}

trains() {
  local -a command=("$program" --epochs 3 "${digits[@]}") results
  local out result
  case $how in
    # shellcheck disable=SC2207
    alone) command+=($(one_replica)) ;;
    replicas) command+=(--replicas 2) ;;
    cluster) command=("$program" --epochs 6 --lr 0.0003 "${digits[@]}") ;;   # at 0.001, runs differ by half their loss
    launched) command=("$launch" -n 2 -- "${command[@]}") ;;
  esac
  out=$("${command[@]}" 2>&1) || { echo "it ended with $?: $out"; return 1; }
  if [[ $devices != - && $out != *"Number of devices: $devices"* ]]; then
    echo "it does not say 'Number of devices: $devices': $out"
    return 1
  fi
  # Each process prints a line; all of them are the same.
  mapfile -t results < <(grep -oE 'test: loss [0-9.]+ accuracy [0-9.]+ \([0-9]+ images\)$' <<< "$out")
  if [[ ${#results[@]} != $([[ $how == launched ]] && echo 2 || echo 1) ]]; then
    echo "${#results[@]} lines with a result: $out"
    return 1
  fi
  for result in "${results[@]}"; do
    if [[ $result != "${results[0]}" ]]; then echo "processes differ: $out"; return 1; fi
  done
  awk -v loss="$loss" -v within="$within" -v least="$accuracy" '
    { apart = $3 > loss ? $3 - loss : loss - $3
      if (apart > within || $5 < least || $5 > 1 || $6 != "(320") {
        print "wanted: loss " loss ", at most " within " apart, accuracy at least " least " on 320 images; got: " $0
        exit 1 } }' <<< "${results[0]}"
}

refuses() {  # refuses ARGS...; the sentence is in $sentence
  local rc
  sentence=$("$program" --epochs 1 "${digits[@]}" "$@" 2>&1 > /dev/null)
  rc=$?
  if [[ $how == plugin ]]; then sentence=$(sed -n '/^chorale: /,$p' <<< "$sentence"); fi    # plug-ins log before it
  [[ $rc == 2 && $sentence == "chorale: "* && $sentence != *"chorale: "*"chorale: "* ]] && return
  echo "exit code $rc (wanted 2), standard error: $sentence"
  return 1
}

if [[ $how == plugin && -z ${CHORALE_PJRT_PLUGIN:-} ]]; then
  echo "SKIPPED: $name trains: CHORALE_PJRT_PLUGIN names no plug-in"
  refuses; verdict $? "says in one sentence that there is no plug-in"
else
  trains; verdict $? "trains, and reaches the loss and accuracy that are expected"
fi
refuses --batch 0; verdict $? "refuses --batch 0"
if has --replicas; then refuses --replicas 0; verdict $? "refuses --replicas 0"; fi
# shellcheck disable=SC2046
refuses $(one_replica) --data "$TEST_TMPDIR/missing"; verdict $? "refuses a folder of data that is missing"
for flag in '--replicas 1' '--lr 0.01' "--checkpoints $PWD/c" "--run $PWD/r" '--shift 1'; do
  # shellcheck disable=SC2086
  flag_is_right $flag; verdict $? "uses ${flag% *}, or refuses it"
done
exit $failed
