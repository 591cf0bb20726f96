"""What is begun beside the builds, and when it stands still."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginewright_builder.competition.agenda import Plan
from enginewright_builder.competition.attempt import Workshop
from enginewright_builder.competition.foresight import LEAST_MEMORY_BYTES, LONGER, LOOK_SECONDS, SLOWER, Foresight
from enginewright_builder.contract import DeviceRequest, Interface
from enginewright_builder.engines.base import BatchRange, ExportedModel, Rung

INT8, FP8, TORCH = (Plan(rung=Rung(backend=backend, precision=precision)) for backend, precision in (
    ("tensorrt", "int8"), ("tensorrt", "fp8"), ("torch", "fp16")))


@dataclass
class Work:
    running: bool = True
    makes_engine: bool = False
    made: bool = False
    told: list[str] = field(default_factory=list)

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def cancel(self) -> None:
        self.running = False


class Engine:
    """Only what is asked of one that can prepare."""

    def __init__(self, packages: int = 1) -> None:
        self.begun: dict[str, Work] = {}
        self.packages = packages

    def begin(self, rung: Rung, model: Any, context: Any) -> Work:
        if rung.precision == "fp8":
            raise RuntimeError("not today")
        return self.begun.setdefault(rung.name.partition(" ")[2], Work(makes_engine=rung.backend == "torch"))

    def foresees(self, rung: Rung) -> bool:
        return not rung.ranges

    def at_a_time(self, cpus: int) -> int:
        return self.packages if cpus >= 16 else 1


def foresight(folder: Path, engine: Engine, *, accelerator: str = "gpu", cpus: int = 16,
              memory: int = 64 << 30, now: list[float] | None = None, both: bool = False) -> Foresight:
    path = folder / "model.onnx"
    path.write_bytes(b"graph")
    workshop = SimpleNamespace(engine=lambda rung: engine if both or rung.backend == "tensorrt" else object(),
                               model=ExportedModel(path=path, interface=Interface(), opset=18),
                               context=SimpleNamespace(device=DeviceRequest(accelerator=accelerator)))
    return Foresight(cast(Workshop, workshop), clock=lambda: (now or [0.0])[0], cpus=lambda: cpus,
                     memory=lambda: memory)


@pytest.mark.parametrize("changes", [
    {"accelerator": "cpu"}, {"cpus": 4}, {"memory": LEAST_MEMORY_BYTES - 1},
], ids=["on a CPU", "few CPUs", "little memory"])
def test_nothing_is_begun_where_it_would_disturb(changes: dict[str, Any], tmp_path: Path) -> None:
    engine = Engine()
    foresight(tmp_path, engine, **changes).prepare([INT8])
    assert not engine.begun


def test_one_of_each_engine_is_begun_at_a_time(tmp_path: Path) -> None:
    engine = Engine()
    one = foresight(tmp_path, engine, both=True)
    one.prepare([INT8, Plan(rung=Rung(backend="tensorrt", precision="bf16")), TORCH,
                 Plan(rung=Rung(backend="torch", precision="fp32"))])
    assert set(engine.begun) == {"int8", "fp16"}


@pytest.mark.parametrize(("cpus", "memory", "begun"), [
    (16, 64 << 30, {"fp16", "fp32"}), (12, 64 << 30, {"fp16"}), (16, 2 * LEAST_MEMORY_BYTES - 1, {"fp16"}),
], ids=["room for both", "few CPUs", "memory for one"])
def test_as_many_are_begun_as_the_engine_says_and_the_memory_holds(cpus: int, memory: int, begun: set[str],
                                                                   tmp_path: Path) -> None:
    engine = Engine(packages=2)
    one = foresight(tmp_path, engine, both=True, cpus=cpus, memory=memory)
    one.prepare([TORCH, Plan(rung=Rung(backend="torch", precision="fp32")),
                 Plan(rung=Rung(backend="torch", precision="bf16"))])
    assert set(engine.begun) == begun


def test_what_is_left_of_a_whole_engine_is_no_graphs(tmp_path: Path) -> None:
    engine = Engine()
    one = foresight(tmp_path, engine, both=True)
    assert one.engine_left(TORCH.rung, 80.0) is None
    one.prepare([INT8, TORCH])
    assert one.begun == {INT8.name, TORCH.name}
    assert one.engine_left(TORCH.rung, 80.0) == SLOWER * 80.0
    assert one.graph_left("torch", "fp16", 80.0) is None
    assert one.engine_left(INT8.rung, 60.0) is None
    assert one.made(()) == 0
    engine.begun["fp16"].running = False
    assert one.engine_left(TORCH.rung, 80.0) is None  # it failed
    engine.begun["fp16"].made = engine.begun["int8"].made = True
    assert one.engine_left(TORCH.rung, 80.0) == 0.0
    assert (one.made(()), one.made({TORCH.name})) == (1, 0)


def test_the_next_is_begun_as_soon_as_one_has_ended_and_none_after_the_last(tmp_path: Path) -> None:
    engine, now = Engine(), [0.0]
    one = foresight(tmp_path, engine, now=now, both=True)
    tuned = Plan(rung=Rung(backend="torch", precision="fp16", ranges=(BatchRange(low=1, best=1, high=1),)))
    assert one.able(TORCH.rung)
    assert not one.able(tuned.rung)
    one.prepare([TORCH, tuned])
    one.go_on()
    assert set(engine.begun) == {"fp16"}
    engine.begun["fp16"].running = False
    one.go_on()
    assert set(engine.begun) == {"fp16"}  # it has looked just now
    now[0] += LOOK_SECONDS
    one.go_on()
    assert set(engine.begun) == {"fp16", "fp16 @1"}
    one.cancel()
    now[0] += LOOK_SECONDS
    one.go_on()
    assert set(engine.begun) == {"fp16", "fp16 @1"}


def test_one_at_a_time_is_begun_and_what_cannot_be_is_passed_over(tmp_path: Path) -> None:
    engine = Engine()
    one = foresight(tmp_path, engine)
    one.prepare([TORCH, FP8, INT8])
    assert set(engine.begun) == {"int8"}
    bf16 = Plan(rung=Rung(backend="tensorrt", precision="bf16"))
    one.prepare([bf16])
    assert set(engine.begun) == {"int8"}
    engine.begun["int8"].running = False
    one.prepare([INT8, bf16])
    assert set(engine.begun) == {"int8", "bf16"}


def test_it_tells_for_how_long_an_unfinished_engine_was_made(tmp_path: Path) -> None:
    engine, now = Engine(), [5.0]
    one = foresight(tmp_path, engine, now=now, both=True)
    one.prepare([INT8, TORCH])
    now[0] += 96.0
    assert one.unfinished(TORCH.rung) == "not ready after 96 s beside the builds"
    assert one.unfinished(INT8.rung) == ""  # its graph is made, no engine
    assert one.unfinished(FP8.rung) == ""
    engine.begun["fp16"].running = False
    assert one.unfinished(TORCH.rung) == ""


def fail(told: list[str]) -> None:
    assert told == ["pause"]
    raise ZeroDivisionError


def test_it_stands_still_while_others_are_timed_also_where_that_fails(tmp_path: Path) -> None:
    engine = Engine()
    one = foresight(tmp_path, engine)
    one.prepare([INT8])
    with pytest.raises(ZeroDivisionError), one.still():
        fail(engine.begun["int8"].told)
    assert engine.begun["int8"].told == ["pause", "resume"]
    one.cancel()
    with one.still():
        pass
    assert engine.begun["int8"].told == ["pause", "resume"]


def test_what_is_left_of_it_shrinks_with_the_time(tmp_path: Path) -> None:
    engine, now = Engine(), [100.0]
    one = foresight(tmp_path, engine, now=now)
    assert one.graph_left("tensorrt", "int8", 60.0) is None
    one.prepare([INT8])
    assert one.graph_left("tensorrt", "int8", 60.0) == SLOWER * 60.0
    now[0] += 40.0
    assert one.graph_left("tensorrt", "int8", 60.0) == SLOWER * 60.0 - 40.0
    now[0] += 1000.0
    assert one.graph_left("tensorrt", "int8", 60.0) == LONGER * 1040.0
    engine.begun["int8"].running = False
    assert one.graph_left("tensorrt", "int8", 60.0) == 0.0
