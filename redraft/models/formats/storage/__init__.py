"""Reads the files of other projects: safetensors, pickles, GGUF, and downloads from the Hugging Face hub."""
