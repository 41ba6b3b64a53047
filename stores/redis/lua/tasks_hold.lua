-- Starts a lease.
extend(ARGV[1], ARGV[2])
return 1
