"""Words to the features of a head: static vectors and ELMo."""
