"""PROPD-PPO with least squares (Algorithms 1 and 2), compiled."""
