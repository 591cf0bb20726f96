#!/usr/bin/env bash
# Runs every check, cheapest first, and ends with a table of times and pytest's own summaries.
#
# Every step runs even when another fails, so that one run shows all there is to mend; only without an environment nothing
# can run. ENGINEWRIGHT_REQUIRE_E2E=1 makes a machine that cannot run a node a failure.
set -uo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT" || exit 1

logs="$REPO_ROOT/build/test"
rm -rf "$logs"
mkdir -p "$logs"
names=() seconds=() results=() summaries=()
failed=0

# step NAME COMMAND…: runs it with its output shown and kept, notes time and result.
step() {
  local name="$1" began="$EPOCHREALTIME" result=ok
  shift
  say "$name"
  if ! "$@" 2>&1 | tee "$logs/$name.log"; then
    result=FAILED
    failed=1
  fi
  note "$name" "$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')" "$result"
}

note() {
  names+=("$1") seconds+=("$2") results+=("$3")
}

# tests NAME PATH…: as step, with pytest.
tests() {
  local name="$1"
  shift
  step "$name" "$VENV/bin/pytest" -q --durations=5 "$@"
  summaries+=("$(grep -E '^=*.*(passed|failed|error|skipped|no tests ran).* in [0-9.]+s' "$logs/$name.log" | tail -1)")
}

# A cluster that was not there before is not left behind.
end_to_end() {
  local was_up=0
  [[ "${CLUSTER:-local}" != local ]] || ! hack/cluster/cluster status >/dev/null 2>&1 || was_up=1
  tests e2e tests/e2e
  if [[ "${CLUSTER:-local}" == local ]] && ((!was_up)); then
    step cluster-down hack/cluster/cluster down
  fi
}

report() {
  printf '\n%-14s %8s  %s\n' step seconds result
  local i
  for i in "${!names[@]}"; do
    printf '%-14s %8s  %s\n' "${names[$i]}" "${seconds[$i]}" "${results[$i]}"
  done
  echo
  [[ ${#summaries[@]} -eq 0 ]] || printf '%s\n' "${summaries[@]}"
  list_failures
}

# All that failed, once more at the end: pytest's own lines of the steps, and the last lines of every other step.
list_failures() {
  local i name
  for i in "${!names[@]}"; do
    name="${names[$i]}"
    [[ "${results[$i]}" == FAILED && -f "$logs/$name.log" ]] || continue
    printf '\n%s failed (build/test/%s.log):\n' "$name" "$name"
    grep -E '^(FAILED|ERROR) ' "$logs/$name.log" || tail -5 "$logs/$name.log"
  done
}

step environment hack/dev/bootstrap.sh
if ((failed)); then
  report
  exit 1
fi
step lint "$VENV/bin/ruff" check .
step types "$VENV/bin/mypy"
step imports "$VENV/bin/lint-imports" --no-logo
step generated make --no-print-directory verify
# Each worker takes its share of the tests in their order, so files with costly fixtures stay whole; one that is done takes
# over some of what another has left.
tests unit -n "$(nproc)" --dist worksteal -m "not triton and not integration" tests/unit tests/golden tests/security tests/fuzz
tests triton -m "triton or (torch and integration)" tests/unit tests/integration tests/security
step packages hack/bin-deps.sh --tests
step programs hack/cluster/cluster build  # by a test it would be within its time limit
# One at a time, where `make test-integration` runs two: this decides what lands, and two on two cores gain two minutes
# and lose a run now and then.
tests integration -m "integration and not triton" tests/integration tests/security
if reason="$(hack/dev/can-run-node.sh)"; then
  end_to_end
elif [[ -n "${ENGINEWRIGHT_REQUIRE_E2E:-}" ]]; then
  warn "end-to-end tests must run here and cannot: $reason"
  note e2e - FAILED
  failed=1
else
  warn "end-to-end tests skipped: $reason"
  note e2e - "skipped: $reason"
fi

report
exit "$failed"
