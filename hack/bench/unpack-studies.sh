#!/usr/bin/env bash
# Unpacks what carry-studies.sh packed: PARTS=DIR bash unpack.sh TARGET, then `. TARGET/env`.
set -euo pipefail
target=${1:?usage: PARTS=DIR unpack.sh TARGET}
mkdir -p "$target"
target=$(cd "$target" && pwd)
if [ ! -d "$target/programs" ]; then
  if command -v xz >/dev/null; then
    unpack() { xz -dc -T0; }
  else
    unpack() { python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer)'; }
  fi
  cat "${PARTS:?}"/part-* | unpack | tar -C "$target" -xf -
fi
rm -rf "$target/source" && mkdir "$target/source"
tar -C "$target/source" -xzf "${PARTS:?}/source.tar.gz"
python3 - "$target/wheels" "$target/site" <<'PY'
import pathlib, sys, zipfile

# A wheel's packages lie at its top; programs that it would install are not needed.
for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
    zipfile.ZipFile(wheel).extractall(sys.argv[2])
PY
source=$target/source
cat >"$target/env" <<ENV
export PATH=$target/tools/bin:\$PATH
export ENGINEWRIGHT_PROGRAMS=$target/programs
export PYTHONPATH=$source/studies:$source/hack:$source/operator:$source/builders:$source/tests/support:$target/site
ENV
if [ -d "$target/kserve" ]; then
  echo "export KSERVE_MANAGER=$target/kserve/manager KSERVE_SOURCE=$target/kserve/source" >>"$target/env"
fi
python3 -m compileall -q -j 0 "$target/site" "$source" >/dev/null || true
echo ". $target/env"
