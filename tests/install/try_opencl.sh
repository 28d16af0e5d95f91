#!/bin/sh
# Installs the build tree BUILD into an empty folder, builds the OpenCL device against it as a project of its own, runs
# the installed contract suites on it and trains on it, one rank and two. Arguments: BUILD SOURCE. Exits 77 where there
# is no OpenCL.
set -eu
build=$1 source=$2
# PoCL cannot compile vectors of more than 256 bits for a processor without AVX-512, whatever this one has.
if grep -nE '(float|u?int)16|(double|u?long)(8|16)' "$source"/apps/examples/opencl_device/kernels/*.cl; then
  echo "these vectors need AVX-512"
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# PoCL keeps compiled kernels here.
mkdir "$work/kernels"
export POCL_CACHE_DIR="$work/kernels"

cmake --install "$build" --prefix "$work/prefix" --component development >/dev/null
cmake --install "$build" --prefix "$work/prefix" --component runtime >/dev/null
cmake -S "$source/apps/examples/opencl_device" -B "$work/project" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" 2>&1 || {
  cat "$work/configure.log"
  exit 1
}
cmake --build "$work/project" -j 2

. "$source/tests/install/small_data.sh"
small_data "$work/data"
cat >"$work/app.toml" <<'TOML'
data = { path = "data", batch = 20 }
model = { units = [32, 16] }
train = { epochs = 4 }
checkpoint = { every_steps = 0 }
TOML
cd "$work"
unset TROUPE_DATA
# losses_fall LOG: the last epoch's loss is below the first's.
losses_fall() {
  cat "$1"
  awk '/^epoch/ { sub(",", "", $4); if (first == "") first = $4; last = $4 } END { exit !(first != "" && last + 0 < first + 0) }' "$1"
}

if ! timeout 60 project/opencl_train app.toml >alone.log 2>alone.err; then
  cat alone.err
  if grep -q '^no OpenCL device' alone.err; then exit 77; fi
  exit 1
fi
losses_fall alone.log
timeout 100 project/opencl_contract_test --gtest_brief=1

umask 077
head -c 24 /dev/urandom | base64 >secret
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
pids=
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TROUPE_SECRET_FILE=$work/secret \
    timeout 60 project/opencl_train app.toml >rank.$rank &
  pids="$pids $!"
done
for pid in $pids; do wait "$pid"; done
losses_fall rank.0
