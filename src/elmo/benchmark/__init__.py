"""What `elmo bench` measures: speed beside AllenNLP, scaling, and the errors of precisions."""
