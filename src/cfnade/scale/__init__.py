"""Beyond one machine: the same job on Spark and torch.distributed; nothing of the core imports it.

- `prepare`: an event log or counts in any Spark source become a folder of Parquet shards;
- `train`: several processes train one network on these shards;
- `score`: recommendations for every history, on Spark;
- `als`: Spark's own IMF as a baseline.
"""
