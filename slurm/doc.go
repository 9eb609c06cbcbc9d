// Package slurm gives Slurm's jobs their buffers: it reads the directives of job
// scripts, and does what Slurm's hooks ask for, as a client of the daemons. It must
// never know how daemons keep bytes or the namespace.
package slurm
