"""A local Kubernetes on one machine, without a container engine of its own: see docs/adr/0003-local-cluster.md."""
