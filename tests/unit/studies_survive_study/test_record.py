"""The campaign's lines, its summary of them, and how seeds are shared among processes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from survive_study import record
from survive_study.__main__ import parsed, writing
from survive_study.processes import shares
from survive_study.record import Told


def test_the_summary_is_of_the_lines_of_all_processes(tmp_path: Path) -> None:
    for number in (0, 1):
        folder = tmp_path / f"process-{number}"
        folder.mkdir()
        record.keep(folder, Told(7 + number, steps=12, kills=3, rests=2, fields={"spec.replicas", f"spec.f{number}"},
                                 done=Counter({"act": 2}), slowest_rest=2.04 + number))
    record.keep(tmp_path / "process-1", Told(9, steps=3, alarms=["step 2: two builds"]))
    record.keep(tmp_path / "process-1", Told(10, broke="Traceback"))
    told = record.report(record.kept(tmp_path), 61.2, 90.0)
    assert told.items() >= {"steps": 27, "kills": 6, "rests": 4, "fields_changed": 3, "alarms": 1, "broke": 1,
                            "slowest_rest_s": 3.0, "seconds": 61, "done": {"act": 4}, "seeds": [7, 8, 9, 10]}.items()


def test_the_summary_is_written_where_no_folder_is_yet(tmp_path: Path) -> None:
    output = tmp_path / "build" / "survive.json"
    write = writing(parsed(["--output", str(output), "--seed", "7"]), tmp_path)
    record.keep(tmp_path, Told(7, steps=12))
    assert write()["steps"] == json.loads(output.read_text())["steps"] == 12


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    record.keep(tmp_path, Told(1, steps=2))
    with (tmp_path / record.LINES).open("a") as lines:
        lines.write(Told(2, steps=2).as_line()[:20])
    assert [one.seed for one in record.kept(tmp_path)] == [1]


def test_each_process_has_seeds_of_its_own() -> None:
    assert shares(300, 7, 3) == [(300, 3), (303, 2), (305, 2)]
    assert shares(1, 2, 4) == [(1, 1), (2, 1)]
