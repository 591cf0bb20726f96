"""Every name that Enginewright writes onto Kubernetes objects: labels, annotations, managers, containers, ports."""

from __future__ import annotations

from collections.abc import Mapping

GROUP = "enginewright.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "OptimisedModel"
PLURAL = "optimisedmodels"
SHORT_NAMES = ("om",)

# Field managers of server-side apply. The Deployment's replicas belong to the scaler alone.
FIELD_MANAGER = "enginewright"
FIELD_MANAGER_SCALER = "enginewright-scaler"
FIELD_MANAGER_STATUS = "enginewright-status"

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
RELEASE = "app.kubernetes.io/version"
MANAGED_BY = "app.kubernetes.io/managed-by"
PRODUCT = "enginewright"

MODEL = f"{GROUP}/model"
REVISION = f"{GROUP}/revision"
FINGERPRINT = f"{GROUP}/fingerprint"  # the first 32 of 64 digits: a label value holds at most 63 characters
ENGINE = f"{GROUP}/engine"  # "true" on engine records
CAPTURES = f"{GROUP}/captures"  # "true" on records of captures, and as an annotation on Deployments that capture
BUILDS = f"{GROUP}/builds"  # "true" on leases of builds
STEP = f"{GROUP}/step"  # "resolve", "ask", "build", "batch", "gc" or "captures" on Jobs and their pods
FLEET = f"{GROUP}/fleet"  # on objects of a fleet's classes and on their serving pods: the fleet's name
CLASS = f"{GROUP}/class"  # on objects of a fleet's classes
SERVER = f"{GROUP}/server"  # "vllm" on its pods, whose metrics are a page of the port for clients

# Annotations.
MANIFEST_HASH = f"{GROUP}/manifest-hash"  # of what was last applied, so that an unchanged child costs no write
FINGERPRINT_FULL = f"{GROUP}/fingerprint-full"
SOURCE_KEY = f"{GROUP}/source-key"  # on resolve Jobs: the key of what they resolve
STORE_URI = f"{GROUP}/store"
PROMOTE = f"{GROUP}/promote"  # set by the user to the revision to promote
ROLLBACK_TO = f"{GROUP}/rollback-to"  # set by the user to a kept revision, which is then served whatever the spec asks
RETRY = f"{GROUP}/retry"  # set by the user to any new value to try again what failed
REBUILD = f"{GROUP}/rebuild"  # set by the user to any new value to build an engine that is in the store once more
STORE_ACCESS = f"{GROUP}/store-access"  # on engine records: as whom the store in a bucket was used, JSON
UNREFERENCED = f"{GROUP}/unreferenced-since"  # on engine records: since when no model refers to the engine
ENGINES = f"{GROUP}/engines"  # on collector Jobs: the fingerprints that they remove
CAPTURES_OF = f"{GROUP}/captures-of"  # on records of captures, and Jobs that remove them: the model's name
CAPTURES_SWEPT = f"{GROUP}/captures-swept"  # on records of captures: when expired ones were removed last
CAPTURES_GO = f"{GROUP}/captures-go"  # "true" on Jobs that remove all captures of a model
MEMBER_KEY = f"{GROUP}/member-key"  # on objects of a fleet's classes: of the spec that they were given
LEAST_REPLICAS = f"{GROUP}/least-replicas"  # on objects of a fleet's classes, while a class that leaves is made up for
HELD_BACK = f"{GROUP}/held-back"  # on objects of a fleet's classes: the rollback-to that is the fleet's own wish
AFTER = f"{GROUP}/after"  # on objects of a fleet's classes that take turns: whose turn it is
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"

COMPONENT_RESOLVE = "resolve"
COMPONENT_ASK = "ask"
COMPONENT_BUILD = "build"
COMPONENT_SERVER = "server"
COMPONENT_BATCH = "batch"
COMPONENT_ACTIVATOR = "activator"
COMPONENT_ENGINE = "engine"
COMPONENT_REVISION = "revision"
COMPONENT_GC = "gc"
COMPONENT_CAPTURES = "captures"
COMPONENT_CLASS = "class"
COMPONENT_SIGNING = "signing"

