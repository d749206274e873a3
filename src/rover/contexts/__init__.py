"""Contextual environments: features of observations, exploration values, episodes, exploration."""
