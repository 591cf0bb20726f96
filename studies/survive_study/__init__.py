"""A campaign against the operator: random deeds of users, nodes and strangers on a real apiserver, faults on the way to
it, kill -9 at any moment. After each step oracles ask the world, not the operator."""
