"""Object stores that hold archives: S3, a folder, memory."""
