"""Runs that are killed at random moments.

An attempt follows from the seed and its number alone: every finding can be repeated. A few are made
in every run of the tests; ``pytest tests/campaign --attempts 500 --seed 3`` makes more.
"""
