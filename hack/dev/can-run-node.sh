#!/usr/bin/env bash
# Exits 0 when this machine can run a Kubernetes node, else prints why not and exits 1. With CLUSTER=kind or
# CLUSTER=existing the node belongs to another owner, and only its tools are asked for.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"

no() {
  echo "$*"
  exit 1
}

case "${CLUSTER:-local}" in
  kind)
    command -v kind >/dev/null || no "CLUSTER=kind, but there is no kind"
    exit 0
    ;;
  existing)
    [[ -n "${KUBECONFIG:-}" || -f "$HOME/.kube/config" ]] || no "CLUSTER=existing, but there is no kubeconfig"
    exit 0
    ;;
  local) ;;
  *) no "CLUSTER=$CLUSTER is none of local, kind, existing" ;;
esac

[[ "$(uname -s)" == Linux ]] || no "a node needs Linux"
[[ "$(uname -m)" == x86_64 ]] || no "the images are for x86_64, this is $(uname -m)"
[[ $EUID -eq 0 ]] || no "a node needs root"
# A namespace of its own, a mount and a bridge in it: what containers are made of.
unshare --mount --net --pid --fork true 2>/dev/null || no "this machine allows no new namespaces"
unshare --mount mount -t tmpfs tmpfs /mnt 2>/dev/null || no "this machine allows no mounts"
if command -v ip >/dev/null; then # else it is installed with the cluster's other tools
  unshare --net ip link add probe0 type bridge 2>/dev/null || no "this machine allows no network bridges"
fi
grep -qE ' cgroup2? ' /proc/mounts || no "no cgroup file system is mounted"
cgroup="$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)"
[[ -n "$cgroup" ]] || cgroup="$(awk '$3 == "cgroup" && $4 ~ /memory/ { print $2; exit }' /proc/mounts)"
[[ -n "$cgroup" ]] || no "no cgroup controls memory"
probe="$cgroup/enginewright-probe-$$"
mkdir "$probe" 2>/dev/null || no "the cgroups at $cgroup cannot be changed"
rmdir "$probe"
