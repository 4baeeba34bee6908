def report(*a): pass
