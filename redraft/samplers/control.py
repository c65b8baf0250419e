"""Gradient control: samples are pushed down an energy between the steps of a solver."""
