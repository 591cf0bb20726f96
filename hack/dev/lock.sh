#!/usr/bin/env bash
# Resolves requirements/*.in into requirements/*.txt, with hashes. What stands in a .txt stays unless its .in forbids it;
# `make lock UPGRADE=1` takes the newest of everything.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

uv="${UV:-$REPO_ROOT/build/tools/bin/uv}"
[[ -x "$uv" ]] || hack/dev/bootstrap.sh

compile() {
  local name="$1"
  shift
  say "requirements/$name.txt"
  "$uv" pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_36 --generate-hashes \
    --no-emit-index-url ${UPGRADE:+--upgrade} "$@" "requirements/$name.in" -o "requirements/$name.txt"
}

compile tools
compile dev
compile planner-study
compile sbom
# One version of a package everywhere: what is tested is what runs in the images.
for name in operator builder tensorflow; do
  compile "$name" -c requirements/dev.txt
done
compile server -c requirements/dev.txt --override requirements/server-versions.in
# A language model's server has an environment of its own, and what tests make of weights none at all.
compile vllm --override requirements/vllm-versions.in
compile smollm2 -c requirements/dev.txt --override requirements/smollm2-without.in
# On a GPU too, but for what gpu-versions.in names and what comes with PyTorch.
own="$(sed -nE 's/^([a-z-]+).*/\1/p' requirements/gpu-versions.in | paste -sd '|')"
mkdir -p build
sed -nE 's/^([a-z0-9._-]+==[^ ]+).*/\1/p' requirements/dev.txt |
  grep -vE "^($own|nvidia-(c|n)[a-z0-9-]+|cuda-[a-z]+|triton|setuptools)==" >build/tested.in
compile builder-gpu -c build/tested.in --override requirements/gpu-versions.in
{ grep -v '^huggingface-hub' requirements/gpu-versions.in; cat requirements/server-versions.in; } >build/server-gpu-versions.in
compile server-gpu -c build/tested.in -c requirements/builder-gpu.txt --override build/server-gpu-versions.in
# vLLM for GPUs is what was measured: wheels that were carried to a machine with PyTorch and transformers of images for GPUs.
carried="$(sed -nE 's/^([a-z0-9._-]+)==.*/\1/p' hack/bench/wheels-llm.txt | paste -sd '|')"
sed -nE 's/^([a-z0-9._-]+==[^ ]+).*/\1/p' requirements/builder-gpu.txt | grep -vE "^($carried)==" >build/vllm-gpu.in
compile vllm-gpu -c hack/bench/wheels-llm.txt -c build/vllm-gpu.in --override requirements/vllm-gpu-versions.in
