"""The tasks of the paper, and classification: small models that read ELMo."""
