#!/usr/bin/env bash
# Prints the folder with the packages of requirements/vllm.txt, hashes checked: vLLM for CPUs, which builds of language
# models start as a process of its own. Made once for each lock, in the cache beside images and programs, and kept.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

LOCK=requirements/vllm.txt
LEFT_OUT=builders/images/cuda-packages.txt
STAND_INS=builders/images/cuda-stand-ins
NAME=builders/images/name-vllm

# The lock's stanzas, but for those of packages that stand-ins replace.
wanted() {
  awk -v excluded="$LEFT_OUT" '
    BEGIN { while ((getline line < excluded) > 0) drop[line] = 1; keep = 1 }
    /^[A-Za-z0-9]/ { split($0, part, "=="); keep = !(part[1] in drop) }
    keep' "$LOCK"
}

fill() {
  # Byte code halves the time until the server is ready.
  install_locked <(wanted) "$1" --compile-bytecode --link-mode copy
  "$STAND_INS" "$1" "$1/torch/lib"
  "$NAME" "$LOCK" "$1"
  rm -rf "$1/torch/include" "$1"/nvidia/*/include
}

# The cache may be older than the machine.
apt_install binutils libnuma1 >&2
cached vllm "2.6 GB" "$LOCK" "$LEFT_OUT" "$STAND_INS" "$NAME" hack/dev/vllm.sh
