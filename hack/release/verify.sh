#!/usr/bin/env bash
# verify.sh [FOLDER] [PUBLIC_KEY]: checks a release's files with the tools that made none of them. FOLDER is build/release
# unless given. PUBLIC_KEY is the releaser's, from a place that you trust; without it the folder's own release.pub counts,
# which shows that nothing was damaged, but not who made it.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"

folder="${1:-$REPO_ROOT/build/release}"
[[ -f "$folder/SHA256SUMS" ]] || die "$folder has no SHA256SUMS: run make release, or name the folder of a release"
key="${2:+$(realpath "$2")}"
uv="${UV:-$REPO_ROOT/build/tools/bin/uv}"
[[ -x "$uv" ]] || "$REPO_ROOT/hack/dev/bootstrap.sh"
cd "$folder"

say "checksums"
sha256sum --check --strict --quiet SHA256SUMS
# Signed on their own, or made of the sums.
beside=(SHA256SUMS SHA256SUMS.sig provenance.intoto.jsonl release.pub)
unnamed="$(LC_ALL=C comm -23 <(find . -mindepth 1 | sed 's|^\./||' | LC_ALL=C sort) \
  <({ sed 's/^[0-9a-f]* [ *]//' SHA256SUMS; printf '%s\n' "${beside[@]}"; } | LC_ALL=C sort))"
[[ -z "$unnamed" ]] || die "SHA256SUMS does not name these files of $folder: ${unnamed//$'\n'/, }; remove them"

if [[ -f SHA256SUMS.sig ]]; then
  [[ -n "$key" ]] || warn "no public key given: using release.pub of the same folder"
  key="${key:-release.pub}"
  signature="$(mktemp)"
  trap 'rm -f "$signature"' EXIT
  base64 --decode SHA256SUMS.sig >"$signature"
  say "signature of SHA256SUMS, by openssl"
  openssl dgst -sha256 -verify "$key" -signature "$signature" SHA256SUMS
  if command -v cosign >/dev/null; then
    say "signature and provenance, by cosign"
    cosign verify-blob --key "$key" --signature SHA256SUMS.sig --insecure-ignore-tlog=true SHA256SUMS
    for file in *.tgz *.whl install.yaml; do
      cosign verify-blob-attestation --key "$key" --signature provenance.intoto.jsonl --type slsaprovenance1 \
        --insecure-ignore-tlog=true "$file"
    done
  fi
elif [[ -n "$key" ]]; then
  die "$folder is not signed: it has no SHA256SUMS.sig"
fi

say "bills of materials, by spdx-tools"
venv="$REPO_ROOT/build/sbom-venv"
[[ -x "$venv/bin/pyspdxtools" ]] || {
  "$uv" venv --quiet --clear --python "$VENV/bin/python" "$venv"
  VIRTUAL_ENV="$venv" "$uv" pip install --quiet --require-hashes --requirement "$REPO_ROOT/requirements/sbom.txt"
}
for file in *.spdx.json; do
  [[ ! -e "$file" ]] || "$venv/bin/pyspdxtools" --infile "$file"
done
say "all files of $folder are as released"
