from __future__ import annotations

from support.node import furnished, images, janitor, kube, model_files, stock, stocked_bench

__all__ = ["furnished", "images", "janitor", "kube", "model_files", "stock", "stocked_bench"]
