#!/usr/bin/env bash
# Packs what `make survive-study` and `make scale-study` need on a machine with Linux on x86-64 and Python 3.12, but no
# network: Kubernetes, etcd, openssl and ip with their libraries, the operator's Python packages, the sources, and, where
# it is given, KServe's manager with its definitions.
#
# Usage: [KSERVE_MANAGER=PATH KSERVE_SOURCE=PATH] carry-studies.sh OUT_DIR   (needs pip and a venv from `make venv`)
# OUT_DIR gets part-00 … (each below 42 MB), source.tar.gz and unpack.sh; on the other machine:
#   PARTS=DIR bash unpack.sh TARGET && . TARGET/env && python3 -m survive_study … && python3 -m scale_study …
. "$(dirname "$0")/carry-common.sh"

echo "programs" >&2
mkdir -p "$work/programs" "$work/tools"
kubernetes=$(PYTHONPATH="$root/hack" "$root/.venv/bin/python" -c 'from cluster import binaries; print(binaries.build(binaries.KUBERNETES))')
cp -P "$(dirname "$kubernetes")"/* "$work/programs/"
# With the loader of this machine: the other one's may be older, or have none of their libraries.
for name in etcd openssl ip; do
  program=$(PATH="$PATH:/usr/sbin:/sbin" command -v "$name")
  cp -L "$program" "$work/tools/$name.program"
  ldd "$program" | awk '/=> \// {print $3} /^\t\/.*ld-linux/ {print $1}' | xargs -I{} cp -L {} "$work/tools/"
done

if [ -n "${KSERVE_MANAGER:-}" ]; then
  echo "KServe" >&2
  mkdir -p "$work/kserve/source/config"
  cp "$KSERVE_MANAGER" "$work/kserve/manager"
  cp -r "${KSERVE_SOURCE:?the checkout that KSERVE_MANAGER was built from}/config/crd" \
    "$KSERVE_SOURCE/config/configmap" "$work/kserve/source/config/"
fi

echo "wheels" >&2
platforms=(manylinux_2_28_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64)
fetch "$work/wheels" -r "$root/requirements/operator.txt"
fetch "$work/wheels" $(sed -nE 's/^((pytest|pluggy|iniconfig|packaging)==[^ ]+).*/\1/p' "$root/hack/bench/wheels-tests.txt")

parts "gzip -3" .
# By itself, for it changes more often than all else.
git -C "$root" ls-files -z operator builders hack studies tests/support tests/integration/chart/golden requirements crds |
  tar -C "$root" --null -T - -czf "$work/parts/source.tar.gz"
hand_over unpack-studies.sh
