# SPDX-License-Identifier: Apache-2.0
# Sourced by run and test: install_missing SECTION... installs what tools/packages.txt lists there and is not installed.

export PATH                                                       # bazel looks there for java

complain() { printf 'chorale: %s\n' "$*" >&2; }

# packages SECTION...: the names in these sections.
packages() {
  awk -v wanted=" $* " '
    { sub(/#.*/, "") }
    /^\[/ { gsub(/[][ ]/, ""); on = index(wanted, " " $0 " "); next }
    on && NF { print $1 }' "$root/tools/packages.txt"
}

install_missing() {
  local -a all missing=() as_root=() unknown=()
  local package log
  mapfile -t all < <(packages "$@")
  if ! command -v dpkg-query > /dev/null; then
    command -v bazel > /dev/null && return
    complain "this is not Debian, and bazel is not installed. Try: install what ${root}/tools/packages.txt lists."
    return 3
  fi
  mapfile -t missing < <(comm -23 <(printf '%s\n' "${all[@]}" | sort) \
    <(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' "${all[@]}" 2> /dev/null |
      sed -n 's/^installed //p' | sort))
  ((${#missing[@]})) || return 0

  if ((EUID != 0)); then
    if ! command -v sudo > /dev/null; then
      complain "packages are missing, and there is no sudo." \
        "Try, as root: apt-get install --no-install-recommends ${missing[*]}"
      return 3
    fi
    as_root=(sudo)
  fi
  complain "installs ${missing[*]}"
  log=$(mktemp)
  apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" < /dev/null >> "$log" 2>&1
  }
  install() { apt install --yes --no-install-recommends "${missing[@]}"; }
  # The lists of packages may be absent (a fresh container), or older than what the server still has.
  apt-cache show --no-all-versions "${missing[@]}" > /dev/null 2>&1 || apt update || true
  if ! install && ! { apt update && install; }; then
    for package in "${missing[@]}"; do apt-cache show "$package" > /dev/null 2>&1 || unknown+=("$package"); done
    if ((${#unknown[@]})); then
      complain "apt-get knows no package ${unknown[*]}. Try: Debian 12 with its main archive, and the network;" \
        "apt-get said: $(grep -m 1 '^E:' "$log")"
    else
      complain "apt-get could not install ${missing[*]}. It said: $(grep -m 1 '^E:' "$log")"
    fi
    rm -f "$log"
    return 3
  fi
  rm -f "$log"
}
