"""Intrinsic rewards: what the reward-free peers maximise; they know no learner."""
