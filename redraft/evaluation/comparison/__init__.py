"""Comparison of several methods: trained under one budget and measured in the same way."""
