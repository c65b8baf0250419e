"""Running lm-eval tasks on Redraft models; log-likelihoods are exact or bounds with their standard error."""
