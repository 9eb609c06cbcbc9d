// Package checksum computes and combines CRC-64/NVME checksums, the one
// checksum that Forebay carries from a writer's copy to the backing store. It
// must never depend on extents, files or stores.
//
// CRC-64/NVME is defined in the NVM Express NVM Command Set Specification
// (64b CRC): polynomial 0xAD93D23594C93659, reflected, initial value and final
// exclusive-or all ones. It is also the checksum S3 keeps for full objects.
package checksum

import (
	"math/bits"

	"github.com/minio/crc64nvme"
)

// reflected is the polynomial with the coefficient of x^0 in the highest bit.
const reflected = 0x9A6C9329AC4BC9B5

// copyBlock is small enough to be in the cache still when the copy reads the block that the
// checksum has just read, and large enough for the runtime to copy it past the caches. That was
// measured to be faster than smaller blocks into memory that is not read soon.
const copyBlock = 1 << 20

// Sum returns the checksum of p. The checksum of nothing is 0.
func Sum(p []byte) uint64 { return crc64nvme.Checksum(p) }

// Update returns the checksum of the bytes that crc covers followed by p.
func Update(crc uint64, p []byte) uint64 { return crc64nvme.Update(crc, p) }

// Copy copies src to dst, which must be at least as long, and returns Update(crc, src)
// in one pass through memory. src must not change meanwhile (see CopyOut).
func Copy(dst, src []byte, crc uint64) uint64 {
	for len(src) > copyBlock {
		crc = crc64nvme.Update(crc, src[:copyBlock])
		copy(dst, src[:copyBlock])
		src, dst = src[copyBlock:], dst[copyBlock:]
	}
	crc = crc64nvme.Update(crc, src)
	copy(dst, src)
	return crc
}

// copyOutBlock is a block that the runtime copies through the caches, in which the checksum
// then finds it.
const copyOutBlock = 256 << 10

// CopyOut copies src to dst, which must be at least as long, and returns the checksum that crc and
// the copy have. It is for memory that others may change, such as that of regions. The checksum is
// of the bytes that dst has, even if src changes meanwhile. Copy would accept bytes that came
// between its two reads of src.
func CopyOut(dst, src []byte, crc uint64) uint64 {
	for len(src) > 0 {
		n := copy(dst[:min(len(src), copyOutBlock)], src)
		crc = crc64nvme.Update(crc, dst[:n])
		src, dst = src[n:], dst[n:]
	}
	return crc
}

// Combine returns the checksum of A followed by B, from the checksum of each
// and the length of B in bytes. It takes time logarithmic in lenB.
//
// Appending lenB bytes to A multiplies its remainder by x^(8*lenB) modulo the polynomial. Initial value and final
// exclusive-or cancel out, as in zlib's crc32_combine.
func Combine(a, b uint64, lenB int64) uint64 {
	if lenB <= 0 {
		return a
	}
	return multiply(a, xPower8(uint64(lenB))) ^ b
}

// Zeros returns the checksum of n zero bytes, which a hole in a file reads as.
func Zeros(n int64) uint64 {
	if n <= 0 {
		return 0
	}
	// The register starts as all ones, is advanced over n zero bytes and inverted.
	return ^multiply(^uint64(0), xPower8(uint64(n)))
}

// xPower8 returns x^(8n) modulo the polynomial, reflected.
func xPower8(n uint64) uint64 {
	result := uint64(1) << 63 // x^0
	for n != 0 {
		k := bits.TrailingZeros64(n)
		result = multiply(result, powers[k])
		n &= n - 1
	}
	return result
}

// multiply multiplies two reflected polynomials modulo the CRC's polynomial.
func multiply(a, b uint64) uint64 {
	var product uint64
	for a != 0 {
		if a&(1<<63) != 0 {
			product ^= b
		}
		a <<= 1
		// b *= x is a shift towards higher powers, which in reflected order is to the right.
		carry := -(b & 1)
		b = b>>1 ^ carry&reflected
	}
	return product
}

// powers[k] is x^(8 * 2^k) modulo the polynomial.
var powers = makePowers()

func makePowers() (table [64]uint64) {
	table[0] = 1 << (63 - 8) // x^8
	for k := 1; k < len(table); k++ {
		table[k] = multiply(table[k-1], table[k-1])
	}
	return table
}
