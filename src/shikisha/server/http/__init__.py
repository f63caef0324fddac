"""What every route shares: authentication, limits, request parsing, errors, streams, and the shape of a run's result.

Change it to change the HTTP behavior of all APIs at once. Every other package of the server may import it; it imports
`keys` and `lifecycle` only where it needs their types.
"""
