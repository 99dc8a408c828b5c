"""Raw text to a prepared corpus: what `elmo prepare` does.

- `settings`: the flags of the command.
- `sources`: files, folders and globs to blocks of text.
- `workers`: worker processes.
- `part_files`: the first pass, a block to a file of word ids.
- `heldout_split`: which text is held out.
- `counting`: exact word counts of a corpus of any size.
- `shard_writer`: the last pass, part files to shards.
- `shards`: a prepared corpus on disk: vocabulary, memory-mapped shards, manifest.
- `folder`: whether the output may be written, and whether to resume.
- `report`: what the command reports.
- `prepare`: all passes.
"""
