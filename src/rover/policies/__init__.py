"""Policies: what an agent hands over."""
