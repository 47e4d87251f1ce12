set(sources comm.c comm_alone.c comm_threads.c launch.c)
