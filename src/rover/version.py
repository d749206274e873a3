"""The version, in a module of its own so that the lowest floor may read it."""

__version__ = "0.3.0"
"""The version of this package."""
