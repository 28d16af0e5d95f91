#!/usr/bin/env bash
# gpu_bundle.sh BUILD SOURCE: makes a bundle from the build tree, unpacks its archive into a root of its own, which has only glibc, a few tools
# and the stand-in for a GPU's driver, and runs its checks there, with a GPU and without. Exit code 77: skipped, with the reason.
set -euo pipefail
build=$1 source=$2
readonly tools=(bash env timeout date mkdir cat grep sed awk head tail wc paste cut tr sort uname nproc getconf basename dirname sleep ls rm uniq)

skip() { echo "skipped: $*"; exit 77; }
die() { echo "FAILED: $*" >&2; exit 1; }

command -v patchelf >/dev/null || skip "no patchelf; apt-get install patchelf"
unshare --map-root-user --mount --pid --fork true 2>/dev/null || skip "no namespaces of users and mounts can be made here"
work=$(mktemp -d)
root=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT

# put FILE FOLDER: into the root, with the libraries that it needs where this machine has them.
put() {
  install -D "$1" "$root/$2/$(basename "$1")"
  ldd "$1" | grep -oE '/\S+' | while read -r library; do
    [ -e "$root$library" ] || install -D "$library" "$root$library"
  done
}

# checks LIBRARIES ARGUMENTS...: runs the bundle's checks in the root; returns their exit code.
checks() {
  root=$root libraries=$1 arguments="${*:2}" unshare --map-root-user --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" env -i HOME=/tmp PATH=/bin LC_ALL=C ${libraries:+LD_LIBRARY_PATH="$libraries"} \
      bash /moved/bundle/run-gpu-checks --out /tmp/report $arguments'
}

mkdir -p "$root"/{proc,sys,dev,tmp,moved}
for tool in "${tools[@]}"; do put "$(command -v "$tool")" bin; done
folder=$(dirname "$(ldd "$(command -v bash)" | grep -oE '/\S+/libc\.so\.6')")
for name in dl.so.2 m.so.6 mvec.so.1 pthread.so.0 resolv.so.2 rt.so.1 util.so.1; do  # all of glibc
  [ ! -e "$folder/lib$name" ] || install -D "$folder/lib$name" "$root$folder/lib$name"
done
put "$build/cuda_host/libcuda.so.1" driver
put "$build/cuda_host/libcublasLt.so.13" driver
put "$build/cuda_host/libcudnn.so.9" driver
"$source/tools/bundle" --tree "$build" --out "$work/bundle"
tar -C "$root/moved" -xJf "$work/bundle.tar.xz"
rm -rf "$work/bundle"

! checks '' >"$work/without" 2>&1 || die "without a driver the checks passed"
[ "$(wc -l <"$work/without")" = 1 ] && grep -q 'no GPU can be used: there is no usable CUDA driver' "$work/without" ||
  { cat "$work/without"; die "without a driver there is to be one line that says so"; }

code=0
checks /driver --small --seconds 1400 --tests '*StreamContract.*Line*:*GoldenContract.Has*PyTorch/*:*GpuTraining.*Mlp*:*CudaDevice*ReplaysSteps*:*AllReduce*:*DeviceMemoryMessages*' || code=$?
cat "$root/tmp/report/report.md"
[ $code = 0 ] || { tail -n 20 "$root"/tmp/report/*.log; die "the checks ended with $code"; }
python3 - "$root/tmp/report/" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1] + "report.json"))
assert report["passed"] and report["gpus"] and report["bundle"]["commit"], report
parts = {part["name"]: part for part in report["parts"]}
tests = [part for part in report["parts"] if part["kind"] == "tests" and part["state"] == "passed"]
assert len(tests) == 5, tests
for job in ("a rank on the GPU", "two ranks on one GPU", "kill -9 of one of two ranks"):
    assert parts[job]["state"] == "passed", parts[job]
for name in ("two GPUs over NCCL", "compute-sanitizer", "PyTorch"):
    assert parts[name]["state"] == "skipped" and parts[name]["note"], parts[name]
figures = report["figures"]
assert {figure["impl"] for figure in figures} >= {"cuda", "cuda, own products", "cpu"}, figures
assert any(figure["bench"] == "messages" for figure in figures), figures
markdown = open(sys.argv[1] + "report.md").read()
for network in ("mlp", "lenet", "cifar", "resnet20", "gpt"):
    for dtype in ("f32", "bf16"):
        step = f"step of {network} {dtype}, batch"
        of_gpu = [figure for figure in figures if figure["impl"] == "cuda" and figure.get("case", "").startswith(step)]
        assert any(figure["unit"] == "us" and figure["v"][0] > 0 for figure in of_gpu), (step, figures)
        assert [figure["v"] for figure in of_gpu if figure["case"].endswith(": host synchronizations")] == [[0]], (step, figures)
        assert f"\n| {network} {dtype}, batch" in markdown, markdown
assert any(figure.get("case", "").endswith("divided by the bare graph's") for figure in figures), figures
assert "Host synchronizations in a replayed step: 0, counted" in markdown, markdown
assert "Actor tax" in markdown and "not measured" not in markdown.split("## Answers")[1].split("##")[0], markdown
PYTHON

code=0
checks /driver --small --seconds 6 --tests '*StreamContract*' >"$work/short" 2>&1 || code=$?
[ $code = 1 ] && grep -q 'INCOMPLETE: .*late' "$work/short" && grep -q '| late |' "$root/tmp/report/report.md" ||
  { cat "$work/short" "$root/tmp/report/report.md"; die "what there is no time for is to be named as late"; }
