set(sources arena.c disk.c dtype.c err.c fault.c file.c json.c log.c mem.c nearest.c numa.c outfile.c pool.c rng.c split.c spread.c str.c units.c utf8.c value.c value_json.c watch.c yaml.c)
