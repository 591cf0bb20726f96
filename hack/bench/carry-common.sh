# shellcheck shell=bash
# What carry*.sh share; sourced by them. Takes their arguments, and gives them `root`, the repository, `work`, a folder that
# goes when they end, and `out`, where the parts go.
set -euo pipefail
out=${1:?usage: $(basename "$0") OUT_DIR}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch DIR ARGUMENT...: wheels for the other machine's Python 3.12, of the tags that the array `platforms` has, by the
# arguments of `pip download`.
fetch() {
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    "${platforms[@]/#/--platform=}" -d "$1" "${@:2}"
}

# parts COMPRESSOR NAME...: files and folders of `work` as numbered parts, each below 42 MB.
parts() {
  echo "parts" >&2
  mkdir "$work/parts"
  tar -C "$work" -cf - --exclude=./parts "${@:2}" | $1 | split -b 40m -d - "$work/parts/part-"
}

# hand_over UNPACK: what lies in `parts`, with what unpacks it. Under their names only once all are whole.
hand_over() {
  rm -f "$out"/part-*
  mv "$work/parts"/* "$out/"
  cp "$root/hack/bench/$1" "$out/unpack.sh"
  ls -l "$out" >&2
}
