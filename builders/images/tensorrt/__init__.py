"""TensorRT's Python bindings under their usual name: their package is called ``tensorrt_bindings``."""

import sys

import tensorrt_bindings

sys.modules[__name__] = tensorrt_bindings
