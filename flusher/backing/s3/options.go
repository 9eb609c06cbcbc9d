package s3

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/userfile"
)

// Verify says what makes an upload count as confirmed.
type Verify string

// The ways to verify an upload.
const (
	// VerifyStore relies on the CRC-64/NVME that the store says it computed.
	VerifyStore Verify = ""
	// VerifyRead reads every object back; for stores that keep no such checksum.
	VerifyRead Verify = "read"
)

// Options configures a store.
type Options struct {
	Owner backing.Owner

	Endpoint  string // http://host:port or https://host; "": AWS
	Region    string // "": asked of the store
	PathStyle bool   // the bucket in the path instead of the host name
	CAFile    string // PEM file of further certificate authorities
	Verify    Verify

	// AccessKey and SecretKey are fixed credentials. Without them the usual places
	// are asked in turn: AWS_* and MINIO_* environment, the AWS shared credentials
	// file, the MinIO client's, the role of the instance or container.
	AccessKey, SecretKey, SessionToken string
	CredentialsFile                    string // "": the usual one
	Profile                            string // in that file, which alone is asked then; "": default
	// OwnCredentials is a file with the credentials of whoever names the store, which replace all
	// of the above: see parseCredentials. It is read again every minute.
	OwnCredentials string
	// ReadFile reads CAFile and OwnCredentials, of a bounded size. It may be called concurrently.
	// Nil: userfile.Read.
	ReadFile func(name string) ([]byte, error)

	PartSize  int64 // bytes of one part of a large upload; 0: 16 MiB
	Threshold int64 // objects larger than this go in parts; 0: 32 MiB
	Parallel  int   // parts of one object at a time; 0: 4
	CopyLimit int64 // objects larger than this are copied in parts; 0: 5 GiB, S3's limit

	// Transport replaces the HTTP transport, for tests.
	Transport http.RoundTripper
	Logger    *slog.Logger

	// Changed is told of an object that was confirmed, and that a request which was carried
	// out late has overwritten or removed: it should be put again. It may be called
	// concurrently. Nil: nobody is told.
	Changed func(name string)

	// Mark is kept with markers of directories that the store makes: DirOptions.Keep then concerns
	// those without it. "": none is.
	Mark string

	requestLife time.Duration    // how long a request may be on its way; 0: the constant
	watch       [2]time.Duration // shortest and longest pause between looks after late requests; 0: 1 s, 1 min
	pageSize    int              // keys in a listing's page; 0: the store's default
}

// DefaultEndpoint is that of a store without one: AWS.
const DefaultEndpoint = "https://s3.amazonaws.com"

const (
	minPart  = 5 << 20 // S3 refuses smaller parts, but for the last
	maxParts = 10_000
)

// withQuery adds a URL's query and the defaults, and refuses what cannot be. A parameter without a value
// counts as one that is not there, as it does for who may use the store (bbd/storerules).
func (o Options) withQuery(where bb.Backing) (Options, error) {
	for key, values := range where.Query {
		var err error
		switch v := values[len(values)-1]; key {
		case "endpoint":
			o.Endpoint = cmp.Or(v, o.Endpoint)
		case "region":
			o.Region = cmp.Or(v, o.Region)
		case "path_style":
			o.PathStyle, err = strconv.ParseBool(v)
		case "ca":
			o.CAFile = cmp.Or(v, o.CAFile)
		case "verify":
			o.Verify = Verify(v)
		case "profile":
			o.Profile = cmp.Or(v, o.Profile)
		case "credentials":
			o.OwnCredentials = v
		default:
			err = fmt.Errorf("unknown parameter")
		}
		if err != nil {
			return o, bb.E(bb.Invalid, "backing", key+"="+values[len(values)-1], err.Error()).
				WithRemedy("use endpoint, region, path_style, ca, verify, profile or credentials")
		}
	}
	if o.Verify != VerifyStore && o.Verify != VerifyRead {
		return o, bb.E(bb.Invalid, "backing", "verify="+string(o.Verify), `is neither empty nor "read"`)
	}
	return o.withDefaults(), nil
}

func (o Options) withDefaults() Options {
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	o.PartSize = max(minPart, orDefault(o.PartSize, 16<<20))
	o.Threshold = orDefault(o.Threshold, 32<<20)
	o.Parallel = int(orDefault(int64(o.Parallel), 4))
	o.CopyLimit = orDefault(o.CopyLimit, 5<<30)
	if o.requestLife <= 0 {
		o.requestLife = requestLife
	}
	if o.watch[0] <= 0 {
		o.watch = [2]time.Duration{time.Second, time.Minute}
	}
	if o.ReadFile == nil {
		o.ReadFile = userfile.Read
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orDefault(v, def int64) int64 {
	if v <= 0 {
		return def
	}
	return v
}

// client makes the minio client, and returns how to close its idle connections.
func (o Options) client() (*minio.Core, func(), error) {
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
		MaxRetries: 1, // no retries: our own wrapper retries, and tells of it
	})
	if err != nil {
		return nil, nil, &bb.Error{Kind: bb.Invalid, Op: "backing", Path: o.Endpoint, Err: err}
	}
	client.SetAppInfo("forebay", "1")
	return client, idle, nil
}

func (o Options) credentials(transport http.RoundTripper) (*credentials.Credentials, error) {
	switch {
	case o.OwnCredentials != "":
		own := &ownFile{name: o.OwnCredentials, profile: o.Profile, read: o.ReadFile}
		_, err := own.Retrieve() // what is wrong with it, its owner finds out now
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

func (o Options) transport() (http.RoundTripper, func(), error) {
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

// certificates returns the system's authorities and those of CAFile.
func (o *Options) certificates() (*x509.CertPool, error) {
	pem, err := o.ReadFile(o.CAFile)
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
