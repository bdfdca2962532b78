"""The words every other package shares: identities, requests, events, errors, the Engine protocol."""