CONTAINER_RESOLVE = "resolve"
CONTAINER_BUILD = "build"
CONTAINER_PROVE = "prove"
CONTAINER_BATCH = "batch"
CONTAINER_LEAVE, CONTAINER_EXAMINE, CONTAINER_ASK = "leave", "server-image", "ask"
# Whose words count as a Job's outcome: of images of the builder alone.
REPORTING = (CONTAINER_RESOLVE, CONTAINER_ASK, CONTAINER_BUILD, CONTAINER_PROVE, CONTAINER_BATCH)
CONTAINER_SERVER = "server"
CONTAINER_STEPS = "python-steps"
CONTAINER_VERIFY = "verify"
VERIFY_FROM = "--from"  # before the bucket, or the folder on a volume, that it copies the engine from
CONTAINER_FITS = "fits"
CONTAINER_ACTIVATOR = "activator"
CONTAINER_QUALITY = "quality"

PORT_HTTP, PORT_GRPC, PORT_METRICS = "http", "grpc", "metrics"
HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
PORT_QUALITY, QUALITY_PORT = "quality", 8003
# Where a server's traces lie for the quality monitor beside it.
VOLUME_TRACES, TRACES_PATH = "traces", "/traces"
# Where it captures requests to, and the key that it signs captures with.
CAPTURES_PATH, VOLUME_CAPTURE_KEYS, CAPTURE_KEYS_PATH = "/captures", "capture-keys", "/capture-keys"
# Claims that hold a model, its data and what is listed beside it, numbered from 0 on: a regular expression.
SOURCE_VOLUMES = "source-[0-9]+"
# Certificates that the installation names.
VOLUME_TRUSTED, TRUSTED_PATH = "trusted-ca", "/trusted-ca"
# Where the key of the model control of a server that proves an engine lies, and the header (metadata, with gRPC) that
# carries it.
VOLUME_KEY, KEY_PATH, KEY_FILE = "model-control", "/model-control", "/model-control/key"
KEY_HEADER = "enginewright-model-control"
# The socket that leads to the container that runs functions of a source's folder, and that one's scratch.
VOLUME_STEPS, STEPS_PATH, STEPS_SOCKET = "python-steps", "/python-steps", "/python-steps/socket"
VOLUME_STEPS_TMP = "python-steps-tmp"
# Scratch of containers of ours beside a server, which may be of an image that the user chose: the server writes none of
# it.
VOLUME_VERIFY_TMP, VOLUME_QUALITY_TMP, VOLUME_BATCH_TMP = "verify-tmp", "quality-tmp", "batch-tmp"

FINGERPRINT_LABEL_LENGTH = 32


def source_volume(index: int) -> str:
    """The name of the volume of the ``index``-th claim, from 0 on; matches ``SOURCE_VOLUMES``."""
    return f"source-{index}"


def fingerprint_label(fingerprint: str) -> str:
    return fingerprint[:FINGERPRINT_LABEL_LENGTH]


def common(name: str, component: str) -> dict[str, str]:
    """Labels that every child of the object ``name`` carries."""
    return {NAME: PRODUCT, INSTANCE: name, COMPONENT: component, PART_OF: PRODUCT, MANAGED_BY: PRODUCT, MODEL: name}


def model_selector(name: str) -> dict[str, str]:
    """Labels that select the serving pods of all revisions."""
    return {MODEL: name, COMPONENT: COMPONENT_SERVER}


def activator_selector(name: str) -> dict[str, str]:
    """Labels that select the pods that hold requests."""
    return {MODEL: name, COMPONENT: COMPONENT_ACTIVATOR}


def fleet_selector(name: str) -> dict[str, str]:
    """Labels that select the serving pods of all classes of a fleet."""
    return {FLEET: name, COMPONENT: COMPONENT_SERVER}


def revision_selector(name: str, revision: str) -> dict[str, str]:
    """Labels that select the serving pods of one revision."""
    return {**model_selector(name), REVISION: revision}


def as_selector(labels: Mapping[str, str]) -> str:
    """The text form that list and watch calls take."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
