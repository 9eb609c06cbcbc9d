package rpc

// Connections of clients whose last session, or one before it, has not ended.
func (s *Server) Unfinished() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.last)
}
