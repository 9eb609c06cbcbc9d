package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"io"

	"forebay/internal/bb"
)

// Streams of the one-sided fabric prove that they belong to a session with the ticket that Welcome
// contains. Both sides prove possession of it. It never crosses the stream itself:
//
//	dialer   → listener   session (8, little endian) ‖ dialer's nonce (32)
//	listener → dialer     listener's nonce (32) ‖ HMAC-SHA-256(ticket, "listener" ‖ both nonces ‖ session)
//	dialer   → listener   HMAC-SHA-256(ticket, "dialer" ‖ both nonces ‖ session)

// TicketSize is the length of a session's ticket, in bytes.
const TicketSize = 32

// NewTicket returns a random ticket that cannot be guessed.
func NewTicket() []byte { return newNonce() }

// ShowTicket is the dialer's side. The stream's deadline is the caller's to set. An error of kind
// permission means that the listener does not have the ticket. A listener without the session just
// ends the stream.
func ShowTicket(stream io.ReadWriter, session uint64, ticket []byte) error {
	var first [8 + NonceSize]byte
	binary.LittleEndian.PutUint64(first[:], session)
	copy(first[8:], newNonce())
	if _, err := stream.Write(first[:]); err != nil {
		return err
	}
	var answer [NonceSize + sha256.Size]byte
	if _, err := io.ReadFull(stream, answer[:]); err != nil {
		return err
	}
	nonce, theirs := answer[:NonceSize], answer[NonceSize:]
	if len(ticket) != TicketSize || !hmac.Equal(theirs, proof(ticket, "listener", first[8:], nonce, first[:8])) {
		return bb.E(bb.Permission, "dial", "", "the listener for one-sided transfers does not have this session's ticket")
	}
	_, err := stream.Write(proof(ticket, "dialer", first[8:], nonce, first[:8]))
	return err
}

// CheckTicket is the listener's side. It returns the session that the stream belongs
// to. TicketOf returns a live session's ticket, or nil. The stream's deadline is the
// caller's to set. An error of kind permission means that the dialer has no ticket.
func CheckTicket(stream io.ReadWriter, ticketOf func(session uint64) []byte) (session uint64, err error) {
	var first [8 + NonceSize]byte
	if _, err := io.ReadFull(stream, first[:]); err != nil {
		return 0, err
	}
	session = binary.LittleEndian.Uint64(first[:])
	ticket := ticketOf(session)
	if len(ticket) != TicketSize {
		return 0, bb.E(bb.Permission, "accept", "", "a stream of no live session")
	}
	nonce := newNonce()
	answer := append(nonce[:NonceSize:NonceSize], proof(ticket, "listener", first[8:], nonce, first[:8])...)
	if _, err := stream.Write(answer); err != nil {
		return 0, err
	}
	var theirs [sha256.Size]byte
	if _, err := io.ReadFull(stream, theirs[:]); err != nil {
		return 0, err
	}
	if !hmac.Equal(theirs[:], proof(ticket, "dialer", first[8:], nonce, first[:8])) {
		return 0, bb.E(bb.Permission, "accept", "", "a stream without its session's ticket")
	}
	return session, nil
}

// proof is HMAC-SHA-256 (RFC 2104) over fields of fixed length. role keeps one side's proof from
// being sent back to it.
func proof(key []byte, role string, fields ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(role))
	for _, f := range fields {
		mac.Write(f)
	}
	return mac.Sum(nil)
}
