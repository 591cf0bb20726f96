"""A device plugin of the kubelet's (v1beta1) with devices that are none: what the kubelet does with them is its own.

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FOLDER = Path("/var/lib/kubelet/device-plugins")
# A container finds in this variable which devices it was given.
GIVEN = "GIVEN_DEVICES"
_TEXT, _MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
# The fields that are used here: number, name, its message where it is one, and whether it repeats. A map is a repeated
# message on the wire.
_SCHEMA: dict[str, list[tuple[int, str, str, bool]]] = {
    "Empty": [],
    "RegisterRequest": [(1, "version", "", False), (2, "endpoint", "", False), (3, "resource_name", "", False)],
    "Device": [(1, "id", "", False), (2, "health", "", False)],
    "ListAndWatchResponse": [(1, "devices", "Device", True)],
    "ContainerAllocateRequest": [(1, "device_ids", "", True)],
    "AllocateRequest": [(1, "container_requests", "ContainerAllocateRequest", True)],
    "Env": [(1, "key", "", False), (2, "value", "", False)],
    "ContainerAllocateResponse": [(1, "envs", "Env", True)],
    "AllocateResponse": [(1, "container_responses", "ContainerAllocateResponse", True)],
}


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="device_plugin.proto", package="v1beta1", syntax="proto3")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, field, of, repeated in fields:
            added = message.field.add(name=field, number=number, type=_MESSAGE if of else _TEXT,
                                      label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED if repeated
                                      else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
            if of:
                added.type_name = f".v1beta1.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}")) for name in _SCHEMA}


MESSAGES = _messages()


class _Plugin:
    def __init__(self, devices: list[str]) -> None:
        self._devices, self.gone = devices, threading.Event()

    def options(self, request: Any, context: grpc.ServicerContext) -> Any:
        return MESSAGES["Empty"]()  # no option is on

    def watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(self.gone.set)
        yield MESSAGES["ListAndWatchResponse"](
            devices=[MESSAGES["Device"](id=one, health="Healthy") for one in self._devices])
        self.gone.wait()

    def allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        given = [MESSAGES["Env"](key=GIVEN, value=",".join(sorted(one.device_ids)))
                 for one in request.container_requests]
        return MESSAGES["AllocateResponse"](container_responses=[
            MESSAGES["ContainerAllocateResponse"](envs=[one]) for one in given])

    def handler(self) -> Any:
        def encoded(message: Any) -> bytes:
            return bytes(message.SerializeToString())

        def unary(behaviour: Any, request: str) -> Any:
            return grpc.unary_unary_rpc_method_handler(behaviour, MESSAGES[request].FromString, encoded)

        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", {
            "GetDevicePluginOptions": unary(self.options, "Empty"),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self.watch, MESSAGES["Empty"].FromString, encoded),
            "Allocate": unary(self.allocate, "AllocateRequest")})


@contextlib.contextmanager
def devices(resource: str, names: list[str]) -> Iterator[None]:
    """The kubelet of this machine has them meanwhile."""
    plugin, socket = _Plugin(names), FOLDER / f"{resource.replace('/', '-')}.sock"
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((plugin.handler(),))
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        with grpc.insecure_channel(f"unix://{FOLDER / 'kubelet.sock'}") as channel:
            register = channel.unary_unary("/v1beta1.Registration/Register",
                                           lambda message: bytes(message.SerializeToString()),
                                           MESSAGES["Empty"].FromString)
            register(MESSAGES["RegisterRequest"](version="v1beta1", endpoint=socket.name, resource_name=resource),
                     timeout=30)
        yield
    finally:
        plugin.gone.set()
        server.stop(grace=1).wait()
        socket.unlink(missing_ok=True)
