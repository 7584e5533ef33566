"""The object store in S3: credentials, conditional writes, archive classes, locks."""
