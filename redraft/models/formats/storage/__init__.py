"""Where foreign tensors lie: safetensors, pickles, GGUF files, the Hugging Face hub."""
