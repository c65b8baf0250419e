"""Solvers for Gaussian noise: grids of times, steps, corrections, control, and likelihood along the flow."""
