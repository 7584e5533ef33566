"""Serves archives to unchanged Pravega clients, as if they were the streams.

Modules: `blocks` (the only place where archived bytes come in, compared), `cache` (the budget of memory), `served`
(what a server needs of a stream), `archived` (an archive as such a stream), `embedded` (a stream of the embedded store,
for tests of programs), `live` and `relay` (`--over`), `state` and `root` (reader groups, which servers share),
`access` (login and tokens), `controller` (its calls), `segments` and `connection` (the segment store), `server` (starts
both), `serve` (the verb), `figures` (its metrics).
"""
