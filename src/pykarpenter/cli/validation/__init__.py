"""The checks of `pykarpenter validate`: schema, runtime rules, references and advice, all offline."""
