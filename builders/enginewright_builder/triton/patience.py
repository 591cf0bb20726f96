"""How long a tritonserver is waited for."""

# Until it is ready, or until it has loaded a model. Only what hangs takes as long: a large engine on a slow volume, or
# several processes that import PyTorch on a busy machine, take minutes.
READY_SECONDS = 600.0
# Of a server of our own, which is started once more where it hangs.
OWN_READY_SECONDS = 240.0
