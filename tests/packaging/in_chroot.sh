#!/usr/bin/env bash
# in_chroot.sh deb FILE.deb          installs the package on a bare Debian 12 and uses it
# in_chroot.sh quickstart SOURCE     runs ./quickstart of a copy of SOURCE there, without data
# Debian 12 is made by debootstrap in a temporary folder, from the mirror that this host's apt uses, and removed at the
# end. Needs root. Exit code 77: skipped, with the reason. TMPDIR says where the folder is made (deb: 1 GB, quickstart: 3 GB).
set -euo pipefail

readonly release=bookworm
readonly least_accuracy=0.97
readonly quickstart_s=600

began=$SECONDS
say() { printf '[%4d s] %s\n' $((SECONDS - began)) "$*"; }
skip() { echo "skipped: $*"; exit 77; }
die() { echo "FAILED: $*" >&2; exit 1; }

# mirror_of_host: where this host's apt gets that release from; nothing when it does not.
mirror_of_host() {
  apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    awk -v release="$release" '$2 == release && $3 == "main" { print $1; exit }'
}

# in_root COMMAND: runs it in the chroot, with proc, sys and dev of its own mount namespace, which end with it.
in_root() {
  root=$root unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    exec chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} bash -euo pipefail -c "$1"' _ "$1"
}

make_root() {
  [ "$(id -u)" = 0 ] || skip "debootstrap and chroot need root"
  command -v debootstrap >/dev/null || skip "no debootstrap; apt-get install debootstrap"
  unshare --mount --pid --fork true 2>/dev/null || skip "no mount namespace can be made here"
  local mirror
  mirror=$(mirror_of_host)
  [ -n "$mirror" ] || skip "this host's apt knows no mirror of Debian $release"
  root=$(mktemp -d)
  chmod 755 "$root"  # it becomes the users' /
  trap 'rm -rf --one-file-system "$root"' EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  timeout 30 /usr/lib/apt/apt-helper download-file "$mirror/dists/$release/InRelease" "$root/InRelease" >/dev/null 2>&1 ||
    skip "the mirror of this host's apt does not answer"
  rm "$root/InRelease"
  say "making a bare Debian $release in $root"
  timeout 900 debootstrap --variant=minbase "$release" "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -n 20 "$root.log"; rm -f "$root.log"; die "debootstrap"; }
  rm -f "$root.log"
}

# check_accuracy FILE: the output of `ckpt list`; its best test accuracy is enough.
check_accuracy() {
  local best
  best=$(grep -oE '0\.[0-9]{3,}|1\.0+' "$1" | sort -n | tail -n 1)
  [ -n "$best" ] || die "no accuracy in what ckpt says"
  awk -v got="$best" -v least="$2" 'BEGIN { exit !(got >= least) }' || die "test accuracy $best, but at least $2 was expected"
  say "test accuracy $best"
}

try_deb() {
  local deb=$1 status=0
  [ -f "$deb" ] || die "no package $deb; make it by cpack in the build tree"
  make_root
  cp "$deb" "$root/tmp/troupe.deb"
  say "installing $(basename "$deb"), $(du -k "$deb" | cut -f1) KiB"
  in_root 'apt-get -qq update; apt-get -qq install -y --no-install-recommends /tmp/troupe.deb >/tmp/apt.log 2>&1 ||
    { tail -n 20 /tmp/apt.log; exit 1; }
    dpkg -s troupe | grep -E "^(Version|Installed-Size|Depends)"
    useradd --create-home user' || die "the package cannot be installed"
  say "training as an ordinary user, from the installed app.toml"
  in_root 'su user -c "cd && rtrun --version && rtrun check /usr/share/troupe/app.toml >/dev/null &&
    rtrun plan /usr/share/troupe/app.toml >/dev/null &&
    timeout 300 rtrun /usr/share/troupe/app.toml --set train.epochs=2 &&
    ckpt verify run/checkpoints && ckpt list run/checkpoints >list && cat list &&
    ckpt weights run/checkpoints -o weights.safetensors && rttopo show >/dev/null && rtbench --help >/dev/null"' || die "what was installed does not run"
  check_accuracy "$root/home/user/list" 0.9
  say "removing it"
  in_root 'dpkg --purge troupe >/dev/null; test ! -e /usr/bin/rtrun; test ! -e /usr/bin/rtrun-rank; test ! -e /usr/share/troupe; test ! -e /usr/share/doc/troupe' ||
    die "the package leaves something behind"
  say "done"
}

try_quickstart() {
  local source=$1 start
  [ -x "$source/quickstart" ] && [ -f "$source/.ci/packages" ] || die "no quickstart in $source"
  make_root
  mkdir "$root/root/troupe"
  tar -C "$source" --exclude=./build --exclude=./run --exclude=./.git -cf - . | tar -C "$root/root/troupe" --no-same-owner -xf -
  say "running ./quickstart there, on $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg)"
  start=$SECONDS
  in_root '
    cd /root/troupe
    date +"%T quickstart begins"
    ./quickstart
    date +"%T quickstart ends"
    build/release/bin/ckpt list run/checkpoints >/root/list
    cat /root/list
    echo "CPU time (user, system) of this shell, and of all that it ran:"
    times' || die "quickstart"
  say "quickstart took $((SECONDS - start)) s, load $(cut -d' ' -f1 /proc/loadavg) at its end"
  check_accuracy "$root/root/list" "$least_accuracy"
  [ $((SECONDS - start)) -le "$quickstart_s" ] || die "quickstart took more than $quickstart_s s"
}

case "${1:-}" in
  deb) try_deb "${2:?the .deb}" ;;
  quickstart) try_quickstart "$(cd "${2:?the folder of the sources}" && pwd)" ;;
  *) sed -n '2,5s/^# //p' "$0"; exit 2 ;;
esac
