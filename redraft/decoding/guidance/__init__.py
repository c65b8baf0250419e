"""Guidance wraps a denoiser to strengthen a condition, follow a classifier, filter logits, or project x̂.

The scale γ always means log p_γ = (1 − γ)·log p(x) + γ·log p(x | y) + const. γ = 0 ignores the condition, γ = 1 follows
it as trained, and larger values exaggerate it. Each guidance is a frozen dataclass: call it with a denoiser to get the
guided denoiser. Guidance can be nested. With self-conditioning, the next step sees the guided x̂. `GuidedSampler`
combines a sampler with guidance.
"""
