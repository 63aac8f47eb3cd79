"""What is checked in the script of a property: a module for each way to show that it is broken.

Each has a function `check(bucketer)`, which raises `Broken` with one line that says what has happened, and `note`,
which is called for each weight before it is yielded. They are pasted into scripts, as `bucketproof.repro.parts` are.
"""
