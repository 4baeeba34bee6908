"""The lemmas of the paper on a recorded run, compiled."""
