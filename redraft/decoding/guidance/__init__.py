"""Guidance: denoisers made of denoisers, which sharpen a condition, follow a classifier, or keep to known vectors.

The scale γ means the same everywhere: log p_γ = (1 − γ)·log p(x) + γ·log p(x | y) + const. γ = 0 forgets the condition,
1 obeys it, more exaggerates it. Each guidance is a frozen dataclass that is called with a denoiser; they can be nested.
Samplers carry the guided x̂ to the next step as its hint (self-conditioning); `GuidedSampler` is a sampler with its guidance.
"""
