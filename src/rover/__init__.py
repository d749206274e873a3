"""ROVER: reward-free pretraining for reinforcement learning by occupancy coverage."""

__version__ = "0.1.0"
