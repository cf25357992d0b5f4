"""Array programs: arrays as functions of their indices, whatever their sizes."""
