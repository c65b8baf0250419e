"""Noise schedules: one decreasing function keep(t), the fraction of signal left at time t."""
