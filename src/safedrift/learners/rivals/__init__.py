"""Learners to compare with, one module each: `make(name, world, ...)` builds one.

The docstring of a module cites its paper and says what was changed; `build` makes the learner, and
its keyword arguments are the learner's options. What a learner is told beyond sizes and its own
trajectories is in `settings()["told"]`.
"""
