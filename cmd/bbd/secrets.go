package main

import (
	"log/slog"

	"forebay/cmd/bbd/config"
	"forebay/internal/clustercert"
	"forebay/internal/clusterkey"
	"forebay/internal/wire"
)

// secrets are the proofs of this daemon's identity. They come from files alone, and
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

// reread adopts the present content of the files. Unusable content is reported, and the
// daemon keeps its former secrets.
func (s *secrets) reread(cfg config.Config, members *membership, log *slog.Logger) {
	if cfg.KeyFile != "" {
		keys, err := clusterkey.Read(cfg.KeyFile)
		if err == nil {
			err = members.useKeys(keys)
		}
		if err != nil {
			log.Error("the cluster key stays as it was", "err", err)
		} else {
			s.keys.Use(keys)
			log.Info("the cluster key was read again", "keys", len(keys))
		}
	}
	if s.tls == nil {
		return
	}
	if err := s.tls.Reload(); err != nil {
		log.Error("the certificates stay as they were", "err", err)
		return
	}
	log.Info("the certificates were read again", "expires", s.tls.Own().NotAfter)
}

// first returns the key that this daemon proves with, or nil if there is none.
func (s *secrets) first() []byte {
	if keys := s.keys.Keys(); len(keys) > 0 {
		return keys[0]
	}
	return nil
}
