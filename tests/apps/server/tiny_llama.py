"""A random Llama with a byte-pair tokenizer and a chat template, as a folder in Hugging Face format."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers, trainers

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WIDTH, LAYERS, HEADS, HIDDEN, WORDS = 32, 2, 2, 64, 400


def write_tiny_llama(folder: Path, *, scale: float = 1.0, seed: int = 0) -> Path:
    """Writes the model; `scale` multiplies its output weights, so that it prefers some tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(
        [Path(__file__).read_text(), "the cat sat on the mat and the dog ran home " * 20], trainer
    )
    backend.save(str(folder / "tokenizer.json"))
    named = {"eos_token": SPECIALS[0], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    size = backend.get_vocab_size()
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": size,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "intermediate_size": HIDDEN,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int, std: float = 0.2) -> torch.Tensor:
        return torch.randn(*shape, generator=rng) * std

    weights = {
        "model.embed_tokens.weight": draw(size, WIDTH, std=1.0),
        "model.norm.weight": torch.ones(WIDTH),
        "lm_head.weight": draw(size, WIDTH, std=0.2 * scale),
    }
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        weights |= {f"{layer}self_attn.{name}_proj.weight": draw(WIDTH, WIDTH) for name in "qkvo"}
        weights |= {f"{layer}mlp.{name}_proj.weight": draw(HIDDEN, WIDTH) for name in ("gate", "up")}
        weights[f"{layer}mlp.down_proj.weight"] = draw(WIDTH, HIDDEN)
        weights |= {f"{layer}{name}_layernorm.weight": torch.ones(WIDTH) for name in ("input", "post_attention")}
    save_file(weights, str(folder / "model.safetensors"))
    return folder
