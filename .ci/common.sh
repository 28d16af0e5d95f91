# shellcheck shell=bash
# Shared by quickstart and check; sourced with the repository as the working directory.

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 3; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# packages_for build|test: the names listed for it in .ci/packages.
packages_for() { awk -v who="$1" '$1 !~ /^#/ && $2 == who { print $1 }' .ci/packages; }

# install_packages build|test...: what of them is missing, by apt. Asks dpkg first, which takes no time.
install_packages() {
  local wanted missing=() name log
  wanted=$(for who in "$@"; do packages_for "$who"; done)
  for name in $wanted; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "Installing Debian packages: ${missing[*]}"
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
    die "neither root nor sudo; ask somebody to run: apt-get install ${missing[*]}"
  log=$(mktemp)
  { as_root apt-get -qq update && as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get -qq install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; rm -f "$log"; die "apt-get failed; the lines above say why"; }
  rm -f "$log"
}

# How many compilers at once: one a core, and 1.5 GiB of memory for each.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# configure PRESET [-DNAME=VALUE...]: runs CMake unless the tree has these values; later changes are ninja's business.
# Returns 1, having said why, when CMake fails: other trees may still be fine.
configure() {
  local preset=$1 tree=build/$1 setting stale=
  shift
  [ -f "$tree/build.ninja" ] || stale=yes
  for setting in "$@"; do grep -qxE "${setting#-D}" <(sed 's/:[A-Z]*=/=/' "$tree/CMakeCache.txt" 2>/dev/null) || stale=yes; done
  [ -n "$stale" ] || return 0
  say "Configuring $tree"
  mkdir -p "$tree"
  TROUPE_COMPILER_LAUNCHER=$(command -v ccache || true) cmake --preset "$preset" "$@" >"$tree/configure.log" 2>&1 ||
    { rm -f "$tree/build.ninja"  # the next call tries again
      tail -n 30 "$tree/configure.log" >&2
      echo "$(basename "$0"): CMake failed (all of it: $tree/configure.log); an old tree: rm -rf $tree" >&2
      return 1; }
}

# tenths: of ninja's lines those at which another tenth is done; what went wrong is passed on as it is.
tenths() {
  local line tenth last=0
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      tenth=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
      [ "$tenth" -le "$last" ] || { last=$tenth; say "$((10 * tenth)) % built"; }
    elif [[ $line != "ninja: Entering directory"* ]]; then
      printf '%s\n' "$line"
    fi
  done
}

# build PRESET [TARGET...]: on a terminal ninja shows one line, elsewhere one is printed every tenth of the way.
build() {
  local tree=build/$1
  shift
  ninja -C "$tree" -n "$@" 2>/dev/null | grep -q 'no work to do' && return 0
  say "Building in $tree with $(build_jobs) jobs (minutes the first time)"
  if [ -t 1 ]; then
    ninja -C "$tree" -j "$(build_jobs)" "$@"
  else
    ninja -C "$tree" -j "$(build_jobs)" "$@" | tenths
  fi
}

# The data sets beside the repository, when there are any.
export_data() {
  if [ -z "${TROUPE_DATA:-}" ] && [ -d ../shared/data ]; then
    TROUPE_DATA=$(cd ../shared/data && pwd)
    export TROUPE_DATA
  fi
}
