#!/usr/bin/env bash
# Writes every generated file from its one source; with --check writes nothing and fails when one differs.
#
#   core/spec (pydantic)      → crds/*.yaml, charts/enginewright/templates/crd.yaml      hack/generate.py
#   core/spec (pydantic)      → docs/reference/fields.md                                 hack/generate.py
#   core/spec (pydantic)      → docs/schema/*.json                                       hack/generate.py
#   corpus of bad specs       → docs/bad-input.md                                        hack/generate.py
#   table of small models     → docs/inputs.md                                           hack/generate.py
#   values.yaml, Chart.yaml   → charts/enginewright/README.md                            hack/generate.py
#   values.yaml and schema    → charts/enginewright/files/defaults.yaml                  hack/generate.py
#   charts/enginewright       → charts/kustomize/base                                    hack/generate.py
#
# Pages that describe code (conditions, metrics) are written by hand; tests/unit/project compares them with it.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

check="${1:-}"
[[ -z "$check" || "$check" == --check ]] || die "usage: $0 [--check]"

if ! "$VENV/bin/python" hack/generate.py ${check:+"$check"}; then
  [[ -z "$check" ]] || die "generated files differ from their source; run: make generate"
  exit 1
fi
