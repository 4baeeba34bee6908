"""PROPD-PPO with counts (Algorithms 1 and 3), compiled."""
