#!/usr/bin/env bash
# install_packages of SOURCE/.ci/common.sh waits while another program holds a lock of apt's, says so, and ends with what
# apt-get says when something else is wrong or the wait is too long. apt-get is played. Argument: SOURCE.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir .ci
echo "no-such-package-of-troupe build" >.ci/packages
# shellcheck source=/dev/null
. "$source/.ci/common.sh"
as_root() { "$@"; }
id() { echo 0; }
sleep() { echo "$1" >>slept; }
env() { shift 2; "$@"; }
# Holds the lock for the first `held` calls; `broken` says what is wrong otherwise.
apt-get() {
  echo "$*" >>called
  if [ "$(wc -l <called)" -le "$held" ]; then
    echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 12 (unattended-upgr)"
    return 100
  fi
  [ -z "$broken" ] || { echo "$broken"; return 100; }
}

# try HELD BROKEN: runs it anew; output in `said`, status in `status`.
try() {
  rm -f called slept
  held=$1 broken=$2 status=0
  said=$( (install_packages build) 2>&1) || status=$?
}
fail() { printf '%s; it said:\n%s\n' "$1" "$said"; exit 1; }

try 15 ""
[ "$status" = 0 ] || fail "status $status after a lock was released"
[ "$(wc -l <slept)" = 15 ] || fail "$(wc -l <slept) pauses"
[ "$(grep -c 'Another program is installing packages' <<<"$said")" = 2 ] || fail "not two words of progress in 75 s"
grep -q "install -y" called || fail "nothing was installed"

try 0 "E: Unable to locate package no-such-package-of-troupe"
[ "$status" = 3 ] || fail "status $status for a package that does not exist"
[ "$(wc -l <called)" = 1 ] || fail "it tried again"

try 100000 ""
[ "$status" = 3 ] || fail "status $status for a lock that is held for ever"
grep -q "Could not get lock" <<<"$said" || fail "it does not name the lock"
