"""Pretraining: raw text -> shards -> streams -> a trained biLM.

- `corpus`: raw text to a prepared corpus, `elmo prepare`.
- `settings`: the flags of `elmo train` and `elmo finetune`.
- `streams`: shards to batches without padding, prefetched in threads.
- `build`: settings and corpus to the model that is trained, and from there to a checkpoint.
- `language_model`: the training loss and the held-out loss.
- `characters`: characters to word vectors, with gradients.
- `recurrence`: a recurrent layer over streams, with gradients.
- `fused_lstm`: the same for an LSTM on a GPU.
- `gradients`: the gradients of a step.
- `graphed_step`: a step on a GPU as a CUDA graph.
- `optimizers`: optimizers, parameter groups, learning-rate schedule.
- `processes`: one process or several, as `torchrun` starts them.
- `snapshots`: what a run resumes from.
- `run_log`: metrics, progress bar, TensorBoard, loss curve.
- `trainer`: the training loop, `elmo train`.
- `heldout`: perplexity on the held-out split of a prepared corpus.
- `finetune`: continued training of a model on text of a domain, `elmo finetune`.
"""
