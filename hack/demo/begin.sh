#!/usr/bin/env bash
# begin.sh PROGRAM [ARGUMENT…]: runs `python -m PROGRAM`, a demo, in .venv. The cluster starts, or the first time is
# compiled, while .venv is made; the demo's own `cluster up` waits for that, and says what went wrong with it.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

set -m # A process group of its own: Ctrl-C would not reach it otherwise, and its compilers go with it.
hack/cluster/cluster up </dev/null &
set +m
trap 'kill -INT %1 2>/dev/null || true' EXIT

hack/dev/bootstrap.sh
PYTHONPATH=hack:builders "$VENV/bin/python" -m "$@"
