"""Contextual environments: memory of an episode, exploration values from all episodes."""
