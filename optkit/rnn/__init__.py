"""Recurrent networks: cells, and what runs them over sequences."""
