"""Amazon's side: sessions and roles, one queue's calls, and our errors for its error codes."""
