"""Serves archives to unchanged Pravega clients, as if they were the streams.

Modules: `blocks` (the only place where archived bytes come in, compared), `cache` (the budget of memory), `archived`
(an archive as a stream that is served), `groups` (the states of reader groups), `access` (login and tokens),
`controller` (its calls), `segments` and `connection` (the segment store), `server` (starts both), `serve` (the verb),
`figures` (its metrics), `embedded` (streams of the embedded store instead of archives, for tests of programs).
"""
