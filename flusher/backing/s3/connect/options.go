// Package connect makes the client that a store uses to reach its endpoint: the URL, the credentials and their
// sources, the certificate authorities, the HTTP transport. It must never handle an object, nor a request but
// for the condition that a DELETE carries.
package connect

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"forebay/internal/bb"
	"forebay/internal/userfile"
)

// Options are the place of a store and the credentials for it.
type Options struct {
	Endpoint  string // http://host:port or https://host; "": AWS
	Region    string // "": requested from the store
	PathStyle bool   // the bucket in the path instead of the host name
	CAFile    string // PEM file of further certificate authorities

	// AccessKey and SecretKey are fixed credentials. Without them the usual places are tried in
	// turn: AWS_* and MINIO_* environment, the AWS shared credentials file, the MinIO client's, the
	// role of the instance or container.
	AccessKey, SecretKey, SessionToken string
	CredentialsFile                    string // "": the usual one
	Profile                            string // in that file, which alone is read then; "": default
	// OwnCredentials is a file with the credentials of the user of the URL, which replace all of
	// the above. See ParseCredentials. It is read again every minute.
	OwnCredentials string
	// ReadFile reads CAFile and OwnCredentials, of a bounded size. It may be called concurrently.
	// Nil: userfile.Read.
	ReadFile func(name string) ([]byte, error)

	// Transport replaces the HTTP transport, for tests.
	Transport http.RoundTripper
}

// Client returns a client of minio-go, and a function that closes its idle connections. It sends no
// request but those for credentials. Credentials of a file of the user's are read at once, so that
// the error is of this call. An endpoint that is no URL of a host is invalid.
func (o *Options) Client() (*minio.Core, func(), error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.User != nil {
		return nil, nil, bb.E(bb.Invalid, "backing", "endpoint="+o.Endpoint, "is not a URL of a host").
			WithRemedy("write endpoint=https://host:port")
	}
	transport, idle, err := o.transport()
	if err != nil {
		return nil, nil, err
	}
	creds, err := o.credentials(transport)
	if err != nil {
		return nil, nil, err
	}
	lookup := minio.BucketLookupDNS
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.NewCore(u.Host, &minio.Options{
		Creds: creds, Secure: u.Scheme == "https", Transport: matchTransport{transport},
		Region: o.Region, BucketLookup: lookup,
		MaxRetries: 1, // no retries: our own wrapper retries, and reports them
	})
	if err != nil {
		return nil, nil, &bb.Error{Kind: bb.Invalid, Op: "backing", Path: o.Endpoint, Err: err}
	}
	client.SetAppInfo("forebay", "1")
	return client, idle, nil
}

func (o *Options) credentials(transport http.RoundTripper) (*credentials.Credentials, error) {
	switch {
	case o.OwnCredentials != "":
		own := &ownFile{name: o.OwnCredentials, profile: o.Profile, read: o.readFile}
		_, err := own.Retrieve() // its owner finds out about faults in it now
		return credentials.New(own), err
	case o.AccessKey != "" || o.SecretKey != "":
		return credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.SessionToken), nil
	case o.Profile != "": // in the environment there may be others
		return credentials.New(&credentials.FileAWSCredentials{Filename: o.CredentialsFile, Profile: o.Profile}), nil
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.EnvMinio{},
		&credentials.FileAWSCredentials{Filename: o.CredentialsFile},
		&credentials.FileMinioClient{},
		&credentials.IAM{Client: &http.Client{Transport: transport, Timeout: 10 * time.Second}},
	}), nil
}

func (o *Options) transport() (http.RoundTripper, func(), error) {
	if o.Transport != nil {
		return o.Transport, func() {}, nil
	}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 2 * time.Minute, // completing a large upload takes a store its time
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   64,
		WriteBufferSize:       256 << 10,
		ReadBufferSize:        256 << 10,
		DisableCompression:    true, // or a stored .gz would come back decoded
	}
	if o.CAFile != "" {
		pool, err := o.certificates()
		if err != nil {
			return nil, nil, err
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, t.CloseIdleConnections, nil
}

func (o *Options) readFile(name string) ([]byte, error) {
	if o.ReadFile == nil {
		return userfile.Read(name)
	}
	return o.ReadFile(name)
}

// certificates returns the system's authorities and those of CAFile.
func (o *Options) certificates() (*x509.CertPool, error) {
	pem, err := o.readFile(o.CAFile)
	if err != nil {
		return nil, bb.Wrap("backing", "ca="+o.CAFile, err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, bb.E(bb.Invalid, "backing", "ca="+o.CAFile, "holds no certificate in PEM form")
	}
	return pool, nil
}
