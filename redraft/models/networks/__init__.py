"""Networks: one transformer whose settings cover GPT-2, Llama, Qwen and the DiT, with its caches and weight formats."""
