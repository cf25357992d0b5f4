"""Arguments and results of calls: numbers in arrays, named parameters, tables of rows."""
