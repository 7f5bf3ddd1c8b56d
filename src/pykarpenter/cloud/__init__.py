"""Provider contract, typed errors, catalogues and the memory of unavailable offerings."""
