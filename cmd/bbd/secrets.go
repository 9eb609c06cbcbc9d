package main

import (
	"forebay/cmd/bbd/config"
	"forebay/internal/clustercert"
	"forebay/internal/clusterkey"
	"forebay/internal/wire"
)

// secrets are what this daemon proves with who it is. They come from files alone, and
// go nowhere else: not into the configuration, its errors or the log.
type secrets struct {
	keys *wire.Keyring
	tls  *clustercert.Credentials // nil: none
}

func readSecrets(cfg config.Config) (*secrets, error) {
	s := &secrets{keys: wire.NewKeyring()}
	if cfg.KeyFile != "" {
		keys, err := clusterkey.Read(cfg.KeyFile)
		if err != nil {
			return nil, err
		}
		s.keys.Use(keys)
	}
	if cfg.TLS.CA != "" {
		var err error
		if s.tls, err = clustercert.Load(clustercert.Files{CA: cfg.TLS.CA, Cert: cfg.TLS.Cert, Key: cfg.TLS.Key}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// first returns the key that this daemon proves with; nil: none.
func (s *secrets) first() []byte {
	if keys := s.keys.Keys(); len(keys) > 0 {
		return keys[0]
	}
	return nil
}
