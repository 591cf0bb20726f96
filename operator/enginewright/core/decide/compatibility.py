"""Is an engine built anew because what it runs on has changed? Then that is said, while the old engine serves.

An engine is bound to its class of device and to the runtime in the server's image; both are in its fingerprint, so that
a change of them asks for another engine without anybody having touched the model.
"""

from __future__ import annotations

from enginewright.core.conditions import Verdict
from enginewright.core.context import PassContext
from enginewright.core.reasons import Reason
from enginewright.core.status import TargetStatus
from enginewright.core.way_back import serves
from enginewright_builder.contract import BuildRequest

_WORDS = {"device": "device", "device_count": "devices of one replica", "server_image": "server image",
          "backends": "backends of the server image", "builder_image": "builder image"}


def target_of(request: BuildRequest) -> TargetStatus:
    device, runtime = request.device, request.runtime
    what = (device.products[0] if device.products else "any GPU") if device.accelerator == "gpu" else "cpu"
    return TargetStatus(
        device=" ".join(filter(None, (what, device.mig_profile, device.architecture))),
        device_count=max(1, device.gpu_count), server_image=runtime.server_image,
        backends=", ".join((*runtime.backends, *runtime.python_runtimes)), builder_image=request.builder_image)


def explain(ctx: PassContext, target: TargetStatus | None, verdict: Verdict) -> Verdict:
    """``verdict`` of a build, with what has changed since the revision that serves. The reason says so only while the
    build runs: why one waits, fails or is tried again goes before."""
    stable = serves(ctx.memory.revisions)
    changes = _changes(stable.target, target) if stable and stable.target and target else ""
    if verdict.ok or stable is None or not changes:
        return verdict
    reason = Reason.TARGET_CHANGED if verdict.reason == Reason.BUILDING else verdict.reason
    return Verdict(type=verdict.type, status=verdict.status, reason=reason,
                   message=f"Since revision {stable.revision}, which goes on serving, was built: {changes}. "
                           f"{verdict.message}")


def _changes(before: TargetStatus, now: TargetStatus) -> str:
    return "; ".join(f"{words} {getattr(before, name)} → {getattr(now, name)}" for name, words in _WORDS.items()
                     if getattr(before, name) != getattr(now, name))
