#!/usr/bin/env bash
# Unpacks what carry-studies.sh packed: PARTS=DIR bash unpack.sh TARGET, then `. TARGET/env`.
set -euo pipefail
target=${1:?usage: PARTS=DIR unpack.sh TARGET}
mkdir -p "$target"
target=$(cd "$target" && pwd)
[ -d "$target/programs" ] || cat "${PARTS:?}"/part-* | tar -C "$target" -xzf -
rm -rf "$target/source" && mkdir "$target/source"
tar -C "$target/source" -xzf "${PARTS:?}/source.tar.gz"
python3 - "$target/wheels" "$target/site" <<'PY'
import pathlib, sys, zipfile

# A wheel's packages lie at its top; programs that it would install are not needed.
for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
    zipfile.ZipFile(wheel).extractall(sys.argv[2])
PY
# Debian's programs run with the libraries that came with them; openssl wants a configuration, whichever the machine has.
mkdir -p "$target/bin"
printf '[req]\ndistinguished_name = name\n[name]\n' >"$target/tools/openssl.cnf"
for program in "$target"/tools/*.program; do
  name=$(basename "$program" .program)
  cat >"$target/bin/$name" <<SH
#!/bin/sh
export OPENSSL_CONF="$target/tools/openssl.cnf"
exec "$target/tools/ld-linux-x86-64.so.2" --library-path "$target/tools" "$program" "\$@"
SH
  chmod +x "$target/bin/$name"
done
source=$target/source
cat >"$target/env" <<ENV
export PATH=$target/bin:\$PATH
export ENGINEWRIGHT_PROGRAMS=$target/programs
export PYTHONPATH=$source/studies:$source/hack:$source/operator:$source/builders:$source/tests/support:$target/site
ENV
if [ -d "$target/kserve" ]; then
  echo "export KSERVE_MANAGER=$target/kserve/manager KSERVE_SOURCE=$target/kserve/source" >>"$target/env"
fi
python3 -m compileall -q -j 0 "$target/site" "$source" >/dev/null || true
echo ". $target/env"
