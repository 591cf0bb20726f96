"""The key of the model control of a server that proves an engine."""

from __future__ import annotations

from pathlib import Path

from enginewright_builder.triton.key import KEY_BYTES, leave_key


def test_a_key_is_new_each_time_and_its_owners_alone(tmp_path: Path) -> None:
    """A pod whose sandbox is made again runs its first container once more, over the key of before."""
    key, keys = tmp_path / "key", set()
    for _ in range(2):
        leave_key(key)
        assert key.stat().st_mode & 0o777 == 0o400
        keys.add(key.read_text())
    assert len(keys) == 2
    assert all(len(bytes.fromhex(one)) == KEY_BYTES and one.endswith("\n") for one in keys)
