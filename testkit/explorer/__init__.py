"""Every schedule of a few commands on one archive, instead of kills at random moments.

Commands run as greenlets over stores in memory and stop before any store call that a schedule names. While one is
stopped others run to their ends; then it goes on, is killed, or is told an error. One judge looks at what is left. See
`schedule` for how a schedule is written, and `bin/prove --replay` for running one.
"""
