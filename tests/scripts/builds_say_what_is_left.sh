#!/usr/bin/env bash
# Of what ninja prints, a build shows every tenth of the way, how long the rest takes or how many last steps there are, and
# whatever went wrong.
set -euo pipefail
cd "$1"
. .ci/common.sh

steps=$(for i in $(seq 1 40); do echo "[$i/40] Building"; done)
shown=$(
  now() { cat "$clock"; echo 100 >"$clock"; }
  clock=$(mktemp)
  echo 0 >"$clock"
  { echo "ninja: Entering directory"; echo "$steps" | head -n 20; echo "a.cpp:1: error: no"; echo "$steps" | tail -n 20; } | progress 2
  rm -f "$clock"
)
expect() { grep -qxF -- "$1" <<<"$shown" || { printf 'missing: %s\nin:\n%s\n' "$1" "$shown" >&2; exit 1; }; }
expect "== 10 % built, about 15 min to go"
expect "== 50 % built, about 2 min to go"
expect "a.cpp:1: error: no"
expect "== 100 % built"
last=$(printf "[%s/4] Building\n" 1 2 3 4 | progress 2)
[ "$(sed -n 2,3p <<<"$last")" = "== 50 % built, still in work: 2 of 4 steps
== 75 % built, still in work: 1 of 4 steps" ] || { printf 'no word of the last steps:\n%s\n' "$last" >&2; exit 1; }
[ "$(wc -l <<<"$shown")" = 11 ] || { printf 'not a line a tenth:\n%s\n' "$shown" >&2; exit 1; }
