"""Which schedule holds at a moment: the one whose last start came after its last end. (KEDA's cron scaler asks whether
the next end comes before the next start, which is not so between two starts.)"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from enginewright.core.spec import ScheduleSpec


def holding_at(schedules: Sequence[ScheduleSpec], now: datetime) -> ScheduleSpec | None:
    """The first of ``schedules`` that holds at ``now``, which has a time zone. Those that are malformed never do."""
    return next((one for one in schedules if _holds(one, now)), None)


def _holds(schedule: ScheduleSpec, now: datetime) -> bool:
    try:
        here = now.astimezone(ZoneInfo(schedule.time_zone))
        return _last_time(schedule.start, here) > _last_time(schedule.end, here)
    except (CroniterError, KeyError, ValueError, OSError):  # an object may be older than its validation
        return False


def _last_time(expression: str, moment: datetime) -> datetime:
    """When ``expression`` came last, at ``moment`` or before it, which has a time zone. In UTC: wall clocks go back.
    Raises :class:`CroniterError` where it is none, or never comes."""
    after = (moment.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)).astimezone(moment.tzinfo)
    found: datetime = croniter(expression, after).get_prev(datetime)
    return found.astimezone(UTC)
