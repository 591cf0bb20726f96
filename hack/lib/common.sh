# shellcheck shell=bash
# What every script here needs. Source it: . "$(dirname "$0")/../lib/common.sh"

REPO_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
export REPO_ROOT
VENV="${ENGINEWRIGHT_VENV:-$REPO_ROOT/.venv}"
export VENV
# As in the Makefile: byte code that is kept is compiled once, not by each process.
unset PYTHONDONTWRITEBYTECODE

if [[ -t 1 && -z "${NO_COLOR:-}" ]]; then
  _bold=$'\e[1m' _red=$'\e[31m' _yellow=$'\e[33m' _off=$'\e[0m'
else
  _bold='' _red='' _yellow='' _off=''
fi

say() { printf '%s==>%s %s\n' "$_bold" "$_off" "$*"; }
warn() { printf '%swarning:%s %s\n' "$_yellow" "$_off" "$*" >&2; }
die() {
  printf '%serror:%s %s\n' "$_red" "$_off" "$*" >&2
  exit 1
}

# patiently TITLE COMMAND…: runs a command that says nothing for long, and says now and then that it goes on. What waits
# for the next word holds neither a lock nor a pipe of this script's, which may end before.
patiently() {
  local title="$1" ticker status=0
  shift
  (while sleep 4 >/dev/null 2>&1 9>&- && kill -0 $$ 2>/dev/null; do say "$title: $SECONDS s"; done) &
  ticker=$!
  "$@" || status=$?
  kill "$ticker" 2>/dev/null
  wait "$ticker" 2>/dev/null || true
  return "$status"
}

# apt_install PACKAGE…: installs what is missing with Debian's package manager, or says what to install by hand.
apt_install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  command -v apt-get >/dev/null || die "needed and absent: ${missing[*]} (this machine has no apt-get; install them by hand)"
  [[ $EUID -eq 0 ]] || die "needed and absent: ${missing[*]}; run: sudo apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  patiently "Debian's packages" apt_get_install "${missing[@]}"
}

apt_get_install() {
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# stamp FILE…: one hash over the contents, so that a step is done again exactly when its inputs changed.
stamp() { cat -- "$@" | sha256sum | cut -d' ' -f1; }

# cached NAME SIZE FILE…: prints the folder of the cache, beside images and programs, that belongs to the contents of
# FILE…. Where it is not there, `fill FOLDER`, a function of the script, makes it: once, under a lock, and never seen half.
cached() {
  local name="$1" size="$2" cache="${ENGINEWRIGHT_CACHE:-$HOME/.cache/enginewright}" folder
  shift 2
  folder="$cache/$name-$(stamp "$@" | cut -c1-12)"
  if [[ ! -d "$folder" ]]; then
    "$REPO_ROOT/hack/dev/bootstrap.sh" >&2
    mkdir -p "$cache/locks"
    exec 9>"$cache/locks/$name"
    flock 9
    if [[ ! -d "$folder" ]]; then
      say "making $folder ($size)" >&2
      rm -rf "$folder.part"
      fill "$folder.part" >&2
      mv "$folder.part" "$folder"
    fi
  fi
  echo "$folder"
}

# install_locked LOCK FOLDER [OPTION…]: the packages of a lock into a folder that only this use has, hashes checked.
install_locked() {
  "$REPO_ROOT/build/tools/bin/uv" pip install --quiet --python "$VENV/bin/python" --target "$2" --require-hashes --no-deps \
    --no-build "${@:3}" --requirement "$1"
}
