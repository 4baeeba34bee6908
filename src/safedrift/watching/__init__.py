"""A live page of running and finished runs and sweeps, on this machine only.

    folders     which run folders and sweeps there are; ids instead of paths
    runs        one run: its row in the list, its curves and events
    sweeps      one sweep: progress, rate, failures, scores so far
    figures     plots as plain data, thinned
    watcher     all of them, looked at again and again
    app         what is served; nothing but GET, no path of a request reaches the disk
    server      the port, on 127.0.0.1

Reading changes nothing on disk. Whatever a folder holds, the page shows text and numbers.
"""
