"""What `recipes/continuous.py` measures of a trained Diffusion-LM."""
