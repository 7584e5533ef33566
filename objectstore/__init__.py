"""Where archives go: keys, the object store (S3, a folder, memory), and layouts."""
