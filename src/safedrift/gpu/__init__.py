"""PROPD-PPO with counts on a GPU: many runs of one world at once."""

from safedrift.gpu.available import Device, devices

__all__ = ["Device", "devices"]
