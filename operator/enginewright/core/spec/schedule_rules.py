"""Rules of autoscaling.schedules: what a cron expression or a time zone means, no pattern tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from enginewright.core.problems import Problem
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show
from enginewright.core.spec.rollout import AutoscalingSpec
from enginewright.core.spec.scaling_limits import CRON_EXAMPLE, ScheduleSpec

# Any moment will do to see whether a time ever comes.
SOME_TIME = datetime(2024, 1, 1)
# Not of cron: croniter draws a new number for R whenever it reads one, and H wants a seed.
RANDOM = re.compile(r"[rh](\(\S*\))?(/\S*)?", re.IGNORECASE)


def schedule_problems(spec: Spec) -> Iterator[Problem]:
    if spec.autoscaling is None:
        return
    names = [one.name for one in spec.autoscaling.schedules]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield Problem(field="spec.autoscaling.schedules", value=show(twice), message="repeats a name",
                      remedy="give each schedule its own name: decisions name the schedule in force")
    for index, one in enumerate(spec.autoscaling.schedules):
        field = f"spec.autoscaling.schedules[{index}]"
        yield from _times(field, one)
        yield from _replicas(field, one, spec.autoscaling)


def _times(field: str, one: ScheduleSpec) -> Iterator[Problem]:
    for name, given in (("start", one.start), ("end", one.end)):
        if drawn := [part for part in re.split(r"[ ,]+", given) if RANDOM.fullmatch(part)]:
            yield Problem(field=f"{field}.{name}", value=show(given),
                          message=f"has a random {drawn[0]}, which changes at each reading",
                          remedy=f"write numbers, such as {CRON_EXAMPLE}")
        elif not _comes(given):
            yield Problem(field=f"{field}.{name}", value=show(given), message="is a time that never comes",
                          remedy=f"write minute, hour, day of month, month and day of week, such as {CRON_EXAMPLE}")
    if _same(one.start, one.end):
        yield Problem(field=f"{field}.end", value=show(one.end), message="equals the start: the limits never apply",
                      remedy="write another time")
    if not _known(one.time_zone):
        yield Problem(field=f"{field}.timeZone", value=show(one.time_zone),
                      message="is not in the IANA time zone database", remedy="write a name such as Europe/Berlin or "
                                                                              "Etc/UTC")


def _replicas(field: str, one: ScheduleSpec, common: AutoscalingSpec) -> Iterator[Problem]:
    if one.min_replicas is None and one.max_replicas is None:
        yield Problem(field=field, value=show(one.name), message="limits nothing",
                      remedy="add minReplicas or maxReplicas, or remove the schedule")
        return
    low = common.min_replicas if one.min_replicas is None else one.min_replicas
    high = common.max_replicas if one.max_replicas is None else one.max_replicas
    if low > high:
        yield Problem(field=f"{field}.minReplicas", value=show(low),
                      message=f"is greater than maxReplicas {high} at that time",
                      remedy="raise maxReplicas or lower minReplicas, of the schedule or of autoscaling")


@lru_cache(maxsize=256)
def _comes(expression: str) -> bool:
    """Whether ``expression`` is a cron expression, of a time that comes: there is no 31st of February."""
    try:
        croniter(expression, SOME_TIME).get_next(datetime)
    except (CroniterError, ValueError):
        return False
    return True


def _same(start: str, end: str) -> bool:
    """Whether both are the same times, however they are written: MON is 1, and 08 is 8."""
    return start == end or (_comes(start) and _comes(end) and _expanded(start) == _expanded(end))


def _expanded(expression: str) -> tuple[list[set[str]], dict[int, set[str]]]:
    """The values of each field, and which of a month's days of the week (MON#1) are meant."""
    fields, nth = croniter.expand(expression)
    return [set(map(str, field)) for field in fields], {day: set(map(str, which)) for day, which in nth.items()}


@lru_cache(maxsize=256)
def _known(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # no name of the database, a malformed one, or that of a folder
        return False
    return True
