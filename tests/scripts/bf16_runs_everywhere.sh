#!/usr/bin/env bash
# The program RTRUN trains a bf16 job on a processor with AVX2 alone: the loss falls, and one note of the job's node says how it
# is computed; an f32 job has none. A name that is no instruction set ends it with 2. Arguments: SOURCE RTRUN.
set -euo pipefail
source=$1 rtrun=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=/dev/null
. "$source/tests/install/small_data.sh"
small_data "$work/data"
cat >"$work/app.toml" <<'TOML'
cluster = { nodes = "local:2" }
data = { path = "data", batch = 20 }
model = { units = [32, 16] }
train = { epochs = 4 }
checkpoint = { every_steps = 0 }
TOML
cd "$work"
unset TROUPE_DATA
export TROUPE_MAX_CPU_ISA=avx2
# expect COUNT PATTERN: so many lines of `said`.
expect() {
  [ "$(grep -cE "$2" said || true)" = "$1" ] || { echo "not $1 lines with '$2':"; cat said; exit 1; }
}

timeout 60 "$rtrun" app.toml --set model.dtype=bf16 --set report.dir=bf16 >said 2>&1 || { cat said; exit 1; }
expect 1 'has no instructions for bf16'
expect 1 'own kernels AVX2'
awk '/^[0-9]/ { if (first == "") first = $2; last = $2 } END { exit !(first != "" && last + 0 < first + 0) }' said ||
  { echo "the loss does not fall:"; cat said; exit 1; }

timeout 60 "$rtrun" app.toml --set report.dir=f32 >said 2>&1 || { cat said; exit 1; }
expect 0 'bf16'

status=0
TROUPE_MAX_CPU_ISA=avx9 timeout 60 "$rtrun" app.toml --set cluster.nodes=local:1 >said 2>&1 || status=$?
[ "$status" = 2 ] || { echo "ended with $status:"; cat said; exit 1; }
expect 1 'TROUPE_MAX_CPU_ISA is "avx9"; it takes baseline, avx2 or avx512'
