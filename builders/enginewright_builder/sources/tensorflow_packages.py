"""Where TensorFlow is, which one builder image alone has: in a folder of its own, for one process."""

from __future__ import annotations

import os
from pathlib import Path

from enginewright_builder.errors import UserError

PACKAGES_VARIABLE = "ENGINEWRIGHT_TENSORFLOW"
SAVED_MODEL, KERAS = "saved-model", "keras"
# Formats that are opened with it.
FORMATS = frozenset({SAVED_MODEL, KERAS})


def packages() -> Path:
    """Raises :class:`UserError` ``TensorflowMissing``."""
    folder = os.environ.get(PACKAGES_VARIABLE, "")
    if folder and (Path(folder) / "tensorflow").is_dir():
        return Path(folder)
    raise UserError("TensorflowMissing", "this builder image has no TensorFlow, which SavedModels and Keras models are "
                    "converted with", field="spec.source.format", value=folder,
                    remedy="let the platform use the image enginewright-builder-tensorflow (images.builder of the "
                           f"operator's chart; by hand, let {PACKAGES_VARIABLE} name a folder with the packages of "
                           "requirements/tensorflow.txt), or give ONNX")
