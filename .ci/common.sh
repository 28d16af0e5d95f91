# shellcheck shell=bash
# Shared by quickstart and check; sourced with the repository as the working directory.

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 3; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# packages_for build|test: the names listed for it in .ci/packages.
packages_for() { awk -v who="$1" '$1 !~ /^#/ && $2 == who { print $1 }' .ci/packages; }

# apt_get LOG ARGUMENTS...: while another program (an automatic upgrade, say) holds a lock of apt's, it waits, up to ten
# minutes, and says so every minute. DPkg::Lock::Timeout alone would not wait for the lock of the package lists.
apt_get() {
  local log=$1 waited=0
  shift
  until as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >"$log" 2>&1; do
    grep -qE 'Could not get lock|Unable to (acquire|lock)' "$log" && [ "$waited" -lt 600 ] || return 1
    [ $((waited % 60)) != 0 ] || say "Another program is installing packages; waiting for it since $waited s: $(grep -m 1 -oE 'lock.*' "$log")"
    sleep 5
    waited=$((waited + 5))
  done
}

# Clones of this repository in other folders share what the compiler cache knows.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}

# now: the time in seconds.
now() { date +%s; }

# fits NAME SECONDS: whether so many seconds from now end before `give_up_at` (seconds since 1970; empty: no limit). If not, it
# says that NAME is left out.
fits() {
  local over
  [ -n "${give_up_at:-}" ] || return 0
  over=$(($(now) + $2 - give_up_at))
  [ "$over" -gt 0 ] || return 0
  say "Left out: $1. With what must follow, it would take about $((($2 + 59) / 60)) min, $(((over + 59) / 60)) min more than there are"
  return 1
}

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
  { apt_get "$log" update && apt_get "$log" install -y --no-install-recommends "${missing[@]}"; } ||
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

# gpus_left_out: whether build/release is still as quickstart sets it up where there is no GPU.
gpus_left_out() {
  local cache=build/release/CMakeCache.txt
  grep -qs '^TROUPE_WITH_CUDA:STRING=OFF' $cache && grep -qs '^TROUPE_BUILD_TESTS:BOOL=OFF' $cache
}

# progress JOBS: ninja's lines, as how much is built and about how long the rest takes: one line that changes on a terminal,
# elsewhere one every tenth of the way. The last JOBS steps may be long ones (the GPU kernels): it tells no time for them.
# What went wrong is passed on as it is.
progress() {
  local jobs=$1 line done all tenth last=0 began left clear=
  began=$(now)
  [ ! -t 1 ] || clear=$'\r\e[K'
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      done=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
      tenth=$((10 * done / all))
      [ -n "$clear" ] || [ "$tenth" -gt "$last" ] || continue
      last=$tenth
      left=$(($(now) - began))
      left=$((left * (all - done) / done))
      line="== $((100 * done / all)) % built"
      if [ "$all" -gt "$done" ] && [ $((all - done)) -le "$jobs" ]; then line+=", still in work: $((all - done)) of $all steps"
      elif [ "$left" != 0 ]; then line+=", about $(duration "$left") to go"
      fi
      if [ -n "$clear" ]; then printf '%s%s' "$clear" "$line"; else printf '%s\n' "$line"; fi
    elif [[ $line != "ninja: Entering directory"* ]]; then
      printf '%s%s\n' "$clear" "$line"
    fi
  done
  [ -z "$clear" ] || printf '\n'
}

# duration SECONDS: for people.
duration() { if [ "$1" -lt 90 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi; }

# build PRESET [TARGET...]
build() {
  local tree=build/$1 jobs
  jobs=$(build_jobs)
  shift
  ninja -C "$tree" -n "$@" 2>/dev/null | grep -q 'no work to do' && return 0
  say "Building in $tree with $jobs jobs (minutes the first time)"
  ninja -C "$tree" -j "$jobs" "$@" | progress "$jobs"
}

# The data sets beside the repository, when there are any.
export_data() {
  if [ -z "${TROUPE_DATA:-}" ] && [ -d ../shared/data ]; then
    TROUPE_DATA=$(cd ../shared/data && pwd)
    export TROUPE_DATA
  fi
}
