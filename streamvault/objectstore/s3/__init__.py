"""S3: credentials, errors, multipart uploads, storage classes, object locks."""
