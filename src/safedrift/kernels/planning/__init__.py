"""Constrained optima with several constraints: column generation and its master program."""
