"""Work that is cut over several devices of one machine, one thread for each."""
