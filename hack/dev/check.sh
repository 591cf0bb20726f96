#!/usr/bin/env bash
# Runs every check, and ends with a table of times and pytest's own summaries.
#
# Four rows of steps run side by side: end-to-end tests, which mostly wait for a node; tests that mostly wait for a
# tritonserver of their own; tests with an apiserver, then with a vLLM; and static checks and unit tests, which only
# compute, so that they fill what the others leave to the end. One row is shown. The output of the others goes to
# build/test alone, and the two that need no lease kept and no server ready in time give way: they have a lower priority.
# A row gets what it alone needs, so that no row waits for another's. Each row runs one step at a time. Every step runs
# even when another fails, so that one run shows all there is to mend; only without an environment nothing can run.
# ENGINEWRIGHT_REQUIRE_E2E=1 makes a machine that cannot run a node a failure.
set -uo pipefail
. "$(dirname "$0")/../lib/common.sh"
cd "$REPO_ROOT" || exit 1
# Of etcd, apiservers, kubelet, kubectl, helm: with memory enough they collect less garbage.
export GOGC=400

logs="$REPO_ROOT/build/test"
rm -rf "$logs"
mkdir -p "$logs"
table="$logs/table.txt" # step, seconds, result: all rows write it
: >"$table"
exec 3>&1 # where output is shown
beside=() # process groups of the rows that are not shown
shown=1

# step NAME COMMAND…: runs it with its output shown and kept, notes time and result.
step() {
  local name="$1" began="$EPOCHREALTIME" result=ok seconds
  shift
  say "$name"
  "$@" 2>&1 | tee "$logs/$name.log" >&3 || result=FAILED
  seconds="$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')"
  note "$name" "$seconds" "$result"
  ((shown)) || say "$name: $result after $seconds s"
}

note() {
  printf '%s\t%s\t%s\n' "$@" >>"$table"
}

failed() {
  grep -q $'\tFAILED$' "$table"
}

# tests NAME PATH…: as step, with pytest. Beside other rows a test takes several times as long as alone, so the limit ends
# only what hangs.
tests() {
  local name="$1"
  shift
  step "$name" "${gently[@]}" "$VENV/bin/pytest" -q --durations=5 --timeout 900 "$@"
}

# The cluster's programs: to compile them by a test would be within its time limit.
programs() {
  step programs hack/cluster/cluster build
}

# While the cluster's programs are compiled: where no cache has it, the image of vLLM takes minutes of network and disk.
image_of_vllm() {
  step image-vllm "${gently[@]}" hack/images/images build server-vllm
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

# Without what it found out before, mypy takes two minutes. It knows files by their content, so clones can share that, one
# at a time.
types() {
  local kept="${ENGINEWRIGHT_CACHE:-$HOME/.cache/enginewright}"
  mkdir -p "$kept/locks"
  flock "$kept/locks/mypy" "${gently[@]}" "$VENV/bin/mypy" --cache-dir "$kept/mypy"
}

# All that starts no server.
without_servers() {
  step lint "${gently[@]}" "$VENV/bin/ruff" check .
  step types types
  step imports "$VENV/bin/lint-imports" --no-logo
  step generated make --no-print-directory verify
  # Each worker takes its share of the tests in their order, so files with costly fixtures stay whole; one that is done
  # takes over some of what another has left.
  tests unit -n "$(nproc)" --dist worksteal -m "not triton and not integration" tests/unit tests/golden tests/security \
    tests/fuzz
}

# Two files at a time: for most of its time such a test waits for a server to start, or for a measurement's end. In their
# order, as the last ones are short.
with_tritonserver() {
  step tensorflow hack/dev/tensorflow.sh
  tests triton -n 2 --dist loadfile --no-loadscope-reorder -m "triton or (torch and integration)" tests/unit \
    tests/integration tests/security
}

# Two files at a time. They hold leases, so they do not give way.
with_apiserver() {
  local gently=()
  hack/cluster/cluster build >/dev/null 2>&1 || true # waits where they are being compiled beside
  tests integration -n 2 --dist loadfile -m "integration and not triton and not vllm" tests/integration tests/security
}

# A vLLM and its test hold 3.3 GB, so there is one at a time. It must be ready in time, so it does not give way.
with_vllm() {
  local gently=()
  step vllm-packages hack/dev/vllm.sh
  step smollm2 hack/dev/smollm2.sh
  tests vllm -m vllm tests/integration/builder_vllm
}

# row PART…: one after another.
row() {
  local part
  for part; do
    "$part"
  done
}

report() {
  printf '\n%-14s %8s  %s\n' step seconds result
  awk -F'\t' '{ printf "%-14s %8s  %s\n", $1, $2, $3 }' "$table"
  echo
  local name
  for name in unit triton vllm integration e2e; do
    [[ ! -f "$logs/$name.log" ]] ||
      grep -E '^=*.*(passed|failed|error|skipped|no tests ran).* in [0-9.]+s' "$logs/$name.log" | tail -1
  done
  list_failures
}

# All that failed, once more at the end: pytest's own lines of the steps, and the last lines of every other step.
list_failures() {
  local name result
  while IFS=$'\t' read -r name _ result; do
    [[ "$result" == FAILED && -f "$logs/$name.log" ]] || continue
    printf '\n%s failed (build/test/%s.log):\n' "$name" "$name"
    grep -E '^(FAILED|ERROR) ' "$logs/$name.log" || tail -5 "$logs/$name.log"
  done <"$table"
}

# run_beside PART…: a row in a process group of its own, which an interrupt is passed on to.
run_beside() {
  set -m
  (
    exec 3>/dev/null
    shown=0 gently=(nice -n 10)
    row "$@"
  ) &
  beside+=("$!")
  set +m
  trap end_beside EXIT
}

# The rows that are not shown, when the one that is shown is interrupted. pytest ends what it has started on an interrupt;
# where this script was started in the background, which ignores interrupts, nothing but a termination ends it.
end_beside() {
  signal_beside INT || return 0
  for _ in {1..300}; do
    signal_beside 0 || return 0
    sleep 0.1
  done
  signal_beside TERM
  wait
}

# signal_beside SIGNAL: false when no row is left to send it to.
signal_beside() {
  local group left=1
  for group in "${beside[@]}"; do
    kill "-$1" -- "-$group" 2>/dev/null && left=0
  done
  return "$left"
}

gently=()
step environment hack/dev/bootstrap.sh
if failed; then
  report
  exit 1
fi
step packages hack/bin-deps.sh --tests
say "beside what is shown, into build/test: tests with servers of models, tests with an apiserver"
run_beside with_tritonserver
run_beside with_apiserver with_vllm
if reason="$(hack/dev/can-run-node.sh)"; then
  say "beside the end-to-end tests, into build/test: all that needs no node"
  run_beside image_of_vllm without_servers
  row programs end_to_end
else
  row programs without_servers
  if [[ -n "${ENGINEWRIGHT_REQUIRE_E2E:-}" ]]; then
    warn "end-to-end tests must run here and cannot: $reason"
    note e2e - FAILED
  else
    warn "end-to-end tests skipped: $reason"
    note e2e - "skipped: $reason"
  fi
fi
wait "${beside[@]}"
trap - EXIT

report
! failed
