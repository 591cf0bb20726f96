#!/usr/bin/env bash
# Prints a folder with KEDA's operator and metrics server (Apache-2.0), built of the module that hack/go/keda pins. Made
# once for each version, in the cache beside images and programs, and kept. Two cores take a quarter of an hour.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

PINS=hack/go/keda

fill() {
  local go module
  go="$(PYTHONPATH=hack "$VENV/bin/python" -c 'from cluster import toolchain; print(toolchain.find_go())')"
  module="$(cd "$PINS" && "$go" mod download -json github.com/kedacore/keda/v2 |
    "$VENV/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')"
  # In its own folder: what it replaces in other modules counts only there.
  (cd "$module" && CGO_ENABLED=0 "$go" build -mod=readonly -trimpath -ldflags "-s -w" -o "$1/" ./cmd/operator ./cmd/adapter)
}

cached keda "500 MB" "$PINS/go.mod" "$PINS/go.sum" hack/dev/keda.sh
