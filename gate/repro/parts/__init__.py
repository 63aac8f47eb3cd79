"""What reproduction scripts are made of: their source is pasted, so it is written to be read there.

A part knows torch, and of this package only what can be pasted too. What a script says of itself is in `slots`.
"""
