"""Samplers: generators of canvases, from noise to text."""
