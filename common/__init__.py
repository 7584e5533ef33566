"""What every room uses: errors, progress, and how sizes and times are written."""
