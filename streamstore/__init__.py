"""What is archived: the values of a stream, the interface to a place that holds streams, and its implementations.

`streamstore.model` has the values, `streamstore.store` the interface; `streamstore.local` is the embedded store,
`streamstore.pravega` a Pravega cluster, and `streamstore.uri` opens either from a URI.
"""
