#!/usr/bin/env bash
# Prints KServe's manager (Apache-2.0), built of the module that hack/go/kserve pins. Made once for each version, in the
# cache beside images and programs, and kept.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

PINS=hack/go/kserve

fill() {
  local go module
  go="$(PYTHONPATH=hack "$VENV/bin/python" -c 'from cluster import toolchain; print(toolchain.find_go())')"
  module="$(cd "$PINS" && "$go" mod download -json github.com/kserve/kserve |
    "$VENV/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')"
  # In its own folder: what it replaces in other modules counts only there.
  (cd "$module" && CGO_ENABLED=0 "$go" build -mod=readonly -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w" -o "$1/manager" ./cmd/manager)
}

echo "$(cached kserve "150 MB" "$PINS/go.mod" "$PINS/go.sum" hack/dev/kserve.sh)/manager"
