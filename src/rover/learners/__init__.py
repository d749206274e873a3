"""Learners: update a policy from transitions and rewards."""
