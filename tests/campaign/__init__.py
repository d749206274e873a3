"""Attempts to break ROVER, as a new user and as an attacker would make them.

Killed processes, altered files, and misuse of the Python interface. An attempt follows from the
seed, its kind and its number alone: every finding can be repeated. Each kind makes a few in every
run of the tests; ``pytest tests/campaign --attempts 500 --seed 3`` makes more.
"""
