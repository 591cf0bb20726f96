"""On what a build runs: said at its start, and refused where it is not what was asked for."""

from __future__ import annotations

from collections.abc import Callable

from enginewright_builder.contract import ENERGY, DeviceRequest, ObjectiveRequest
from enginewright_builder.errors import UserError
from enginewright_builder.machine import Machine, look
from enginewright_builder.measure.energy import open_meter, require_energy
from enginewright_builder.pod import fits


def check(asked: DeviceRequest, note: Callable[[str], None], machine: Machine | None = None) -> None:
    """``note`` gets product, MIG profile, memory and driver. An engine that is built on another device would be
    recorded, priced and served as one of the device that was asked for. ``machine`` is what the container with the
    device sees; by default it is this process's.

    Raises :class:`UserError` ``DeviceMismatch`` or ``DriverTooOld``. What is unknown is no reason.
    """
    if asked.accelerator != "gpu":
        return
    there = machine or look()
    seen, driver = there.gpus, there.driver
    note(f"this build runs on {fits.here(seen, driver)}")
    wanted = {"device": asked.products[0] if asked.products else "", "profile": asked.mig_profile or fits.WHOLE}
    if why := fits.too_old(driver, there.runtimes):
        what, _, remedy = why.partition(": ")[2].partition("; ")
        raise UserError(fits.DRIVER, what, field="spec.placement", value=str(driver), remedy=remedy)
    if fits.misfit(wanted, (), seen):
        asked_for = " ".join(filter(None, (wanted["device"] or "any GPU", asked.mig_profile or "(whole)")))
        raise UserError(fits.DEVICE, f"the build was to run on {asked_for}, and its container has {seen[0]}",
                        field="spec.placement", value=seen[0].name,
                        remedy="name product and MIG profile as the node has them, or mend the node's labels and "
                               "how its GPUs are cut")


def check_meter(objective: ObjectiveRequest, device: DeviceRequest) -> None:
    """Before anything is built: where energy is to be least, it has to be measured. Raises :class:`UserError`
    ``EnergyNotMetered``."""
    if objective.minimise != ENERGY:
        return
    meter = open_meter(tuple(range(device.gpu_count)) if device.accelerator == "gpu" else ())
    try:
        require_energy(meter)
    finally:
        if meter is not None:
            meter.close()
