"""Amazon's side: sessions and roles, one queue's calls, and what its error codes mean here."""
