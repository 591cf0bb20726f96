#!/usr/bin/env bash
# Runs the planner's study in an environment of its own, with the packages of requirements/planner-study.txt.
set -euo pipefail
. "$(dirname "$0")/../../hack/lib/common.sh"
cd "$REPO_ROOT"

env="$REPO_ROOT/build/planner-study/venv"
uv="${UV:-$REPO_ROOT/build/tools/bin/uv}"
[[ -x "$env/bin/python" ]] || "$uv" venv --quiet --python "$ENGINEWRIGHT_VENV/bin/python" "$env"
"$uv" pip sync --quiet --python "$env/bin/python" --require-hashes requirements/planner-study.txt
PYTHONPATH=studies:hack:operator:builders "$env/bin/python" -m planner_study "$@"
