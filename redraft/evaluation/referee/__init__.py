"""The referee: is this loss a bound, this sampler exact, this process consistent, this estimate of log p unbiased?"""
