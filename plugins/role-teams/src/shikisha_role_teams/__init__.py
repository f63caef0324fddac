"""Teams of roles: the kind of conductor `team`, which plays tables [teams.NAME], and the kind of worker `tests`.

`team_settings` reads a table and builds the team, `role_team` conducts it, `tests_worker` runs one role's tests against
another's program. They come to Shikisha through the entry point groups `shikisha.conductors` and `shikisha.workers`.
"""
