"""Bridges to other libraries, each an extra: see the module of its name."""
