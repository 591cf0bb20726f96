"""A campaign against the operator on a real apiserver: random actions of users, nodes and strangers, faults
on the way to it, kill -9 at any moment. After each step oracles ask the world, not the operator."""
