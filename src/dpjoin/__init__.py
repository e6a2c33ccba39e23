"""Differentially private synthetic data over joined tables."""
