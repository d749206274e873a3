"""Represent."""
