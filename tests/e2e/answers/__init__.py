"""The same requests to the real API server and to the embedded one: what they answer must be the same."""
