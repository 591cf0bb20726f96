"""The optimum: the most worth, then the fewest GPUs opened. By CP-SAT (OR-Tools) for the study; by HiGHS (in SciPy) for
the unit tests, whose environment has no OR-Tools, and as a check of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from enginewright.core.planner.fleet import GPU, Demand
from planner_study.model import SCALE, Model, model


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """``proven`` is False where the time limit came first; then ``worth`` is the solver's upper bound."""

    worth: float
    opened: int
    proven: bool = True


def by_cp_sat(gpus: Sequence[GPU], demands: Sequence[Demand], *, seconds: float = 20.0) -> Optimum:
    from ortools.sat.python import cp_model

    built = model(gpus, demands)
    program = cp_model.CpModel()
    variables = [program.new_int_var(0, upper, "") for upper in built.upper]

    def total(terms: Any) -> Any:
        return sum(factor * variables[number] for number, factor in terms.items())

    for terms, most in built.limits:
        if terms:
            program.add(total(terms) <= most)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    program.maximize(total(built.worth))
    if solver.solve(program) != cp_model.OPTIMAL:
        return Optimum(worth=solver.best_objective_bound / SCALE, opened=0, proven=False)
    best = round(solver.objective_value)
    program.add(total(built.worth) >= best)
    program.minimize(total(built.opened))
    status = solver.solve(program)
    return Optimum(worth=best / SCALE, opened=round(solver.best_objective_bound), proven=status == cp_model.OPTIMAL)


def by_highs(gpus: Sequence[GPU], demands: Sequence[Demand]) -> Optimum:
    """``opened`` is not minimised (-1)."""
    built = model(gpus, demands)
    return Optimum(worth=round(_highs(built)) / SCALE, opened=-1)


def _highs(built: Model) -> float:
    import numpy
    from scipy.optimize import Bounds, LinearConstraint, milp

    size = len(built.upper)
    if not size:
        return 0.0
    rows = numpy.zeros((len(built.limits), size))
    for row, (terms, _) in enumerate(built.limits):
        for number, factor in terms.items():
            rows[row, number] = factor
    worth = numpy.zeros(size)
    for number, factor in built.worth.items():
        worth[number] = factor
    solved = milp(-worth, integrality=numpy.ones(size), bounds=Bounds(0, built.upper),
                  constraints=LinearConstraint(rows, ub=[most for _, most in built.limits]),
                  options={"mip_rel_gap": 0.0})
    assert solved.success, solved.message
    return float(-solved.fun)
