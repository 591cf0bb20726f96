#!/usr/bin/env bash
# Writes a CycloneDX file of the Python packages of each image, with their hashes, from the locks that the images are
# built from. Debian's packages are not in them: they are known once an image is built (docs/how-to/publish-images.md).
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT"

uv="${UV:-$REPO_ROOT/build/tools/bin/uv}"
[[ -x "$uv" ]] || hack/dev/bootstrap.sh

"$uv" venv --quiet --clear --python .venv/bin/python build/sbom-venv
VIRTUAL_ENV=build/sbom-venv "$uv" pip install --quiet --require-hashes --requirement requirements/sbom.txt
mkdir -p build/sbom
for lock in operator server builder server-gpu builder-gpu tensorflow vllm vllm-gpu; do
  build/sbom-venv/bin/cyclonedx-py requirements --output-reproducible --output-file "build/sbom/$lock.cdx.json" \
    "requirements/$lock.txt"
  say "build/sbom/$lock.cdx.json"
done
