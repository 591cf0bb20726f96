"""Names, limits and exit codes that operator, builder and pods share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

# Kubernetes keeps at most 4096 bytes of a container's termination message.
TERMINATION_MESSAGE_BYTES = 4096

# Before the names of the variables that give a Job or replica the credentials of a store in a bucket.
STORE_VARIABLES = "ENGINEWRIGHT_STORE_"
# And of those that give a Job the credentials of a source.
SOURCE_VARIABLES = "ENGINEWRIGHT_SOURCE_"
# The way to other servers: none of these names a file that is run or loaded, or a device.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
CONNECTION_VARIABLES = (*_PROXIES, *(name.lower() for name in _PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR",
                        "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
# What clients of sources read: they know more variables of these clouds and registries than their documents.
CREDENTIAL_VARIABLES = ("HF_TOKEN", "HF_ENDPOINT", "AWS_*", "GOOGLE_*", "REGISTRY_*")
# The one entry of a Secret that image pulls use.
PULL_ENTRY = ".dockerconfigjson"
# Entries of a source's Secret that count.
SOURCE_ENTRIES = (*CONNECTION_VARIABLES, *CREDENTIAL_VARIABLES, PULL_ENTRY)

# The Secret that build Jobs sign engines with, and its entries: one that signs and verifies, one that verifies only.
SIGNING_SECRET = "enginewright-engine-signing"  # noqa: S105  (a name)
SIGNING_KEY, SIGNING_KEY_PREVIOUS = "key", "previous"
# The Secret that monitors sign captured requests with, with the same entries: no serving pod has a key of engines.
CAPTURE_SECRET = "enginewright-capture-signing"  # noqa: S105  (a name)
# In a store, beside the engines: captured requests, by namespace and model. And how data of a spec names the newest.
CAPTURES_FOLDER = "captures"
CAPTURED_SCHEME = "captured://"

MANIFEST_FILE = "manifest.json"
# No more of a manifest is read: one of a thousand files and twenty candidates has a few hundred KB.
MANIFEST_BYTES = 8 << 20
REPORT_FILE = "build-report.json"
REPORT_PAGE = "report.html"
# Of a language model: its files, and how its server is started.
LANGUAGE_MODEL_FOLDER, SERVING_FILE = "model", "serving.json"
# Of one that a draft model proposes tokens to: the draft's files, and what stands for their folder among the words of
# the server's command line, as each place has its own.
DRAFT_FOLDER, DRAFT_PLACE = "draft", "{draft}"
# Recorded inputs and the source model's answers, which replicas are tried with. Engines of older builders have none.
SMOKE_FILE = "smoke.json"
# The source model as FP32 ONNX, and how it is to be compared with: what the quality monitor holds live answers against.
# Only engines that were asked for with it have it.
REFERENCE_FOLDER = "reference"
# Traces of what an engine's layers take, one for each engine that serves. Only engines that were asked for with them
# have them.
PROFILE_FOLDER = "profile"
# How the termination message of a server begins that failed its smoke test. smoke.py imports nothing and repeats it.
SMOKE_TEST_FAILED = "smoke test failed: "
# How the termination message of a replica begins whose TensorRT or GPU is not what its engine was built with, or whose
# driver is too old for its image. fits.py imports nothing and repeats them.
MISFITS = ("TensorRTVersionMismatch", "DeviceMismatch", "DriverTooOld")
# The id of the operator's own requests to servers, by which the quality monitor knows them from live ones.
PROBE_REQUEST_ID = "enginewright-probe"
MODEL_REPOSITORY = "model_repository"
# The one model in it. Its config.pbtxt names none, so that the pod that mounts or links the folder chooses the name
# that it is served under: one engine serves for models of many names.
MODEL_FOLDER = "model"

# Libraries of an image that engines are built or run with, by the names that examine.py gives them.
LIB_TENSORRT, LIB_TENSORRT_PYTHON = "TensorRT", "TensorRT's Python bindings"
LIB_ONNXRUNTIME, LIB_TORCH = "ONNX Runtime", "PyTorch"
LIB_CUDA_PYTHON, LIB_NUMPY = "CUDA's Python bindings", "NumPy"
# Makes token ids of texts; the package tokenizers.
LIB_TOKENIZERS = "Tokenizers"
# Serves language models.
LIB_VLLM = "vLLM"
LIBRARIES = (LIB_TENSORRT, LIB_TENSORRT_PYTHON, LIB_ONNXRUNTIME, LIB_TORCH, LIB_CUDA_PYTHON, LIB_NUMPY,
             LIB_TOKENIZERS, LIB_VLLM)

# A replica with a response cache serves its engine, past the cache, as the model's name and this
# (docs/adr/0045-response-cache.md). No object has such a name.
COMPUTED = "_computed"

# A language model's metric, the share of next tokens that are the source's, and the format of its source.
AGREEMENT, CAUSAL_FORMAT = "agreement", "causal"

# Exit codes of the builder; the Job's podFailurePolicy reads them.
EXIT_OK = 0
EXIT_BUG = 1
EXIT_USER = 2
EXIT_TRANSIENT = 3
# Of the verify container: the engine is whole, and a cache could give wrong answers of it.
EXIT_UNCACHEABLE = 4

ErrorFamily = Literal["user", "transient", "bug"]
Verdict = Literal["Shipped", "Passed", "Slower", "AccuracyRefused", "Failed", "Skipped", "Offered", "Fallback"]
# Verdicts of candidates that serve, or would if they might.
CHOSEN: tuple[Verdict, ...] = ("Shipped", "Fallback", "Offered")
# What is served when no candidate may be: nothing new, or the source model itself.
Fallback = Literal["none", "source"]
# When candidates are tried no more: once the time budget is spent, or one that may be served meets the objective.
StopWhen = Literal["budgetSpent", "objectiveMet"]
OBJECTIVE_MET: StopWhen = "objectiveMet"
# Of an objective: what is to be least among configurations that meet it, by the most inferences a second or a joule.
COST, ENERGY = "cost", "energy"
# Seconds for building and measuring where the spec states none, by accelerator: what more would buy on a GPU is little
# (docs/adr/0031-order-of-trials.md), and a second of it is dear; on a CPU the gate alone may take minutes.
BUDGET_SECONDS: Mapping[str, int] = {"cpu": 1800, "gpu": 300}
# The same of a language model on any accelerator: each candidate is a start of vLLM, of a minute or more.
GENERATE_BUDGET_SECONDS = 1800
Bound = Literal["", "compute", "bandwidth", "overhead"]
