"""Solvers for Gaussian noise: ODE and SDE steps on a grid of noise levels."""
