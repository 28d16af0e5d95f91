#!/bin/sh
# Installs the build tree BUILD into an empty folder, builds the examples against it as a user's project would, and runs
# them on a small data set. Arguments: BUILD SOURCE.
set -eu
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" --component development >/dev/null
cmake --install "$build" --prefix "$work/prefix" --component runtime >/dev/null
cmake -S "$source/tests/install/consumer" -B "$work/consumer" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" -DEXAMPLES="$source/apps/examples" >"$work/configure.log" || {
  cat "$work/configure.log"
  exit 1
}
cmake --build "$work/consumer"

. "$source/tests/install/small_data.sh"
small_data "$work/data"
cat >"$work/app.toml" <<'TOML'
data = { path = "data", batch = 20 }
model = { units = [16] }
train = { epochs = 2 }
checkpoint = { every_steps = 0 }
TOML
cd "$work"
unset TROUPE_DATA
timeout 200 consumer/own_transport --gtest_brief=1
timeout 60 consumer/own_loop app.toml
timeout 60 consumer/own_model app.toml
timeout 60 consumer/own_gradients
timeout 60 consumer/sums
timeout 60 consumer/c_loop app.toml >c_loop.out
grep '"finished": true' c_loop.out
for python in /usr/bin/python3 python3; do
  $python -c 'import numpy' 2>/dev/null || continue
  PYTHONPATH=$work/prefix/share/troupe/python timeout 60 $python "$source/apps/examples/loop.py" app.toml >loop.out
  grep 'test accuracy' loop.out
  break
done

# Two processes that find each other, one of which calls the other's actor.
umask 077
head -c 24 /dev/urandom | base64 >secret
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TROUPE_SECRET_FILE=$work/secret \
    timeout 60 consumer/hello >hello.$rank &
done
wait
grep -h 'says 42' hello.0 hello.1
[ "$(grep -h 'says 42' hello.0 hello.1 | wc -l)" = 2 ]
