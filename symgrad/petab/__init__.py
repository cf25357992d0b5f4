"""Problems of parameter estimation in the PEtab format."""
