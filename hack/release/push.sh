#!/usr/bin/env bash
# push.sh FOLDER REGISTRY [OPTION…]: copies the images and the chart of a release to REGISTRY (host[:port][/path]), with the
# digests that the release states. skopeo does it, with the credentials of `skopeo login`; OPTIONS are skopeo's, such as
# --dest-tls-verify=false.
set -euo pipefail
. "$(dirname "$0")/../lib/common.sh"

[[ $# -ge 2 ]] || die "usage: $0 FOLDER REGISTRY [OPTION…]"
folder="$1" registry="${2%/}"
shift 2
[[ -f "$folder/SHA256SUMS" ]] || die "$folder holds no release: run make release"
command -v skopeo >/dev/null || die "needed and absent: skopeo (Debian: apt-get install skopeo)"

copy() { # copy ARCHIVE TAG NAME
  skopeo copy --quiet --preserve-digests "${@:4}" "oci-archive:$1:$2" "docker://$registry/$3:$2"
  say "$registry/$3:$2"
}

for archive in "$folder"/*.oci.tar; do
  name="$(basename "$archive" .oci.tar)"
  name="${name%%-[0-9]*}"
  [[ "$name" != enginewright-chart && "$name" != artifacthub-repo ]] || name=charts/enginewright
  while read -r tag; do
    copy "$archive" "$tag" "$name" "$@"
  done < <(tar -xOf "$archive" index.json | grep -o '"org.opencontainers.image.ref.name":"[^"]*"' | cut -d'"' -f4)
done
