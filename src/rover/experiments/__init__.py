"""Experiments as data."""
