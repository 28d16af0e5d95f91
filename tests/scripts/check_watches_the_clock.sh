#!/usr/bin/env bash
# SOURCE/check --all --minutes leaves out, without failing, the sanitizers that would end too late. The clock is a file here, and
# builds only move it on. Argument: SOURCE.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/.ci"
cp "$source/check" "$work/"
cp "$source/.ci/common.sh" "$work/.ci/"
cat >>"$work/.ci/common.sh" <<'FAKES'
now() { cat clock; }
passes() { echo $(($(now) + $1)) >clock; }
install_packages() { :; }
configure() { mkdir -p "build/$1"; }
build() {
  case "$*" in
    release) passes "$RELEASE_SECONDS" ;;
    *sanitized_tests) passes "$((RELEASE_SECONDS * 3 / 2))"; echo "built $1" ;;
  esac
}
ctest() { echo "100% tests passed ($*)"; }
FAKES
cat >"$work/.ci/build-tsan-caf" <<'FAKES'
#!/bin/sh
FAKES
chmod +x "$work/.ci/build-tsan-caf"

# check_after RELEASE_SECONDS ARGUMENTS...: its output when the release build takes so long.
check_after() {
  echo 1000000 >"$work/clock"
  RELEASE_SECONDS=$1 "$work/check" "${@:2}"
}
# expect COUNT PATTERN TEXT
expect() {
  [ "$(grep -cE "$2" <<<"$3" || true)" = "$1" ] || { printf 'not %s lines with "%s" in:\n%s\n' "$1" "$2" "$3"; exit 1; }
}

fast=$(check_after 600 --all --minutes 80)
expect 2 '^built (asan|tsan)$' "$fast"
expect 0 'Left out' "$fast"

# 18 min, then 27 for the address sanitizer, and as many would be too many for the other, with 18 for the tests.
medium=$(check_after 1100 --all --minutes 80)
expect 1 '^built asan$' "$medium"
expect 0 '^built tsan$' "$medium"
expect 1 'Left out: thread sanitizer. With what must follow, it would take about [0-9]+ min, [0-9]+ min more than there are' "$medium"

slow=$(check_after 3000 --all --minutes 80)
expect 0 '^built' "$slow"
expect 2 'Left out' "$slow"
expect 1 '^100% tests passed \(--preset release -j [0-9]+\)$' "$slow"

unlimited=$(check_after 3000 --all)
expect 2 '^built (asan|tsan)$' "$unlimited"

if "$work/check" --all --minutes soon 2>"$work/error"; then exit 1; fi
grep -q "needs a number above 0, not 'soon'" "$work/error"
