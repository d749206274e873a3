"""Attempts to break ROVER, as a new user and as an attacker would make them.

Four kinds, one module each: killed processes, altered files, wrong command lines, and misuse of the
Python interface. ``python -m tests.campaign --seconds 600 --seed 0`` (``make campaign``)
makes as many attempts as fit into the time, prints how many of each, and fails on any finding. An
attempt follows from the seed, its kind and its number alone: every finding can be repeated.
"""
