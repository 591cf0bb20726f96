#!/usr/bin/env bash
# Prints the folder with the packages of requirements/tensorflow.txt, as the image builder-tensorflow has them, hashes
# checked. Made once for each lock, in the cache beside images and programs, and kept.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

LOCK=requirements/tensorflow.txt

fill() {
  install_locked "$LOCK" "$1"
  # What the image leaves out as well: headers, and a compiler's library that nothing here loads.
  rm -rf "$1/tensorflow/include" "$1/clang"
}

cached tensorflow "1.2 GB" "$LOCK"
