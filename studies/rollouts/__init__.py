"""``make e2e-rollout``: rollouts, rollbacks, kills and drains under load on a real node, and what was lost by them."""
