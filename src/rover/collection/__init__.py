"""Collect: the replay buffer and the loop that steps an environment."""
