"""The queue policy that a replica adds to a published ``config.pbtxt``, held against Triton's own schema."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2 as schema

from enginewright_builder.contract import (
    ContractError,
    Interface,
    QueueLevel,
    QueuePolicy,
    QueueRequest,
    ServingChoice,
    TensorSpec,
)
from enginewright_builder.queue_policy import UnreadableConfigError, with_queue
from enginewright_builder.triton.model_config import ServedModel, model_config, parse_text, to_text

ACTIONS = {"reject": schema.ModelQueuePolicy.REJECT, "continue": schema.ModelQueuePolicy.DELAY}
X = TensorSpec(name="dynamic_batching {", dtype="float32", shape=("batch", 4))


def published(largest: int) -> schema.ModelConfig:
    interface = Interface(inputs=(X,), outputs=(X,))
    if not largest:
        interface = Interface(inputs=(replace(X, shape=(2, 4)),), outputs=(replace(X, shape=(2, 4)),))
    serving = ServingChoice(max_batch_size=largest, preferred_batch_sizes=(largest,) if largest > 1 else (),
                            max_queue_delay_us=500 if largest > 1 else 0)
    return model_config(ServedModel(name="", triton_backend="python", interface=interface, serving=serving,
                                    parameters={"note": "\ndynamic_batching {\n}"} if largest > 1 else {}))


def _fill(message: schema.ModelQueuePolicy, policy: QueuePolicy) -> None:
    message.timeout_action = ACTIONS[policy.timeout_action]
    message.default_timeout_microseconds = policy.timeout_us
    message.allow_timeout_override = policy.allow_timeout_override
    message.max_queue_size = policy.max_queue_size


def expected(largest: int, queue: QueueRequest) -> schema.ModelConfig:
    """What protobuf itself makes of both."""
    config: schema.ModelConfig = published(largest)
    batching = config.dynamic_batching
    batching.priority_levels = queue.priority_levels
    batching.default_priority_level = queue.default_priority_level
    batching.default_queue_policy.SetInParent()
    _fill(batching.default_queue_policy, queue.policy)
    for one in queue.levels:
        _fill(batching.priority_queue_policy[one.level], one.policy)
    return config


_policies = st.builds(QueuePolicy, max_queue_size=st.integers(0, 2**32 - 1), timeout_us=st.integers(0, 2**63),
                      timeout_action=st.sampled_from(["reject", "continue"]), allow_timeout_override=st.booleans())
_queues = st.builds(QueueRequest, policy=_policies) | st.integers(2, 9).flatmap(lambda levels: st.builds(
    QueueRequest, policy=_policies, priority_levels=st.just(levels), default_priority_level=st.integers(1, levels),
    levels=st.lists(st.builds(QueueLevel, level=st.integers(1, levels), policy=_policies), max_size=3,
                    unique_by=lambda one: one.level).map(tuple)))


@given(queue=_queues, largest=st.sampled_from([0, 1, 2, 32]))
def test_the_text_says_what_the_schema_says(queue: QueueRequest, largest: int) -> None:
    text = to_text(published(largest))
    made = with_queue(text, QueueRequest.from_json(queue.to_json()))
    assert parse_text(made) == expected(largest, queue)
    assert not largest or parse_text(made).max_batch_size == largest


@pytest.mark.parametrize("text", [
    "dynamic_batching { max_queue_delay_microseconds: 5 }\n",
    "dynamic_batching {\n}\ndynamic_batching {\n}\n",
    "dynamic_batching {\n  default_queue_policy {\n  }\n}\n",
    "dynamic_batching: <>\n",
])
def test_a_file_that_the_builder_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(UnreadableConfigError, match="not as the builder writes it"):
        with_queue(text, QueueRequest())


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(ContractError, match="max_size"):
        QueueRequest.from_json('{"policy":{"max_size":4}}')
