#!/usr/bin/env bash
# Prints the folder with the packages of requirements/tensorflow.txt, as the image builder-tensorflow has them, hashes
# checked. Made once for each lock, in the cache beside images and programs, and kept.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

LOCK=requirements/tensorflow.txt
cache="${ENGINEWRIGHT_CACHE:-$HOME/.cache/enginewright}"
folder="$cache/tensorflow-$(stamp "$LOCK" | cut -c1-12)"

if [[ ! -d "$folder" ]]; then
  hack/dev/bootstrap.sh >&2
  mkdir -p "$cache/locks"
  exec 9>"$cache/locks/tensorflow"
  flock 9
  if [[ ! -d "$folder" ]]; then
    say "installing TensorFlow into $folder (1.2 GB)" >&2
    rm -rf "$folder.part"
    build/tools/bin/uv pip install --quiet --python "$VENV/bin/python" --target "$folder.part" --require-hashes --no-deps \
      --no-build --requirement "$LOCK" >&2
    # What the image leaves out as well: headers, and a compiler's library that nothing here loads.
    rm -rf "$folder.part/tensorflow/include" "$folder.part/clang"
    mv "$folder.part" "$folder"
  fi
fi
echo "$folder"
