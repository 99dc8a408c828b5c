"""Pretraining: raw text -> shards -> streams -> a trained biLM."""
