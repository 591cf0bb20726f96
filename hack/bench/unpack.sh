#!/usr/bin/env bash
# Unpacks what carry.sh packed: PARTS=DIR bash unpack.sh TARGET, then `. TARGET/env`.
set -euo pipefail
target=${1:?usage: PARTS=DIR unpack.sh TARGET}
mkdir -p "$target"
[ -d "$target/wheels" ] || cat "${PARTS:?}"/part-* | xz -dc -T0 | tar -C "$target" -xf -
install() {
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$target/$1" "${@:2}"
}
install site "$target"/wheels/*.whl
install site-onnxruntime-gpu "$target"/onnxruntime-gpu/*.whl
install site-triton "$target"/triton/*.whl
# Triton's Python backend, and nothing else, is to find NumPy 1 first. Its interpreter starts without the environment, so
# this stands where Python itself looks at every start.
site_packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cat >"$site_packages/enginewright-bench.pth" <<PTH
import pathlib, sys; b"triton_python_backend_stub" in pathlib.Path("/proc/self/cmdline").read_bytes() and sys.path.insert(0, "$target/site-triton")
PTH
# The bindings are called tensorrt_bindings there; this makes them importable as tensorrt, with the libraries loaded.
mkdir -p "$target/site/tensorrt"
cat >"$target/site/tensorrt/__init__.py" <<PY
import ctypes, sys
for _name in ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10"):
    ctypes.CDLL("$target/tensorrt/" + _name, mode=ctypes.RTLD_GLOBAL)
import tensorrt_bindings as _bindings
sys.modules["tensorrt"] = _bindings
PY
# ONNX Runtime finds CUDA's libraries where PyTorch's packages keep them.
cuda=$(python3 - <<'PY'
import pathlib, nvidia
print(":".join(sorted({str(path.parent) for root in nvidia.__path__ for path in pathlib.Path(root).glob("**/lib/*.so*")})))
PY
)
cat >"$target/env" <<ENV
export PYTHONPATH=$target/site-onnxruntime-gpu:$target/site:\${PYTHONPATH:-}
export LD_LIBRARY_PATH=$target/tensorrt:$cuda:\${LD_LIBRARY_PATH:-}
ENV
echo ". $target/env"
