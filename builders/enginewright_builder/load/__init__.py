"""Asynchronous load on a Triton server: closed loop (N in flight) and open loop (arrivals at a rate).

Light on purpose (NumPy and tritonclient only): it shares its cores with the server in the sweep, and runs in a small
pod in a cluster. ``python -m enginewright_builder.load --help`` is the same by hand.
"""

from enginewright_builder.load.channels import Channels
from enginewright_builder.load.loops import closed_loop, constant_arrivals, open_loop, poisson_arrivals
from enginewright_builder.load.requests import Request, encode
from enginewright_builder.load.result import Call, LoadResult, Progress, Recorder, joined
from enginewright_builder.load.runner import run_on_time

__all__ = ["Call", "Channels", "LoadResult", "Progress", "Recorder", "Request", "closed_loop", "constant_arrivals",
           "encode", "joined", "open_loop", "poisson_arrivals", "run_on_time"]
