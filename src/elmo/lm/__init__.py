"""The biLM as a language model: output layers, losses, scores."""
