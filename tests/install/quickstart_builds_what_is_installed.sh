#!/bin/sh
# Every library and program that `cmake --install BUILD` copies is built by the targets that SOURCE/quickstart builds.
# Arguments: BUILD SOURCE.
set -eu
build=$1 source=$2
targets=$(sed -n 's/^build release //p' "$source/quickstart")
[ -n "$targets" ]
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2086  # one word for each target
ninja -C "$build" -t commands $targets | grep -oE '(-o|qc) +[^ ]+' | sed 's/.* //' | sort -u >"$work/built"
find "$build" -name cmake_install.cmake -exec grep -hoE "\"$build/([^\"]+/)?(lib[^/\"]+\.(a|so[0-9.]*)|bin/[^\"]+)\"" {} + |
  tr -d '"' | sed "s|^$build/||" | sort -u >"$work/installed"
grep -q '^bin/rtrun$' "$work/installed"
grep -q '^bin/rtrun-rank$' "$work/installed"
grep -q 'libtroupe_runtime\.a$' "$work/installed"
# Names of a shared library beside the file itself are links that its own build makes.
missing=$(comm -13 "$work/built" "$work/installed" | grep -vE '\.so(\.[0-9]+)?$' || true)
[ -z "$missing" ] || {
  echo "installed, but not built by quickstart ($targets):"
  echo "$missing"
  exit 1
}
