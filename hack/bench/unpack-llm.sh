#!/usr/bin/env bash
# Unpacks what carry-llm.sh packed: PARTS=DIR bash unpack.sh TARGET, then `. TARGET/env`.
set -euo pipefail
target=${1:?usage: PARTS=DIR unpack.sh TARGET}
mkdir -p "$target"
target=$(cd "$target" && pwd)
[ -d "$target/vllm" ] || cat "${PARTS:?}"/part-* | tar -C "$target" -xf -
install() {
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$target/$1" "${@:2}"
}
install site-vllm "$target"/vllm/*.whl &
installing=$!
install site "$target"/builder/*.whl
mkdir -p "$target/models/smollm2"
xz -dc "$target/model/smollm2.tar.xz" | tar -C "$target/models/smollm2" -xf -
wait "$installing"
# vLLM runs as a process that finds packages in one folder alone: links to the machine's own of what it needs besides.
python3 - "$target/site-vllm" <<'PY'
import re, sys
from importlib import metadata, util
from pathlib import Path

site = Path(sys.argv[1])
carried = {one.name.lower().replace("_", "-") for one in metadata.distributions(path=[str(site)])}
waiting, seen = ["torch", "torchvision", "torchaudio", "triton", "transformers", "tokenizers", "safetensors",
                 "huggingface-hub", "hf-xet"], set()
while waiting:
    name = waiting.pop().lower().replace("_", "-")
    if name in seen or name in carried:
        continue
    seen.add(name)
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        print("not on this machine:", name, file=sys.stderr)
        continue
    waiting += [re.split(r"[^A-Za-z0-9._-]", one)[0] for one in found.requires or () if "extra ==" not in one]
    for top in sorted({file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}):
        source, link = Path(str(found.locate_file(top))), site / top
        if source.exists() and not link.exists():
            link.symlink_to(source)
# CUDA's libraries, whichever packages they are of.
if (spec := util.find_spec("nvidia")) and not (site / "nvidia").exists():
    (site / "nvidia").symlink_to(next(iter(spec.submodule_search_locations)))
PY
# Its processes write no byte code, and each would compile some thousand files as it starts.
python3 -m compileall -q -j 0 "$target/site-vllm" >/dev/null || true
cat >"$target/env" <<ENV
export PYTHONPATH=$target/site:\${PYTHONPATH:-}
export ENGINEWRIGHT_VLLM=$target/site-vllm
ENV
echo ". $target/env"
