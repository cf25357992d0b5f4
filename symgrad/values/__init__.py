"""What a call takes and gives: numbers in arrays, named parameters, tables of rows, results."""
