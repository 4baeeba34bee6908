"""Gymnasium, both ways: worlds as environments, and environments as worlds."""
