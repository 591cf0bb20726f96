#!/usr/bin/env bash
# Makes .venv from requirements/dev.txt, hashes checked, and installs this project into it as an editable package.
# Does nothing when neither the lock nor the project's metadata changed since it last succeeded.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

# The lock is resolved for this version; another one would need other wheels.
PYTHON_VERSION=3.11
LOCK=requirements/dev.txt
TOOLS="$REPO_ROOT/build/tools"

# Debian's comes first, where it has this version: it is compiled with what profiles of it show, and takes a quarter less
# time than one that pyenv compiles as it does by default. Tests and operators spend most of their time in it.
find_python() {
  local candidate
  for candidate in "/usr/bin/python$PYTHON_VERSION" "python$PYTHON_VERSION" python3; do
    if command -v "$candidate" >/dev/null &&
      [[ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" == "$PYTHON_VERSION" ]]; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

wanted="$(stamp "$LOCK" requirements/tools.txt pyproject.toml)"
done_file="$VENV/.enginewright-stamp"
if [[ -f "$done_file" && "$(<"$done_file")" == "$wanted" ]] && "$VENV/bin/python" -c '' 2>/dev/null; then
  exit 0
fi

# Two targets at once must not install into one environment.
mkdir -p build
exec 9>build/bootstrap.lock
flock 9

python="$(find_python || true)"
if [[ -z "$python" ]] && command -v apt-cache >/dev/null; then
  apt_install "python$PYTHON_VERSION" "python$PYTHON_VERSION-venv"
  python="$(find_python || true)"
fi
[[ -n "$python" ]] || die "needed: Python $PYTHON_VERSION (found $(python3 --version 2>&1 || echo none)). " \
  "Debian 12 has it as python3; elsewhere install python$PYTHON_VERSION and its venv module"

# Triton's Python backend links the shared library, which python3 of Debian does not bring.
shared="libpython$PYTHON_VERSION.so.1.0"
libdir="$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')"
if [[ ! -e "$libdir/$shared" ]] && ! ldconfig -p | grep -qF "$shared"; then
  apt_install "libpython$PYTHON_VERSION"
fi

# Debian's own pip is "externally managed"; a virtual environment's is not.
"$python" -c 'import ensurepip' 2>/dev/null || apt_install "python$PYTHON_VERSION-venv"
if [[ ! -x "$TOOLS/bin/uv" ]]; then
  say "installing uv"
  "$python" -m venv "$TOOLS"
  "$TOOLS/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.txt
fi

say "installing the locked packages into ${VENV#"$REPO_ROOT"/} (several gigabytes when nothing is cached)"
if ! "$VENV/bin/python" -c '' 2>/dev/null; then
  "$TOOLS/bin/uv" venv --quiet --clear --python "$python" "$VENV"
fi
patiently "locked packages" "$TOOLS/bin/uv" pip sync --quiet --python "$VENV/bin/python" --require-hashes "$LOCK"
# The build backend is in the lock, so nothing unpinned is fetched to build with.
"$TOOLS/bin/uv" pip install --quiet --python "$VENV/bin/python" --no-deps --no-build-isolation --editable .
echo "$wanted" >"$done_file"
