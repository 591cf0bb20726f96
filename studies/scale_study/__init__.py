"""What many OptimisedModels cost the apiserver, etcd and the operator: see ``__main__``."""
