"""Speed and memory of embedding beside AllenNLP, and beside the peaks of the machine."""
