// Package slurm provides the buffers of Slurm's jobs. It reads the directives of job scripts, and
// carries out the requests of Slurm's hooks, as a client of the daemons. It must never depend on
// how daemons keep bytes or the namespace.
package slurm
