"""What stands on the inner side of a jail's wall: the launcher, the confinement, and what runs one program.

Invariant: this package needs nothing but the standard library and itself, so that it can be started alone (under the
name `cell`, without its parents) by an interpreter that sees nothing else of ours, and be sent into a container as
text; that is why its imports are relative. Deliberately absent: anything that decides what code may use (that comes
with each run from outside) and anything that would be secret.
"""
