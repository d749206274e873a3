"""Worlds that hide the position: laws of actions, the map they draw, and where the agent is."""
