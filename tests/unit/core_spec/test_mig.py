from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core import mig

PRODUCTS = {
    "NVIDIA-A100-SXM4-40GB": "A100-40GB", "NVIDIA-A100-PCIE-40GB": "A100-40GB", "A100-SXM4-40GB": "A100-40GB",
    "NVIDIA-A100-SXM4-80GB": "A100-80GB", "NVIDIA-A100-80GB-PCIe": "A100-80GB", "NVIDIA-A30": "A30",
    "NVIDIA-H100-80GB-HBM3": "H100-80GB", "NVIDIA-H100-PCIe": "H100-80GB", "NVIDIA-H100-NVL": "H100-94GB",
    "NVIDIA-H100-96GB-HBM3": "H100-96GB", "NVIDIA-GH200-480GB": "GH200-96GB", "NVIDIA-H200": "H200",
    "NVIDIA-H200-NVL": "H200", "NVIDIA-B200": "B200", "NVIDIA-GB200": "GB200",
}


@pytest.mark.parametrize(("product", "board"), PRODUCTS.items())
def test_product_names_of_node_labels(product: str, board: str) -> None:
    for label in (product, f"{product}-MIG-1g.10gb", f"{product}-SHARED", f"{product}-MIG-INVALID"):
        found = mig.board(label)
        assert found is not None
        assert found.name == board


@pytest.mark.parametrize("product", [
    "", "Tesla-T4", "NVIDIA-A10", "NVIDIA-A300", "NVIDIA-L40S", "NVIDIA-H100", "NVIDIA-A100",
])
def test_gpus_without_known_profiles(product: str) -> None:
    assert mig.board(product) is None
    assert mig.profiles(product) == ()
    assert "not a GPU whose MIG profiles are known" in str(mig.smallest_profile(product, 1))


def test_every_board_is_consistent() -> None:
    for board in mig.BOARDS:
        slices = board.profiles[-1].memory
        for profile in board.profiles:
            shape, size = profile.name.split(".")
            assert shape == f"{profile.compute}g"
            assert profile.gib <= float(size.removesuffix("gb")), f"{board.name} {profile.name}: more than its name"
            assert profile.count * profile.memory <= slices
            assert profile.count * profile.compute <= board.profiles[-1].compute
        memory = [profile.bytes for profile in board.profiles]
        assert memory == sorted(memory), f"{board.name}: profiles from small to large"
        assert len({profile.name for profile in board.profiles}) == len(board.profiles)


@pytest.mark.parametrize(("product", "gib", "name"), [
    ("NVIDIA-H100-80GB-HBM3", 0.1, "1g.10gb"), ("NVIDIA-H100-80GB-HBM3", 9.75, "1g.10gb"),
    ("NVIDIA-H100-80GB-HBM3", 9.76, "1g.20gb"), ("NVIDIA-H100-80GB-HBM3", 20, "3g.40gb"),
    ("NVIDIA-H100-80GB-HBM3", 79, "7g.80gb"), ("NVIDIA-A100-SXM4-40GB", 5, "1g.10gb"), ("NVIDIA-A30", 6, "2g.12gb"),
    ("NVIDIA-H200", 17, "1g.35gb"), ("NVIDIA-B200", 21, "1g.45gb"),
])
def test_the_smallest_profile_that_holds(product: str, gib: float, name: str) -> None:
    found = mig.smallest_profile(product, int(gib * mig.GIB))
    assert isinstance(found, mig.Profile)
    assert found.name == name


def test_what_fits_nowhere_is_said_with_figures() -> None:
    reason = mig.smallest_profile("NVIDIA-A30", 30 * mig.GIB)
    assert isinstance(reason, str)
    assert "30.0 GiB are needed" in reason
    assert "4g.24gb, has 22.8 GiB" in reason


@given(st.sampled_from(sorted(PRODUCTS)), st.integers(0, 200 * mig.GIB))
def test_no_smaller_profile_would_do(product: str, need: int) -> None:
    chosen = mig.smallest_profile(product, need)
    fitting = [profile for profile in mig.profiles(product) if profile.bytes >= need]
    if isinstance(chosen, str):
        assert fitting == []
    else:
        assert chosen in fitting
        assert all((chosen.compute, chosen.gib) <= (other.compute, other.gib) for other in fitting)


def test_media_engines_change_neither_memory_nor_sms() -> None:
    assert mig.profile("NVIDIA-H100-80GB-HBM3", "1g.10gb+me") == mig.profile("NVIDIA-H100-80GB-HBM3", "1g.10gb")
    assert mig.profile("NVIDIA-H100-80GB-HBM3", "1g.11gb") is None


@given(st.integers(0, 10**11), st.sampled_from(sorted(mig.LADDER_FACTOR)), st.integers(1, 4096))
def test_the_estimate_grows_with_what_it_depends_on(size: int, precision: str, batch: int) -> None:
    need = mig.estimate_need(size, precision, batch)
    assert need > size * 2 + mig.WORKSPACE_BYTES
    assert need <= mig.estimate_need(size + 1, precision, batch)
    assert need <= mig.estimate_need(size, precision, batch + 1)
    assert need <= mig.estimate_need(size, "auto", batch)


def test_a_small_model_gets_the_smallest_slice() -> None:
    found = mig.smallest_profile("NVIDIA-A100-SXM4-40GB", mig.estimate_need(90 << 20, "auto", 32))
    assert isinstance(found, mig.Profile)
    assert found.name == "1g.5gb"
