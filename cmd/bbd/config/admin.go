package config

import "strings"

// AdminSocketOff is the value of listen.admin_socket for no socket.
const AdminSocketOff = "off"

// maxSocketPath is how many bytes the path of a unix socket may have (unix(7)).
const maxSocketPath = 107

// AdminSocketPath returns the socket at which the admin server serves the daemon's owner, "" for none: the
// operator's choice, else one beside the clients' socket, where that makes a path that a socket can have.
func (l *Listen) AdminSocketPath() string {
	switch {
	case l.AdminSocket == AdminSocketOff || l.AdminSocket == "" && l.Socket == "":
		return ""
	case l.AdminSocket != "":
		return l.AdminSocket
	}
	beside := strings.TrimSuffix(l.Socket, ".sock") + "-admin.sock"
	if len(beside) > maxSocketPath {
		return ""
	}
	return beside
}
