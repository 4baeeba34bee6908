"""Gymnasium: worlds as environments, and environments as worlds."""
