#!/usr/bin/env bash
# Runs `make test-unit` or `make test-integration` again and again, beside two busy loops and each time in another random
# order, to find tests that depend on time, order, cores or luck. All rounds run, also after one that failed.
#
# Usage: shake.sh unit|integration ROUNDS      (logs and a summary in build/shake; exit status 1 if any round failed)
# The seed that a round prints makes its order again: make test-unit ARGS="-p randomly --randomly-seed=SEED".
set -uo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT" || exit 1

suite="${1:?usage: shake.sh unit|integration ROUNDS}" rounds="${2:?usage: shake.sh unit|integration ROUNDS}"
logs="$REPO_ROOT/build/shake"
mkdir -p "$logs"
summary="$logs/$suite.txt"
: >"$summary"

busy=()
trap '((${#busy[@]} == 0)) || kill "${busy[@]}"' EXIT
for _ in 1 2; do
  (while :; do :; done) &
  busy+=("$!")
done

failed=0
for ((round = 1; round <= rounds; round++)); do
  seed="$((RANDOM * 32768 + RANDOM))"
  log="$logs/$suite-$round.log"
  result=ok
  make --no-print-directory "test-$suite" ARGS="-p randomly --randomly-seed=$seed" >"$log" 2>&1 || result=FAILED failed=1
  printf '%s round %d of %d, seed %d: %s: %s\n' "$suite" "$round" "$rounds" "$seed" "$result" "$(tail -1 "$log")" |
    tee -a "$summary"
done
exit "$failed"
