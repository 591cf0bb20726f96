"""Which schedule holds at a moment: the one whose end comes before its next start, as in KEDA's cron scaler."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from enginewright.core.spec import ScheduleSpec


def holding_at(schedules: Sequence[ScheduleSpec], now: datetime) -> ScheduleSpec | None:
    """The first of ``schedules`` that holds at ``now``, which has a time zone. Those that are malformed never do."""
    return next((one for one in schedules if _holds(one, now)), None)


def _holds(schedule: ScheduleSpec, now: datetime) -> bool:
    try:
        here = now.astimezone(ZoneInfo(schedule.time_zone))
        return next_time(schedule.end, here) < next_time(schedule.start, here)
    except (CroniterError, KeyError, ValueError, OSError):  # an object may be older than its validation
        return False


def next_time(expression: str, after: datetime) -> datetime:
    """When ``expression`` comes next after a moment. Raises :class:`CroniterError` where it is none, or never comes."""
    found: datetime = croniter(expression, after).get_next(datetime)
    return found
