"""The study's figures as a page for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def page(result: Mapping[str, Any]) -> str:
    drawn, churn, time = result["random"], result["churn"], result["time"]
    hardware, versions, large = result["hardware"], result["versions"], result["large"]
    moving, decided, opened = churn["if_all_might_move"], churn["decisions"], drawn["gpus_opened_where_worth_is_equal"]
    rows = "\n".join(
        f"| {name} | {_percent(row['mean_gap'])} | {_percent(row['worst_gap'])} | {row['within_2_percent']} | "
        f"{row['optimal']} |" for name, row in drawn["rules"].items())
    shares = "\n".join(f"| {name} | {_percent(share)} |" for name, share in churn["share_that_ran"].items())
    return f"""# The planner beside the optimum and beside others

Written by `{result['command']}`; all figures are in `planner.json`. {hardware['cpu']}, {hardware['cores']} cores,
load {hardware['load_when_it_began']:.1f} when it began; Python {versions['python']}, OR-Tools {versions['ortools']}
(CP-SAT), SciPy {versions['scipy']} (HiGHS). What is planned and how: [0008](../adr/0008-mig-planner.md).

## Random instances

{drawn['instances']} instances, seeds from {drawn['first_seed']}: 2 to 40 GPUs of one to three products, from empty to
nearly full, demand for 0.5 to 2 times what is free, a replica worth 1, its size, or a random number. The gap is the
share of the optimum's worth that a rule does not place. CP-SAT proved {drawn['instances'] - len(drawn['unproven'])}
optima; HiGHS differs on {len(result['solvers']['apart'])} of the first {result['solvers']['instances']}.

| rule | mean gap | worst gap | within 2 % | optimal |
|---|---|---|---|---|
{rows}

The planner's worst instance has seed {drawn['worst_seed']}. Where its worth is the optimum's ({opened['instances']}
instances) it opens {opened['planner']} idle GPUs in all, the optimum {opened['optimum']}. On {large['count']} fleets of
{large['gpus']} GPUs its mean gap is {_percent(large['mean_gap'])}, the worst {_percent(large['worst_gap'])}.

`by size` has the replicas sorted, the largest first, which a scheduler that sees one at a time cannot do.

## Churn

{churn['traces']} traces of {churn['steps']} arrivals on {churn['gpus']} GPUs of two products; models stay so long that
{churn['load']:g} times the slices would be in use. What runs is never moved.

**Each decision.** Models wait until there is room. At {decided['count']} moments not all that waited was placed; there
the planner's choice is {_percent(decided['of_all_worth'])} below the optimum of that moment in all, within 2 % of it
{decided['within_2_percent']} times, at worst {_percent(decided['worst_gap'])} below.

**The long run.** A replica that finds no place is turned away. Share of worth × time that ran:

| rule | share |
|---|---|
{shares}

**What moving would give.** If everything that runs might be repacked at each arrival, on any of its options,
{_percent(moving['all_may_move'])} would run in the first {moving['traces']} traces, and the planner reaches
{_percent(moving['planner'])} there: that is the price of never moving anybody, not of the choice.

## Time

One plan for {time['gpus']} GPUs with its reasons, {time['instances']} instances, milliseconds; load
{time['load_when_it_began']:.1f} when it began:

| | median | p90 | p99 | most |
|---|---|---|---|---|
| processor, best of three | {_quantiles(time['best_of_three_ms']['processor'])} |
| processor, first run of each | {_quantiles(time['first_ms']['processor'])} |
| wall, best of three | {_quantiles(time['best_of_three_ms']['wall'])} |
| wall, first run of each | {_quantiles(time['first_ms']['wall'])} |

The machine was shared: the wall's time has in it what neighbours took, and so, by their use of the caches, the
processor's has a part of it. No test depends on time.
"""


def _quantiles(found: Mapping[str, float]) -> str:
    return " | ".join(f"{found[name]:.1f}" for name in ("median", "p90", "p99", "max"))


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
