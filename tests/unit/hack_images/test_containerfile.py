"""Reading a Containerfile, and what ours must hold."""

from __future__ import annotations

import pytest

from images import containerfile
from images.containerfile import ContainerfileError, Stage
from images.recipe import ACCELERATORS, CONTAINERFILE, NAMES

REAL = CONTAINERFILE.read_text()
STAGES = {kind: containerfile.parse(REAL, {"ACCELERATOR": kind}) for kind in ACCELERATORS}
IMAGES = [(kind, name) for kind in ACCELERATORS for name in NAMES]
# Images of this project and of those who run it: nothing else may change without one of these.
RUNTIME_USER = "65532:65532"


def parse(text: str, **arguments: str) -> dict[str, Stage]:
    return containerfile.parse(text, arguments)


def test_a_stage_has_its_parent_inputs_mounted_stages_and_arguments() -> None:
    stages = parse(
        """
        ARG BASE=debian
        FROM ${BASE} AS tools
        FROM tools AS made
        ARG KIND
        # a comment, and a line that goes on
        COPY --chmod=0755 a/one a/two /opt/
        COPY --from=tools /x /y
        RUN --mount=type=bind,from=tools,target=/mnt \\
            --mount=type=cache,target=/c \\
            # said in between
            make it
        """
    )
    assert stages["tools"].parent == "debian"
    made = stages["made"]
    assert made.parent == "tools"
    assert made.inputs == ("a/one", "a/two")
    assert made.stages == ("tools", "tools")
    assert made.arguments == ("KIND",)
    assert made.instructions[-1].endswith("--mount=type=cache,target=/c make it")


def test_an_argument_overrides_the_default_of_a_parent() -> None:
    assert parse("ARG BASE=debian\nFROM $BASE AS a", BASE="other")["a"].parent == "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM debian", "name the stage"),
        ("FROM ${BASE} AS a", "declare BASE"),
        ("RUN true\nFROM x AS a", "only ARG"),
        ("FROM x AS a\nRUN --mount=type=bind,source=src,target=/src true", "do not mount it"),
    ],
)
def test_what_it_does_not_follow_is_refused(text: str, message: str) -> None:
    with pytest.raises(ContainerfileError, match=message):
        parse(text)


def test_a_target_gets_the_stages_that_it_needs_alone() -> None:
    text = """# what it is
ARG KIND=a
FROM debian AS base
RUN one
FROM base AS tools
FROM base AS made-a
RUN --mount=type=bind,from=tools,target=/mnt \\
    two
FROM base AS made-b
COPY --from=made-a /x /y
FROM made-${KIND} AS target
"""
    made_b = "FROM base AS made-b\nCOPY --from=made-a /x /y\n"
    assert containerfile.only(text, {"KIND": "a"}, "target") == text.replace(made_b, "")
    assert containerfile.only(text, {"KIND": "b"}, "target") == text
    assert containerfile.only(text, {"KIND": "a"}, "base") == text[: text.index("FROM base AS tools")]


def test_no_cpu_image_is_made_of_what_is_for_gpus() -> None:
    """buildah before 1.31 runs every stage above the target: gigabytes."""
    for name in NAMES:
        stages = containerfile.parse(containerfile.only(REAL, {"ACCELERATOR": "cpu"}, name), {"ACCELERATOR": "cpu"})
        assert not [stage for stage in stages if stage == "tensorrt" or "cuda" in stage or "gpu" in stage]


@pytest.mark.parametrize(("kind", "name"), IMAGES)
def test_each_image_runs_as_a_user_without_rights(kind: str, name: str) -> None:
    users = [line.partition(" ")[2] for line in STAGES[kind][name].instructions if line.startswith("USER ")]
    assert users[-1:] == [RUNTIME_USER]


@pytest.mark.parametrize(("kind", "name"), IMAGES)
def test_own_source_comes_after_the_dependencies(kind: str, name: str) -> None:
    """A change of source must not install anything again."""
    stages = STAGES[kind]
    below = stages[stages[name].parent]
    assert not [path for path in below.inputs if not path.startswith("requirements/")]
    assert not [line for line in stages[name].instructions if "install-locked" in line]


@pytest.mark.parametrize("stage", [stage for stage in STAGES["cuda"].values() if stage.stages],
                         ids=lambda stage: stage.name)
def test_a_stage_that_mounts_another_is_stale_when_that_one_changes(stage: Stage) -> None:
    assert {other.upper().replace("-", "_") for other in stage.stages} <= set(stage.arguments)


def test_no_image_needs_a_stage_that_stands_below_it() -> None:
    """Older builders run the stages from the top down to the target."""
    order = list(STAGES["cuda"])
    for name, stage in STAGES["cuda"].items():
        above = order[: order.index(name)]
        assert not [other for other in (stage.parent, *stage.stages) if other in order and other not in above]
