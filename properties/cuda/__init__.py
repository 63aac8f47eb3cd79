"""What is judged on a CUDA device alone: experiments with streams, with the allocator, and with another process.

| module | holds |
|---|---|
| `driving.py` | a sync, driven by a consumer that looks at nothing |
| `unwaited.py` | a producer that the device is behind, and a consumer that does not wait for it either |
| `sanitized.py` | the same, watched by torch's sanitizer |
| `metering.py` | what the allocator has given while the bucketer was at work |
| `lender.py` | another process, which lends its memory by handles |
"""
