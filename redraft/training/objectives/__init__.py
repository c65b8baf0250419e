"""Objectives: how noise times are sampled, and which loss is minimized at them."""
