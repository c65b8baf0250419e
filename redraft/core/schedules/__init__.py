"""Noise schedules: one decreasing function keep(t), the share of signal left at time t."""
