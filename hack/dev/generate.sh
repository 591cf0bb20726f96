#!/usr/bin/env bash
# Writes every generated file from its one source; with --check writes nothing and fails when one differs.
#
#   core/spec (pydantic)      → crds/*.yaml                          hack/generate.py
#   crds/*.yaml               → charts/enginewright/crds/            a copy: Helm reads only its own folder
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

check="${1:-}"
[[ -z "$check" || "$check" == --check ]] || die "usage: $0 [--check]"
failed=0

"$VENV/bin/python" hack/generate.py $check || failed=1
if [[ -n "$check" ]]; then
  diff -r -u crds charts/enginewright/crds || failed=1
else
  mkdir -p charts/enginewright/crds
  rm -f charts/enginewright/crds/*.yaml
  cp crds/*.yaml charts/enginewright/crds/
fi

if ((failed)); then
  [[ -n "$check" ]] && die "generated files differ from their sources; run: make generate"
  exit 1
fi
