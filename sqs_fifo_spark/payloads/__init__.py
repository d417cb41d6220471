"""Payloads on S3: bodies that are too large for SQS, in whose place a message carries a pointer."""
