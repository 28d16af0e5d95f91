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

# 200 images of noise and their labels, as training and as test set.
mkdir "$work/data"
for set in train t10k; do
  { printf '\000\000\010\003\000\000\000\310\000\000\000\034\000\000\000\034'; head -c 156800 /dev/urandom; } \
    >"$work/data/$set-images-idx3-ubyte"
  { printf '\000\000\010\001\000\000\000\310'; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
      printf '\000\001\002\003\004\005\006\007\010\011'; done; } >"$work/data/$set-labels-idx1-ubyte"
done
cat >"$work/app.toml" <<'TOML'
data = { path = "data", batch = 20 }
model = { units = [16] }
train = { epochs = 2 }
checkpoint = { every_steps = 0 }
TOML
cd "$work"
unset TROUPE_DATA
timeout 60 consumer/own_loop app.toml
timeout 60 consumer/own_model app.toml
timeout 60 consumer/own_gradients
timeout 60 consumer/c_loop app.toml >c_loop.out
grep '"finished": true' c_loop.out

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
