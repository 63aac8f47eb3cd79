"""Ranks: processes of one process group, which run plans that are sent to them and answer with data.

| module | holds |
|---|---|
| `pool.py` | the processes, as whoever sends to them has them |
| `member.py` | what each of them does: `python -m bucketproof.properties.ranks.member` |
| `pools.py` | the pools there are |
| `meeting.py` | the collective over each bucket |
| `shipping.py` | the consumer in another process, to which buckets are sent |
| `trying.py` | what is sent: a plan is run on a target there, and judged |
| `judging.py` | the verdict on a cell whose plans are run on ranks |
"""
