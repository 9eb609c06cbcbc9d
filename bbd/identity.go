package bbd

import (
	"crypto/hmac"
	"crypto/rand"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// identify finds out who the client is: on a unix socket from the kernel
// (SO_PEERCRED, unix(7)), over TCP from its own word after it has proven that it
// knows the shared key.
func (s *session) identify(in *wire.Reader, r *request, hello *wire.Hello) error {
	if conn, ok := s.conn.(*net.UnixConn); ok {
		ucred, err := peerCred(conn)
		if err != nil {
			return bb.Wrap("handshake", hello.Client, err)
		}
		s.local, s.mapped, s.pid = true, true, ucred.Pid
		s.cred = credOf(ucred.Uid, ucred.Gid)
		return nil
	}
	if len(s.d.cfg.Key) > 0 {
		if err := s.challenge(in, r, hello); err != nil {
			return err
		}
	}
	s.cred = credOf(hello.Uid, hello.Gid)
	// Another machine's root, or a namesake of the daemon's user, is nobody special here,
	// unless another daemon says so.
	s.peer = bb.NodeID(hello.Node)
	s.cred.relayed = s.peer != ""
	s.cred.system = s.cred.relayed && hello.System
	return nil
}

// challenge makes the client prove that it knows the shared key, and proves the same to it.
func (s *session) challenge(in *wire.Reader, r *request, hello *wire.Hello) error {
	if len(hello.Nonce) != wire.NonceSize {
		return bb.E(bb.Permission, "handshake", hello.Client, "the client sent no nonce, and this daemon asks for a proof of the shared key").
			WithRemedy("give the client the daemon's key file")
	}
	nonce := make([]byte, wire.NonceSize)
	rand.Read(nonce) // never fails (crypto/rand)
	err := r.more(&wire.Challenge{Nonce: nonce, Proof: wire.DaemonProof(s.d.cfg.Key, hello.Nonce, nonce)}, nil)
	if err != nil {
		return err
	}
	head, message, err := in.Next()
	if err != nil {
		return err
	}
	var prove wire.Prove
	r.head = head
	if head.Type != wire.Type_TYPE_PROVE || head.DataLength != 0 || proto.Unmarshal(message, &prove) != nil ||
		!hmac.Equal(prove.Proof, wire.ClientProof(s.d.cfg.Key, hello.Nonce, nonce, hello.Uid, hello.Gid)) {
		return bb.E(bb.Permission, "handshake", hello.Client, "the client does not know the shared key").
			WithRemedy("give the client the daemon's key file")
	}
	return nil
}

func peerCred(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var (
		ucred  *unix.Ucred
		failed error
	)
	err = raw.Control(func(fd uintptr) {
		ucred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return nil, err
	}
	return ucred, failed
}

// credOf looks up the groups of a user. One whom the system does not know has the
// group it came with.
func credOf(uid, gid uint32) cred {
	c := cred{uid: uid, gids: []uint32{gid}, system: uid == 0 || uid == uint32(os.Geteuid())}
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return c
	}
	ids, err := u.GroupIds()
	if err != nil {
		return c
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil && uint32(n) != gid {
			c.gids = append(c.gids, uint32(n))
		}
	}
	return c
}

// mayWriteDir reports whether a user may create files in a directory, which the
// daemon, running as root, could in any case.
func mayWriteDir(c cred, path string) error {
	if err := mayReach(c, path); err != nil {
		return bb.Wrap("backing", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return bb.Wrap("backing", path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() || !ok:
		return bb.E(bb.NotDirectory, "backing", path, "it is not a directory")
	case !c.permits(stat.Uid, stat.Gid, info.Mode(), wantWrite|wantExecute):
		return denied("backing", path, "write this directory")
	}
	return nil
}
