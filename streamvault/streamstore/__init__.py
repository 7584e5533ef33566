"""Streams: their data model, the stream store interface, and its implementations.

`streamstore.model` defines the values, `streamstore.store` the interface; `streamstore.local` is the embedded store,
`streamstore.pravega` the Pravega client, and `streamstore.uri` opens either from a URI.
"""
