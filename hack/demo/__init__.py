"""``make demo``: one OptimisedModel from a PyTorch model to scaled Triton replicas, on a real Kubernetes node."""
