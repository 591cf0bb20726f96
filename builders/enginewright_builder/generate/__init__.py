"""Language models: their server, their clients, load in tokens, and the gate that holds a configuration against the
unquantised model (docs/adr/0039-language-models.md)."""
