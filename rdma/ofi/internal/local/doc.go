// Package local has the memory that a fabric's operations use on this side, if the fabric requires
// registered memory. It is registered as long as its region lives, or while it is kept and used, or
// it is copied through stages. It must never depend on peers, nor on the purpose of an operation.
package local

// StageSize is the size of a stage in bytes.
const StageSize = 256 << 10
