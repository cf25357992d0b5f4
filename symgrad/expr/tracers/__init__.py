"""What a traced function holds: expressions, arrays of them, integers, nests."""
